import math

import numpy as np
import pytest
from gguf_writer import tiny_metadata, tiny_tensors, write_gguf

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.config_spec import spec_from_config
from paceline.formats.gguf import GgufFile
from paceline.formats.gguf_spec import spec_from_gguf
from paceline.formats.rope import Rope, inverse_frequencies

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}


def config(**changes):
    return spec_from_config({key: value for key, value in (CONFIG | changes).items() if value != "absent"})


def gguf(tmp_path, family="llama", tensors=None, layers=2, **changes):
    metadata = tiny_metadata(family, layers=layers)
    made = tiny_tensors(metadata) | (tensors or {})
    for key, value in changes.items():
        metadata[f"{family}.{key.replace('__', '.')}"] = value
    wanted = {key: value for key, value in metadata.items() if value != "absent"}
    return spec_from_gguf(GgufFile.open(write_gguf(tmp_path / "m.gguf", wanted, made)))


def test_a_llama_file_gives_its_numbers(tmp_path):
    spec = gguf(tmp_path)
    assert (spec.architecture, spec.layers, spec.width, spec.heads, spec.kv_heads) == ("llama", 2, 64, 4, 2)
    assert (spec.head_dim, spec.ffn_width, spec.vocab, spec.context, spec.activation) == (16, 96, 256, 256, "silu")
    assert (spec.rope_interleaved, spec.windows, spec.rope_tables) == (True, (0, 0), (0, 0))
    assert (spec.attention_scale, spec.embed_scale, spec.norm_offset) == (0.25, 1.0, 0.0)
    assert (spec.qkv_bias, spec.qk_norm, spec.post_norms, spec.tied) == (False, "", False, True)


def test_qwen_files_rotate_halves_and_have_biases_or_norms(tmp_path):
    two, three = gguf(tmp_path, "qwen2"), gguf(tmp_path, "qwen3")
    assert (two.rope_interleaved, two.qkv_bias, two.qk_norm) == (False, True, "")
    assert (three.rope_interleaved, three.qkv_bias, three.qk_norm) == (False, False, "head")


def test_gemma_sees_everything_on_every_sixth_layer(tmp_path):
    spec = gguf(tmp_path, "gemma3", layers=12, rope__freq_base=1e6, rope__scaling__factor=8.0)
    assert spec.windows == (8, 8, 8, 8, 8, 0) * 2
    assert spec.rope_tables == (1, 1, 1, 1, 1, 0) * 2
    assert spec.ropes == (Rope(1e6, 32, "linear", 8.0), Rope(10_000.0, 32))
    assert (spec.activation, spec.embed_scale, spec.norm_offset) == ("gelu_tanh", 8.0, 0.0)
    assert (spec.attention_scale, spec.qk_norm, spec.post_norms) == (32**-0.5, "head", True)


@pytest.mark.parametrize("pattern", [3, [True, True, False] * 2])
def test_gemma_may_say_another_pattern(tmp_path, pattern):
    spec = gguf(tmp_path, "gemma3", layers=6, attention__sliding_window_pattern=pattern)
    assert spec.windows == (8, 8, 0) * 2


def test_smollm3_leaves_rope_out_of_every_fourth_layer(tmp_path):
    assert gguf(tmp_path, "smollm3", layers=8).rope_tables == (0, 0, 0, -1) * 2
    assert config(model_type="smollm3").rope_tables == (0, 0, 0, -1)
    assert config(model_type="smollm3", no_rope_layers=[1, 0, 1, 0]).rope_tables == (0, -1, 0, -1)


def test_a_gguf_file_with_rope_factors_divides_by_them(tmp_path):
    factors = np.linspace(1, 8, 8).astype(np.float32)
    (rope,) = gguf(tmp_path, tensors={"rope_freqs.weight": factors}).ropes
    np.testing.assert_allclose(inverse_frequencies(rope)[0], 10_000.0 ** -(np.arange(8) / 8) / factors, rtol=1e-6)
    with pytest.raises(ModelFileError, match=r"\(8,\) for `rope_freqs.weight`; got \(4,\)"):
        gguf(tmp_path, tensors={"rope_freqs.weight": np.ones(4, np.float32)})
    with pytest.raises(ModelFileError, match="positive numbers"):
        gguf(tmp_path, tensors={"rope_freqs.weight": np.zeros(8, np.float32)})


def test_a_gguf_file_with_yarn_reaches_further(tmp_path):
    changes = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    spec = gguf(tmp_path, rope__scaling__original_context_length=256, **changes)
    assert spec.context == 1024
    assert spec.ropes[0].kind == "yarn"
    assert inverse_frequencies(spec.ropes[0])[1] == pytest.approx(0.1 * math.log(4) + 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_count": 0}, "`llama.block_count`; got 0"),
        ({"block_count": "absent"}, "`llama.block_count`; got nothing"),
        ({"block_count": "two"}, "got 'two'"),
        ({"attention__head_count": 0}, "`llama.attention.head_count`; got 0"),
        ({"attention__head_count_kv": 3}, "heads that 3 key-value heads divide; got 4"),
        ({"embedding_length": 10**9}, "`llama.embedding_length`; got 1000000000"),
        ({"attention__key_length": 15, "attention__value_length": 15}, "even head length; got 15"),
        ({"attention__layer_norm_rms_epsilon": math.nan}, "layer_norm_rms_epsilon`; got nan"),
        ({"rope__freq_base": math.inf}, "rope.freq_base`; got inf"),
        ({"rope__freq_base": 0.5}, "RoPE base above 1"),
        ({"rope__dimension_count": 18}, "rope.dimension_count`; got 18"),
        ({"context_length": True}, "got True"),
    ],
)
def test_impossible_numbers_are_named(tmp_path, changes, words):
    with pytest.raises(ModelFileError) as caught:
        gguf(tmp_path, **changes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert_count": 8}, "dense model"),
        ({"attention__value_length": 8}, "keys and values of one length"),
        ({"attention__head_count_kv": [2, 1]}, "one `llama.attention.head_count_kv` for all layers"),
        ({"rope__scaling__type": "dynamic"}, "got `dynamic`"),
    ],
)
def test_variants_that_would_run_wrongly_are_unsupported(tmp_path, changes, words):
    with pytest.raises(UnsupportedModel) as caught:
        gguf(tmp_path, **changes)
    assert words in str(caught.value)


def test_an_unknown_architecture_is_named_with_the_known_ones(tmp_path):
    file = GgufFile.open(write_gguf(tmp_path / "m.gguf", {"general.architecture": "mamba"}, {}))
    with pytest.raises(UnsupportedModel, match=r"llama, qwen2, qwen3, gemma3, smollm3.*`mamba`"):
        spec_from_gguf(file)
    with pytest.raises(ModelFileError, match=r"general\.architecture"):
        spec_from_gguf(GgufFile.open(write_gguf(tmp_path / "n.gguf", {}, {})))
    with pytest.raises(UnsupportedModel, match="`falcon`"):
        config(model_type="falcon")


def test_a_llama_config_gives_its_numbers():
    spec = config()
    assert (spec.layers, spec.head_dim, spec.context, spec.rope_interleaved) == (4, 16, 512, False)
    assert (spec.ropes, spec.windows, spec.tied) == ((Rope(10_000.0, 16),), (0,) * 4, False)
    assert config(head_dim=32).head_dim == 32
    assert config(tie_word_embeddings=True).tied
    with pytest.raises(ModelFileError, match="`num_key_value_heads`"):
        config(num_key_value_heads="2")
    with pytest.raises(UnsupportedModel, match="got relu"):
        config(hidden_act="relu")


def test_heads_not_dividing_the_width_are_named_with_it():
    with pytest.raises(ModelFileError, match=r"a width that 7 heads divide, or `head_dim`; got a width of 64"):
        spec_from_config({**CONFIG, "num_attention_heads": 7})


def test_windows_of_configs():
    assert config(model_type="mistral", sliding_window=99).windows == (99,) * 4
    assert config(model_type="mistral", sliding_window=None).windows == (0,) * 4
    qwen = {"model_type": "qwen2", "sliding_window": 99, "max_window_layers": 2}
    assert config(**qwen).windows == (0,) * 4
    assert config(**qwen, use_sliding_window=True).windows == (0, 0, 99, 99)
    kinds = ["sliding_attention", "full_attention"] * 2
    assert config(**qwen, use_sliding_window=True, layer_types=kinds).windows == (99, 0) * 2
    with pytest.raises(ModelFileError, match="4 known `layer_types`"):
        config(**qwen, use_sliding_window=True, layer_types=["chunked"] * 4)


def test_what_a_config_leaves_out_is_the_familys_own():
    stray = {"model_type": "llama", "sliding_window": 99, "use_sliding_window": True}
    assert config(**stray).windows == (0,) * 4, "llama knows no windows"
    assert config(model_type="mistral").windows == (4096,) * 4
    assert config(model_type="mistral", num_key_value_heads="absent", num_attention_heads=8).kv_heads == 8
    assert config(model_type="smollm3").ropes == (Rope(2e6, 16),)
    assert config(model_type="smollm3", sliding_window=9, use_sliding_window=True).windows == (0, 0, 0, 9)
    every = [1, 0, 1, 0]
    assert config(model_type="smollm3", sliding_window=9, use_sliding_window=True, no_rope_layers=every).windows == (
        0,
        9,
        0,
        9,
    )
    deep = {"num_hidden_layers": 30, "sliding_window": 9, "use_sliding_window": True}
    assert config(model_type="qwen2", **deep).windows == (0,) * 28 + (9, 9)
    assert config(model_type="smollm3", tie_word_embeddings="absent").tied
    assert not config(model_type="qwen2").tied
    inside = {"model_type": "mistral", **{key: value for key, value in CONFIG.items() if key != "model_type"}}
    assert not spec_from_config({"model_type": "mistral3", "text_config": inside}).tied


def test_gemma_of_search_looks_both_ways_and_is_refused():
    with pytest.raises(UnsupportedModel, match="both ways"):
        config(model_type="gemma3_text", head_dim=32, use_bidirectional_attention=True)


def test_gemma3_has_no_cap_on_its_scores(tmp_path):
    gemma = {
        "model_type": "gemma3_text",
        "head_dim": 32,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    }
    assert (config(**gemma).attention_softcap, config(**gemma).final_softcap) == (0.0, 30.0)
    assert gguf(tmp_path, "gemma3", attn_logit_softcapping=50.0).attention_softcap == 0.0


def test_files_of_the_other_families_have_their_own_numbers(tmp_path):
    two = gguf(tmp_path, "gemma2", layers=4)
    assert two.windows == (8, 0, 8, 0)
    assert (two.attention_softcap, two.final_softcap, two.post_norms, two.qk_norm) == (50.0, 30.0, True, "")
    assert (len(two.ropes), two.embed_scale, two.norm_offset) == (1, 8.0, 0.0)
    assert gguf(tmp_path, "ernie4_5").rope_interleaved
    assert not gguf(tmp_path, "gemma").rope_interleaved


def test_yarn_factors_of_files_are_whole_or_on_top(tmp_path):
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 64}
    own = 0.1 * math.log(4) + 1
    for changes, wanted in (
        ({}, own),
        ({"rope__scaling__yarn_attn_factor": 1.3}, 1.3),
        ({"rope__scaling__yarn_attn_factor": 1.0}, 1.0),
        ({"rope__scaling__attn_factor": 0.5}, 0.5 * own),
    ):
        (rope,) = gguf(tmp_path, **yarn, **changes).ropes
        assert inverse_frequencies(rope)[1] == pytest.approx(wanted)


def test_gemma_configs_old_new_and_inside_a_model_that_sees():
    old = {
        "model_type": "gemma3_text",
        "hidden_act": "absent",
        "head_dim": 32,
        "num_hidden_layers": 6,
        "sliding_window": 7,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    spec = config(**old)
    assert spec.windows == (7, 7, 7, 7, 7, 0)
    assert spec.ropes == (Rope(1e6, 32, "linear", 8.0), Rope(10_000.0, 32))
    assert (spec.norm_offset, spec.embed_scale, spec.attention_scale, spec.tied) == (1.0, 8.0, 1 / 16, True)
    parameters = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    assert config(**(old | {"rope_scaling": None, "rope_parameters": parameters})) == spec
    seeing = {key: value for key, value in (CONFIG | old).items() if value != "absent"}
    assert spec_from_config({"model_type": "gemma3", "text_config": seeing}) == spec


def test_plain_and_linear_frequencies():
    frequencies, multiplier = inverse_frequencies(Rope(100.0, 4))
    np.testing.assert_allclose(frequencies, [1.0, 0.1], rtol=1e-6)
    assert frequencies.dtype == np.float32
    assert multiplier == 1.0
    np.testing.assert_allclose(inverse_frequencies(Rope(100.0, 4, "linear", 4.0))[0], [0.25, 0.025], rtol=1e-6)


def test_yarn_keeps_fast_dimensions_and_slows_down_slow_ones():
    rope = config(rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}).ropes[0]
    rope = Rope(rope.base, 64, rope.kind, rope.factor, rope.original_context)
    frequencies, multiplier = inverse_frequencies(rope)
    assert multiplier == pytest.approx(0.1 * math.log(4) + 1)
    low = math.floor(64 * math.log(512 / (32 * 2 * math.pi)) / (2 * math.log(10_000)))
    high = math.ceil(64 * math.log(512 / (1 * 2 * math.pi)) / (2 * math.log(10_000)))
    assert (low, high) == (3, 16)
    for i, got in enumerate(frequencies):
        plain = 10_000 ** (-2 * i / 64)
        slow = min(1.0, max(0.0, (i - low) / (high - low)))
        assert got == pytest.approx(plain / 4 * slow + plain * (1 - slow), rel=1e-6)
    given = config(rope_scaling={"type": "yarn", "factor": 4.0, "attention_factor": 1.5}).ropes[0]
    assert inverse_frequencies(given)[1] == 1.5


def test_llama3_factors_by_wavelength():
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    rope = config(rope_scaling=scaling, rope_theta=500_000.0, head_dim=128, max_position_embeddings=131_072).ropes[0]
    bands = set()
    for i, got in enumerate(inverse_frequencies(rope)[0]):
        plain = 500_000 ** (-2 * i / 128)
        wavelength = 2 * math.pi / plain
        if wavelength < 8192 / 4:
            band, wanted = "short", plain
        elif wavelength > 8192 / 1:
            band, wanted = "long", plain / 8
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            band, wanted = "between", (1 - smooth) * plain / 8 + smooth * plain
        bands.add(band)
        assert got == pytest.approx(wanted, rel=1e-6)
    assert bands == {"short", "between", "long"}


@pytest.mark.parametrize(
    ("scaling", "error", "words"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, UnsupportedModel, "got `dynamic`"),
        ({"rope_type": "linear"}, ModelFileError, "`rope_scaling.factor`; got nothing"),
        ({"rope_type": "yarn", "factor": 0.5}, ModelFileError, "YaRN factor of at least 1"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, UnsupportedModel, "truncate"),
        (
            {"rope_type": "longrope", "short_factor": [1.0]},
            ModelFileError,
            "8 positive numbers for `rope_scaling.short",
        ),
        (
            {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0},
            ModelFileError,
            "`high_freq_factor` above",
        ),
        ("linear", ModelFileError, "a table for `rope_scaling`"),
    ],
)
def test_other_rope_scalings_are_refused(scaling, error, words):
    with pytest.raises(error) as caught:
        config(rope_scaling=scaling)
    assert words in str(caught.value)
