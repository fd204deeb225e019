"""The native forward is a float64 forward of the numbers in the file, for every family and weight kind."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from tiny import FAMILIES, ISAS, PlainModel, feed, file_of, pool_of, random_tree, text, tiny

from paceline.core.tree import TokenTree
from paceline.formats.files import open_model
from paceline.kernels.tensor import GgmlType
from paceline.model.decoder import DecoderWeights
from paceline.model.flatten import flatten
from paceline.model.native import NativeModel

FLOATS = (GgmlType.F32, GgmlType.F16, GgmlType.BF16)
PACKED = (GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q5_0, GgmlType.Q8_0, GgmlType.Q4_K, GgmlType.Q6_K)
isas = pytest.mark.parametrize("isa", ISAS)


def rounds(model, *, taps=()):
    """Forward a long chain, then random trees of two sequences; return all logits and taps as one array each."""
    random = np.random.default_rng(2)
    cache = model.new_cache(512)
    one, two = cache.open(), cache.open()
    logits = [feed(model, cache, one, text(1, 45), chunk=17), feed(model, cache, two, text(2, 20))]
    hidden = {layer: [] for layer in taps}
    for _ in range(2):
        trees = [random_tree(random, 10, 5), random_tree(random, 6, 7)]
        out = model.forward(flatten(cache, [one, two], trees, [10, 6]), cache, taps=taps)
        logits.append(out.logits.copy())
        for layer in taps:
            hidden[layer].append(out.taps[layer].copy())
        for sequence, tree in zip((one, two), trees, strict=True):
            path = [0, *tree.path(int(random.integers(len(tree))))]
            cache.commit(sequence, path, [int(tree.tokens[node]) for node in path])
    return np.concatenate(logits), {layer: np.concatenate(rows) for layer, rows in hidden.items()}


@functools.cache
def twin_rounds(twin, taps=()):
    """`rounds` of a twin, which every instruction set is compared with."""
    return rounds(twin, taps=taps)


@functools.cache
def exact_twin(name, kind=GgmlType.F32):
    """The float64 forward, with keys and values rounded as the cache rounds them."""
    return PlainModel.of(file_of(name, kind), kept=np.float16)


@functools.cache
def rounding_twin(name, kind):
    return PlainModel.of(file_of(name, kind), dtype=np.float32, quantized=True, kept=np.float16)


def check(model, twin, *, most=1e-3, mean=1e-4, taps=()):
    """Compare logits of spread 1, and hidden states of the layers `taps`."""
    got, got_taps = rounds(model, taps=taps)
    want, want_taps = twin_rounds(twin, taps)
    apart = np.abs(got - want)
    assert apart.max() < most, f"logits apart by up to {apart.max():.1e}, on average {apart.mean():.1e}"
    assert apart.mean() < mean, f"logits apart by {apart.mean():.1e} on average"
    assert got_taps.keys() == want_taps.keys() == set(taps)
    for layer, rows in got_taps.items():
        apart = np.abs(rows - want_taps[layer]).max() / np.abs(want_taps[layer]).max()
        assert apart < most, f"hidden states of layer {layer} apart by {apart:.1e} of the largest"


@isas
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_its_float64_twin(name, isa):
    twin = exact_twin(name)
    layers = range(twin.spec.layers)
    check(tiny(name, isa=isa), twin, taps=(layers[0], layers[-1]))


@isas
@pytest.mark.parametrize("kind", FLOATS[1:], ids=lambda kind: kind.name)
def test_half_precision_weights_are_multiplied_exactly(kind, isa):
    check(tiny("qwen2", kind, isa), exact_twin("qwen2", kind))


def check_rounding(model, twin, exact):
    """Compare with the twin that rounds activations, by the measure of how far rounding takes it from the exact one.

    Activations on the border of two codes may round either way, so what is asked of all logits is loose; but most
    rows must meet no such border.
    """
    got, want = rounds(model)[0], twin_rounds(twin)[0]
    apart, rounding = np.abs(got - want), np.abs(want - twin_rounds(exact)[0])
    few, usual = np.quantile(apart, 0.1), apart.mean() / rounding.mean()
    assert apart.max() < 0.1, f"logits apart by up to {apart.max():.1e}"
    assert usual < 0.5, f"logits apart by {usual:.2f} of what rounding does"
    assert few < 1e-4, f"logits apart by more than {few:.1e} in nine of ten places"


@isas
@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_packed_weights_are_the_twin_that_rounds_activations(kind, isa):
    for name in (
        ("wide",)
        if kind.name.endswith("K")
        else ("llama", "qwen2", "qwen3", "gemma3", "mistral", "smollm3", "gemma2", "olmo2")
    ):
        check_rounding(tiny(name, kind, isa), rounding_twin(name, kind), exact_twin(name, kind))


@pytest.mark.parametrize("quant", ["q4", "q4s", "q8", "bf16", "f32"])
def test_a_repacked_model_is_the_twin_of_its_packed_numbers(quant):
    model = tiny("qwen2", quant=quant)
    exact = PlainModel(model.spec, unpacked(model), kept=np.float16)
    if quant[0] == "q":
        twin = PlainModel(model.spec, exact.weights, dtype=np.float32, quantized=True, kept=np.float16)
        check_rounding(model, twin, exact)
    else:
        check(model, exact)


def unpacked(model) -> DecoderWeights:
    """The numbers that a model's packed weights stand for."""

    def plain(linear):
        return replace(linear, weight=linear.weight.unpack_rows(0, linear.weight.rows))

    weights, linears = model.weights, ("q", "k", "v", "o", "gate", "up", "down")
    return DecoderWeights(
        weights.embedding.lookup(np.arange(model.spec.vocab, dtype=np.int32)),
        tuple(replace(layer, **{name: plain(getattr(layer, name)) for name in linears}) for layer in weights.layers),
        weights.norm,
        plain(weights.head),
    )


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_a_hugging_face_folder_is_its_twin(tmp_path, family, dtype):
    write_folder(tmp_path, family, dtype)
    file = open_model(tmp_path)
    assert not file.spec.rope_interleaved
    model, twin = NativeModel(file, pool_of()), PlainModel.of(file, kept=np.float16)
    check(model, twin, taps=(1,))
    file.close()


def write_folder(folder, family, dtype):
    from test_safetensors import encode

    config = {
        "model_type": "gemma3_text" if family == "gemma3" else family,
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 300, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": family != "llama", "sliding_window": 16,
        "query_pre_attn_scalar": 20, "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    if family == "llama":
        config |= {"sliding_window": None, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}}  # fmt: skip
    random = np.random.default_rng(4)

    def matrix(*shape):
        return random.normal(0, 2 * shape[-1] ** -0.5, shape).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(300, 64), "model.norm.weight": matrix(64)}
    if family == "llama":
        tensors["lm_head.weight"] = matrix(300, 64)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if family == "gemma3":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for layer in range(2):
        at = f"model.layers.{layer}."
        for name, out, width in (
            ("self_attn.q_proj", 64, 64), ("self_attn.k_proj", 32, 64), ("self_attn.v_proj", 32, 64),
            ("self_attn.o_proj", 64, 64), ("mlp.gate_proj", 96, 64), ("mlp.up_proj", 96, 64),
            ("mlp.down_proj", 64, 96),
        ):  # fmt: skip
            tensors[f"{at}{name}.weight"] = matrix(out, width)
            if family == "qwen2" and name[10:11] in "qkv" and name.startswith("self"):
                tensors[f"{at}{name}.bias"] = matrix(out)
        tensors |= {f"{at}{norm}.weight": matrix(64) for norm in norms}
        if family == "gemma3":
            tensors |= {f"{at}self_attn.{one}_norm.weight": matrix(32) for one in "qk"}
    if family == "qwen2":
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("o_proj.bias")}
    (folder / "tokenizer.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(encode(tensors, dtype))


# ---- the twin is right by reading, and wrong ones are noticed


def test_the_twin_is_indifferent_to_how_a_text_is_cut():
    twin = PlainModel.of(file_of("gemma3"))
    want, tokens = None, text(3, 40)
    for chunk in (40, 1, 7):
        cache = twin.new_cache(64)
        got = feed(twin, cache, cache.open(), tokens, chunk=chunk)
        np.testing.assert_allclose(got, got if want is None else want, rtol=0, atol=1e-10)
        want = got


WRONG = {
    "a window off by one": lambda spec: {"windows": tuple(w + 1 if w else 0 for w in spec.windows)},
    "windows on other layers": lambda spec: {"windows": spec.windows[::-1]},
    "the other rope table": lambda spec: {"rope_tables": tuple(1 - t for t in spec.rope_tables)},
    "rope pairs elsewhere": lambda spec: {"rope_interleaved": not spec.rope_interleaved},
    "another scale of scores": lambda spec: {"attention_scale": spec.attention_scale * 1.1},
    "no cap on scores": lambda spec: {"attention_softcap": 0.0},
    "no cap on logits": lambda spec: {"final_softcap": 0.0},
    "the other activation": lambda spec: {"activation": "silu"},
    "an embedding not scaled": lambda spec: {"embed_scale": 1.0},
    "another epsilon": lambda spec: {"norm_eps": 1e-2},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_twin_with_one_number_wrong_is_noticed(what):
    name = "gemma2" if what == "no cap on scores" else "gemma3"
    twin = PlainModel.of(file_of(name), kept=np.float16)
    twin.spec = replace(twin.spec, **WRONG[what](twin.spec))
    with pytest.raises(AssertionError, match="apart by"):
        check(tiny(name), twin)


@pytest.mark.parametrize("name", ["q_norm", "k_norm", "post_attn_norm", "post_ffn_norm"])
def test_a_twin_without_an_optional_norm_is_noticed(name):
    twin = PlainModel.of(file_of("gemma3"), kept=np.float16)
    layers = (replace(twin.weights.layers[0], **{name: None}), *twin.weights.layers[1:])
    twin.weights = replace(twin.weights, layers=layers)
    with pytest.raises(AssertionError, match="apart by"):
        check(tiny("gemma3"), twin)


def test_positions_off_by_one_are_noticed(monkeypatch):
    """Wrong positions are refused by the native check and give other numbers in the twin."""
    depths = TokenTree.depths
    twin = PlainModel.of(file_of("llama"))
    want, _ = rounds(twin)
    monkeypatch.setattr(TokenTree, "depths", lambda tree: depths(tree) + np.int32(1) * (np.arange(len(tree)) > 0))
    got, _ = rounds(twin)
    assert np.abs(got - want).max() > 1e-2
    with pytest.raises(ValueError, match="position"):
        rounds(tiny("llama"))


def test_activations_rounded_otherwise_are_noticed(monkeypatch):
    """A twin that sets one outlier fewer apart in each stretch of inputs is told from the native one."""
    file = file_of("qwen2", GgmlType.Q8_0)
    twin = PlainModel.of(file, dtype=np.float32, quantized=True, kept=np.float16)
    monkeypatch.setattr("paceline.kernels.plain.OUTLIERS", 3)
    with pytest.raises(AssertionError, match="apart by"):
        check_rounding(tiny("qwen2", GgmlType.Q8_0), twin, PlainModel.of(file, kept=np.float16))
