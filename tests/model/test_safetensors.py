import contextlib
import json
import random
import struct

import numpy as np
import pytest
from gguf_writer import rewrite

from paceline.errors import ModelFileError, ModelNotFound, PacelineError, UnsupportedModel
from paceline.formats.files import open_model
from paceline.formats.gguf import GgmlType
from paceline.formats.safetensors import SafetensorsFolder
from paceline.formats.tensor_names import canonical
from paceline.kernels.dequantize import dequantize

CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def weights(norms=("input_layernorm", "post_attention_layernorm"), biases=True, seed=0):
    random_numbers = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (32, 16), "model.norm.weight": (16,)}
    for layer in range(2):
        part = {
            "self_attn.q_proj.weight": (16, 16),
            "self_attn.k_proj.weight": (8, 16),
            "self_attn.v_proj.weight": (8, 16),
            "self_attn.o_proj.weight": (16, 16),
            "mlp.gate_proj.weight": (24, 16),
            "mlp.up_proj.weight": (24, 16),
            "mlp.down_proj.weight": (16, 24),
        }
        part |= {f"{norm}.weight": (16,) for norm in norms}
        if biases:
            part |= {f"self_attn.{one}_proj.bias": (size,) for one, size in (("q", 16), ("k", 8), ("v", 8))}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in part.items()}
    return {name: random_numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def encode(tensors, dtype="F32"):
    header, body = {}, b""
    for name, values in tensors.items():
        if dtype == "BF16":
            raw = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            raw = values.astype({"F32": "<f4", "F16": "<f2", "F8_E4M3": "u1"}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    return struct.pack("<Q", len(text)) + text + body


def write_folder(path, tensors=None, config=CONFIG, dtype="F32"):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(encode(tensors or weights(), dtype))
    return path


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_folder_gives_tensors_under_canonical_names(tmp_path, dtype):
    tensors = weights()
    file = open_model(write_folder(tmp_path / "m", tensors, dtype=dtype))
    assert file.spec.architecture == "qwen2"
    assert file.spec.tied
    down = file.tensor("blk.1.ffn_down.weight")
    assert (down.shape, down.type) == ((16, 24), GgmlType[dtype])
    tolerance = {"F32": 0, "F16": 2**-10, "BF16": 2**-7}[dtype]
    np.testing.assert_allclose(
        dequantize(down), tensors["model.layers.1.mlp.down_proj.weight"], rtol=tolerance, atol=1e-4 if tolerance else 0
    )
    assert file.tensor("output.weight") is None
    assert file.has("blk.0.attn_q.bias")
    file.release(down)
    assert file.nbytes == (tmp_path / "m" / "model.safetensors").stat().st_size
    file.close()
    assert np.isfinite(dequantize(down)).all()


def test_shards_make_one_model(tmp_path):
    folder, tensors = write_folder(tmp_path / "m"), weights()
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for part, inside in parts.items():
        (folder / part).write_bytes(encode({name: tensors[name] for name in inside}))
    index = {"weight_map": {name: part for part, inside in parts.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    open_model(folder).close()
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"model-00002-of-00002\.safetensors"):
        open_model(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}}))
    with pytest.raises(ModelFileError, match="beside it"):
        open_model(folder)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, missing):
    folder = write_folder(tmp_path / "m")
    (folder / missing).unlink()
    with pytest.raises(ModelNotFound, match=missing.replace(".", r"\.")):
        open_model(folder)


def test_pickled_weights_are_not_loaded(tmp_path):
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match=r"pytorch_model\.bin") as caught:
        open_model(folder)
    assert "pickled" in caught.value.hint


def test_the_file_says_whether_there_is_an_output_matrix(tmp_path, caplog):
    folder = write_folder(tmp_path / "m", config=CONFIG | {"tie_word_embeddings": False})
    with pytest.raises(ModelFileError, match=r"`output\.weight`.*missing"):
        open_model(folder)
    other = weights() | {"lm_head.weight": np.ones((32, 16), np.float32)}
    copy = weights() | {"lm_head.weight": weights()["model.embed_tokens.weight"]}
    silent = {key: value for key, value in CONFIG.items() if key != "tie_word_embeddings"}
    inside = {"model_type": "mistral3", "text_config": silent}
    for tensors, config, is_tied, is_told in (
        (weights(), CONFIG, True, False),
        (other, CONFIG, False, True),  # a fine-tune that forgot to say so
        (copy, CONFIG, True, False),
        (weights(), silent, True, False),
        (other, silent, False, False),
        (other, inside, False, False),
        (other, CONFIG | {"tie_word_embeddings": False}, False, False),
    ):
        caplog.clear()
        write_folder(folder, tensors, config)
        file = open_model(folder)
        assert (file.spec.tied, file.tensor("output.weight") is None) == (is_tied, is_tied), config
        assert ("another one" in caplog.text) == is_told, config


def test_a_part_kept_twice_or_of_no_shape_is_refused_by_name(tmp_path):
    tensors = weights()
    name = "model.layers.0.self_attn.q_proj.weight"
    whole = np.concatenate([tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
    for extra in ({name.replace("q_proj", "qkv_proj"): whole}, {"model.layers.0.scale": np.float32(1)}):
        folder = write_folder(tmp_path / f"m{len(extra)}{next(iter(extra))}", tensors | extra)
        with pytest.raises(UnsupportedModel, match="got also `"):
            open_model(folder)


def test_gemma_names_differ_around_the_feed_forward_part():
    assert canonical("model.layers.3.post_attention_layernorm.weight") == "blk.3.ffn_norm.weight"
    gemma = {
        "language_model.model.layers.3.post_attention_layernorm.weight": "blk.3.post_attention_norm.weight",
        "model.language_model.layers.3.pre_feedforward_layernorm.weight": "blk.3.ffn_norm.weight",
        "model.layers.3.post_feedforward_layernorm.weight": "blk.3.post_ffw_norm.weight",
        "model.layers.3.self_attn.k_norm.weight": "blk.3.attn_k_norm.weight",
        "language_model.lm_head.weight": "output.weight",
        "vision_tower.anything": None,
    }
    assert {name: canonical(name, "gemma2") for name in gemma} == gemma


def test_other_number_formats_and_tensors_are_refused_by_name(tmp_path):
    folder = write_folder(tmp_path / "m", dtype="F8_E4M3")
    with pytest.raises(UnsupportedModel, match=r"embed_tokens.*`F8_E4M3`"):
        open_model(folder)
    write_folder(folder, weights() | {"model.layers.0.mlp.experts.weight": np.ones((2, 2), np.float32)})
    with pytest.raises(UnsupportedModel, match=r"mlp\.experts"):
        open_model(folder)


def with_header(text, body=b"\0" * 64):
    raw = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def one(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"abc", "3 bytes"),
        (struct.pack("<Q", 1 << 60) + b"{}", str(1 << 60)),
        (with_header(b"[" * 50_000), "too deep"),
        (with_header(b"[]"), "a list"),
        (with_header(b"\xff\xff"), "decode"),
        (with_header(b'{"t": 1, "t": 2}'), "a key twice"),
        (with_header({"t": 3}), "a table for tensor `t`"),
        (with_header(one(shape=(-4,))), "`shape`"),
        (with_header(one(shape=(True,))), "`shape`"),
        (with_header(one(shape=(1 << 62,))), "`shape`"),
        (with_header(one(shape=(1 << 40, 1 << 40))), "possible shape"),
        (with_header(one(shape=(0,), offsets=(0, 0))), "possible shape"),
        (with_header(one(shape=(5,))), "possible shape"),
        (with_header(one(offsets=(16, 0))), "within 64 bytes"),
        (with_header(one(offsets=(0, 1 << 40))), "within 64 bytes"),
        (with_header(one() | {"u": one(offsets=(8, 24))["t"]}), "`u` apart"),
    ],
)
def test_damaged_files_are_refused(tmp_path, raw, words):
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(raw)
    with pytest.raises(ModelFileError) as caught:
        SafetensorsFolder.open(folder)
    assert words in str(caught.value)
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"[1]", b"{" * 9, b'{"a": ' * 20_000])
def test_a_damaged_config_is_refused(tmp_path, raw):
    folder = write_folder(tmp_path / "m")
    (folder / "config.json").write_bytes(raw)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_model(folder)


def test_a_byte_order_mark_is_no_part_of_a_configuration(tmp_path):
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = {"weight_map": dict.fromkeys(weights(), "model-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8-sig")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8-sig")
    open_model(folder).close()


def test_fuzzed_files_never_crash_the_reader(tmp_path):
    folder, rng = write_folder(tmp_path / "m"), random.Random(0)
    raw = (folder / "model.safetensors").read_bytes()
    for _ in range(150):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(3000)
            damaged[at : at + rng.randint(0, 3)] = bytes(rng.randrange(32, 127) for _ in range(rng.randint(0, 3)))
        rewrite(folder / "model.safetensors", damaged)
        with contextlib.suppress(PacelineError):
            open_model(folder).close()
