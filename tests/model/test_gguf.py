import gc
import os
import random
import struct
import time

import numpy as np
import pytest
from gguf_writer import encode, packed, rewrite, text, tiny_metadata, tiny_tensors, write_gguf, write_tiny

from paceline.errors import ModelFileError, ModelNotFound, PacelineError, UnsupportedModel
from paceline.formats.files import open_model
from paceline.formats.gguf import GgmlType, GgufFile

ALL_KINDS = {
    "u8": ("u8", 200),
    "i8": ("i8", -3),
    "u16": ("u16", 65_535),
    "i16": ("i16", -300),
    "u32": ("u32", 1 << 31),
    "i32": ("i32", -70_000),
    "f32": 0.5,
    "yes": True,
    "words": "naïve 🚴",
    "u64": ("u64", 1 << 63),
    "i64": ("i64", -(1 << 40)),
    "f64": ("f64", 1e300),
    "list": ["a", "", "é"],
    "numbers": [1, 2, 3],
    "flags": [True, False],
    "nested": [[1, 2], [3]],
    "empty": [],
}
EXPECTED = {key: value[1] if isinstance(value, tuple) else value for key, value in ALL_KINDS.items()}


def header(tensors=0, keys=0, rest=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def entry(name=b"t", dims=(4,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims) + struct.pack("<IQ", kind, offset)


def refuse(tmp_path, raw, *words, error=ModelFileError):
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(error) as caught:
        GgufFile.open(path)
    for word in (*words, "bad.gguf"):
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value_comes_back(tmp_path, version):
    with GgufFile.open(write_gguf(tmp_path / "a.gguf", ALL_KINDS, {}, version=version)) as file:
        assert file.metadata == EXPECTED


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_tensors_come_back_outermost_dimension_first(tmp_path, alignment):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = write_gguf(tmp_path / "a.gguf", {"general.alignment": alignment}, {"a": values[0, :3], "b": values})
    file = GgufFile.open(path)
    assert file.tensors["b"].shape == (3, 4)
    np.testing.assert_array_equal(file.tensors["b"].data.view(np.float32).reshape(3, 4), values)
    assert not file.tensors["b"].data.flags.writeable


def test_released_tensors_stay_readable_after_the_file_closed(tmp_path):
    values = np.arange(8192, dtype=np.float32)
    file = GgufFile.open(write_gguf(tmp_path / "a.gguf", {}, {"a": values}))
    tensor = file.tensor("a")
    file.release(tensor)
    np.testing.assert_array_equal(tensor.data.view(np.float32), values)
    file.close()
    gc.collect()
    np.testing.assert_array_equal(tensor.data.view(np.float32), values)


def test_an_unsupported_type_is_refused_when_used_by_name(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", {}, {"odd": (GgmlType.Q8_1, (32,), b"\0" * 36), "good": np.ones(4)})
    file = GgufFile.open(path)
    assert file.has("odd")
    assert file.tensor("good") is not None
    assert file.tensor("none") is None
    for use in (lambda: file.tensor("odd"), file.require_supported):
        with pytest.raises(UnsupportedModel, match=r"`odd`.*Q4_K.*`Q8_1`"):
            use()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", ["empty"]),
        (b"GGU", ["GGUF file"]),
        (b"PK\3\4" + b"\0" * 40, ["50 4b"]),
        (header(1 << 60), ["tensor count", "at byte 8"]),
        (header(0, 1 << 60), ["key count", "at byte 16"]),
        (header(0, 1, struct.pack("<Q", (1 << 64) - 1) + b"k" * 20), ["65535 bytes", "at byte 24"]),
        (header(0, 1, text("k") + struct.pack("<IQ", 8, 1 << 62) + b"x" * 9), ["`k`", str(1 << 62)]),
        (header(0, 1, text(b"\xff\xfe") + encode(1) + b"\0" * 9), ["UTF-8", "`fffe`", "at byte 32"]),
        (header(0, 1, text("k") + encode(["ok", b"\xc3("])), ["UTF-8 in `k`"]),
        (header(0, 1, text("k") + encode([[[[[1]]]]]) + b"\0" * 9), ["4 deep"]),
        (header(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 1 << 61) + b"\0" * 9), ["array elements"]),
        (header(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 1 << 20) + b"\0" * 9), ["strings"]),
        (header(0, 1, text("k") + struct.pack("<IIQ", 9, 12, 1 << 20) + b"\0" * 9), ["elements of `k`"]),
        (header(0, 1, text("k") + struct.pack("<IIQ", 9, 9, 1 << 20) + b"\0" * 9), ["arrays in `k`"]),
        (header(0, 1, text("k") + struct.pack("<IIQ", 9, 77, 1) + b"\0" * 9), ["element type", "77"]),
        (header(0, 1, text("k") + struct.pack("<I", 13) + b"\0" * 9), ["value type", "13"]),
        (header(0, 1, text("k") + struct.pack("<IB", 7, 2) + b"\0" * 9), ["boolean", "got 2"]),
        (header(0, 2, (text("k") + encode(1)) * 2), ["each key once", "`k`"]),
        (header(2, 0, entry() * 2 + b"\0" * 99), ["each tensor once", "`t`"]),
        (header(1, 0, entry(dims=()) + b"\0" * 99), ["1 to 4 dimensions"]),
        (header(1, 0, entry(dims=(1,) * 5) + b"\0" * 99), ["1 to 4 dimensions", "got 5"]),
        (header(1, 0, entry(dims=(4, 0)) + b"\0" * 99), ["possible shape", "[4, 0]"]),
        (header(1, 0, entry(dims=(1 << 32, 1 << 32)) + b"\0" * 99), ["possible shape"]),
        (header(1, 0, entry(dims=(1 << 63, 2)) + b"\0" * 99), ["possible shape"]),
        (header(1, 0, entry(dims=(33,), kind=2) + b"\0" * 99), ["blocks of 32", "got 33"]),
        (header(1, 0, entry(offset=8) + b"\0" * 99), ["multiple of 32", "got 8"]),
        (header(1, 0, entry(offset=1 << 62) + b"\0" * 99), ["`t`", "a file of"]),
        (header(1, 0, entry(dims=(1 << 20,)) + b"\0" * 99), ["4194304 bytes of F32"]),
        (header(2, 0, entry(dims=(16,)) + entry(b"u", (16,), 0, 32) + b"\0" * 256), ["`u` apart"]),
        (header(0, 1, text("general.alignment") + encode(24)), ["power of two", "got 24"]),
        (header(0, 1, text("general.alignment") + encode(0)), ["power of two", "got 0"]),
        (header(0, 1, text("general.alignment") + encode("32")), ["power of two"]),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, raw, words):
    refuse(tmp_path, raw, *words)


def test_other_versions_byte_orders_and_types_are_unsupported_not_damaged(tmp_path):
    refuse(tmp_path, header(version=1), "got 1", error=UnsupportedModel)
    refuse(tmp_path, header(version=3 << 24), "big-endian", error=UnsupportedModel)
    refuse(tmp_path, header(1, 0, entry(kind=99) + b"\0" * 99), "`t`", "type 99", error=UnsupportedModel)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="got a pipe or a device"):
        open_model(tmp_path / "pipe.gguf")


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(ModelNotFound, match=r"none\.gguf"):
        GgufFile.open(tmp_path / "none.gguf")


def write_parts(tmp_path, count=3):
    paths = []
    for number in range(count):
        metadata = {"split.no": ("u16", number), "split.count": ("u16", count), "split.tensors.count": ("i32", count)}
        tensors = {f"t{number}": np.full(4, number, np.float32)}
        paths.append(write_gguf(tmp_path / f"m-{number + 1:05}-of-{count:05}.gguf", metadata, tensors))
    return paths


def test_any_part_opens_the_whole_model(tmp_path):
    for path in write_parts(tmp_path):
        file = GgufFile.open(path)
        assert sorted(file.tensors) == ["t0", "t1", "t2"]
        np.testing.assert_array_equal(file.tensors["t2"].data.view(np.float32), [2, 2, 2, 2])
        file.release(file.tensors["t2"])
        assert file.path.name == "m-00001-of-00003.gguf"


def test_a_missing_part_is_named(tmp_path):
    paths = write_parts(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelNotFound, match=r"m-00002-of-00003\.gguf"):
        GgufFile.open(paths[0])


def test_mixed_up_parts_are_refused(tmp_path):
    paths = write_parts(tmp_path)
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(ModelFileError, match="part 2 of 3; got 1 of 3"):
        GgufFile.open(paths[0])
    renamed = paths[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFileError, match="NAME-00001-of-00003"):
        GgufFile.open(renamed)


def test_the_same_tensor_in_two_parts_is_refused(tmp_path):
    paths = write_parts(tmp_path, 2)
    metadata = {"split.no": ("u16", 1), "split.count": ("u16", 2)}
    write_gguf(paths[1], metadata, {"t0": np.ones(4, np.float32)})
    with pytest.raises(ModelFileError, match="`t0` in two"):
        GgufFile.open(paths[0])


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3", "smollm3"])
def test_tiny_models_of_every_family_open(tmp_path, family):
    file = open_model(write_tiny(tmp_path / "m.gguf", family, kind=GgmlType.Q8_0))
    assert file.spec.architecture == family
    assert file.spec.vocab == 256


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("blk.1.ffn_up.weight"), "`blk.1.ffn_up.weight` of shape (96, 64); it is missing"),
        (lambda t: t.update({"output_norm.weight": np.ones(32)}), "(64,) for tensor `output_norm.weight`; got (32,)"),
        (lambda t: t.update({"blk.0.ffn_gate_exps.weight": np.ones(32)}), "got also `blk.0.ffn_gate_exps.weight`"),
        (lambda t: t.update({"blk.0.ffn_down.bias": np.ones(64)}), "got also `blk.0.ffn_down.bias`"),
        (
            lambda t: t.update({"blk.0.attn_q.weight": (GgmlType.IQ1_S, (64, 256), b"\0" * 3200)}),
            "wanted shape (64, 64) for tensor `blk.0.attn_q.weight`; got (64, 256)",
        ),
    ],
)
def test_tensors_that_do_not_make_the_model_are_named(tmp_path, change, words):
    metadata = tiny_metadata()
    tensors = tiny_tensors(metadata)
    change(tensors)
    with pytest.raises(PacelineError) as caught:
        open_model(write_gguf(tmp_path / "m.gguf", metadata, tensors))
    assert words in str(caught.value)


def test_a_big_vocabulary_is_read_fast(tmp_path):
    words = [f"token{number}" for number in range(150_000)]
    path = write_gguf(tmp_path / "v.gguf", {"tokens": words, "merges": words}, {})
    start = time.perf_counter()
    with GgufFile.open(path) as file:
        seconds = time.perf_counter() - start
        assert file.metadata["tokens"] == words
    assert seconds < 1.0, seconds  # 0.1 on the machine this was written on


def sound_bytes(tmp_path):
    tensors = {"a": np.ones((2, 32), np.float32), "b": packed(np.ones((2, 32), np.float32), GgmlType.Q4_0)}
    return write_gguf(tmp_path / "fuzz.gguf", ALL_KINDS | {"general.alignment": 16}, tensors).read_bytes()


def parses_or_refuses(path, raw):
    rewrite(path, raw)
    try:
        with GgufFile.open(path) as file:
            for tensor in file.tensors.values():
                assert tensor.data.nbytes <= len(raw)
    except PacelineError:
        pass


def test_truncated_anywhere_a_file_is_refused(tmp_path):
    raw, path = sound_bytes(tmp_path), tmp_path / "cut.gguf"
    for length in range(len(raw) - 1):
        rewrite(path, raw[:length])
        with pytest.raises(ModelFileError):
            GgufFile.open(path)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_never_crash_the_reader(tmp_path, seed):
    raw, path, rng = sound_bytes(tmp_path), tmp_path / "fuzzed.gguf", random.Random(seed)
    interesting = [0, 1, 0x7F, 0xFF, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    for _ in range(500):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(4, len(raw) - 8)
            kind = rng.randrange(4)
            if kind == 0:
                damaged[at] = rng.randrange(256)
            elif kind == 1:
                damaged[at : at + 8] = struct.pack("<Q", rng.choice(interesting))
            elif kind == 2:
                damaged[at : at + 8] = struct.pack("<Q", rng.getrandbits(64))
            else:
                del damaged[at : at + rng.randint(1, 16)]
        parses_or_refuses(path, bytes(damaged))


def test_huge_counts_at_every_place_are_refused_without_allocating(tmp_path):
    import tracemalloc

    raw, path = sound_bytes(tmp_path), tmp_path / "huge.gguf"
    tracemalloc.start()
    for at in range(4, 900, 3):
        parses_or_refuses(path, raw[:at] + struct.pack("<Q", 1 << 40) + raw[at + 8 :])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20, peak
