"""A smaller model of the target's family is found by what files say, on this disk only, and nothing else is taken."""

import json
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from gguf_writer import tiny_metadata, tiny_tensors, write_gguf

from paceline import LLM, SamplingParams, run_doctor
from paceline.formats.companions import companions, head_of
from paceline.formats.gguf import peek
from tests.text.conftest import byte_level


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty place for fetched models."""
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "models"
    folder.mkdir(parents=True)
    return folder


def write(path, *, layers=2, family="llama", line="Tiny", extra=(), last="", head=b""):
    """Write a model: more layers are more bytes, `extra` tokens pad its vocabulary, `last` is another token in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    vocabulary = byte_level()
    tokens = [*vocabulary["tokenizer.ggml.tokens"], *extra]
    if last:
        tokens[7] = last
    types = [*vocabulary.get("tokenizer.ggml.token_type", [1] * (len(tokens) - len(extra))), *[5] * len(extra)]
    metadata = {"general.basename": line, **tiny_metadata(family, layers=layers, heads=2, kv_heads=1)} | vocabulary
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    return write_gguf(path, metadata, tiny_tensors(metadata, vocab=len(tokens), seed=layers))


def write_folder(path, *, weights, vocab=100, tokenizer="{}", kind="llama"):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": kind, "vocab_size": vocab}))
    (path / "tokenizer.json").write_text(tokenizer)
    (path / "model.safetensors").write_bytes(bytes(weights))
    return path


def found(target):
    return [one.path.name for one in companions(target)]


def test_a_smaller_model_of_the_family_is_found_anywhere(tmp_path, home):
    target = write(tmp_path / "own" / "big.gguf", layers=8)
    assert found(target) == []
    write(tmp_path / "own" / "beside.gguf", layers=2)
    write(home / "fetched.gguf", layers=1)
    write(home / "hf" / "org--name" / "hub.gguf", layers=3, extra=["<pad0>", "<pad1>"])
    assert found(target) == ["fetched.gguf", "beside.gguf", "hub.gguf"], "the smallest first"
    copy = write(home / "hf" / "org--big" / "big.gguf", layers=8)
    assert found(copy) == ["fetched.gguf", "hub.gguf"], "and for a model of the hub what was fetched"
    assert 0 < float(companions(target)[0].reason.split()[-4]) < 0.3
    assert found(tmp_path / "own" / "beside.gguf") == [], "which is less than twice as large as the others"


def test_its_own_line_comes_before_a_smaller_one_of_another(tmp_path):
    target = write(tmp_path / "big.gguf", layers=8, line="Coder")
    write(tmp_path / "general.gguf", layers=1, line="General")
    write(tmp_path / "coder.gguf", layers=2, line="coder")
    assert found(target) == ["coder.gguf", "general.gguf"]


@pytest.mark.parametrize(
    "other",
    [
        {"layers": 8},
        {"layers": 6},
        {"layers": 20},
        {"last": "another"},
        {"family": "qwen2"},
        {"extra": [f"<pad{i}>" for i in range(1025)]},
    ],
    ids=lambda other: " ".join(other),
)
def test_models_as_large_or_unrelated_are_no_companions(tmp_path, other):
    target = write(tmp_path / "big.gguf", layers=8)
    write(tmp_path / "other.gguf", **{"layers": 1, **other})
    assert found(target) == []


def test_folders_go_by_their_numbers_and_tokenizer(tmp_path):
    target = write_folder(tmp_path / "big", weights=1000)
    write_folder(tmp_path / "small", weights=300, vocab=96)
    write_folder(tmp_path / "other tokenizer", weights=300, tokenizer="{ }")
    write_folder(tmp_path / "other kind", weights=300, kind="qwen2")
    write_folder(tmp_path / "as large", weights=600)
    assert found(target) == ["small"]


def test_junk_and_what_may_not_be_read_does_no_harm(tmp_path, home, monkeypatch):
    target = write(tmp_path / "big.gguf", layers=8)
    whole = write(tmp_path / "small.gguf", layers=1).read_bytes()
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "noise.gguf").write_bytes(np.random.default_rng(0).bytes(5000))
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    (tmp_path / "device.gguf").symlink_to("/dev/zero")
    (tmp_path / "part-00002-of-00003.gguf").write_bytes(whole)
    (tmp_path / "lost-00001-of-00003.gguf").write_bytes(whole)
    (tmp_path / "mmproj-small.gguf").write_bytes(whole)
    for cut in range(0, 4000, 97):
        (tmp_path / f"cut{cut}.gguf").write_bytes(whole[:cut])
    for name, said in (("config", "[]"), ("nonsense", "{"), ("no number", '{"vocab_size": "many"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(said)
        (tmp_path / name / "model.safetensors").write_bytes(b"1")
    closed = home / "hf"
    closed.mkdir()
    real = Path.iterdir

    def iterdir(self):
        if self == closed:
            raise PermissionError(self)
        return real(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert "small.gguf" in (names := found(target))
    assert all(name.startswith(("cut", "small")) for name in names), "a cut file may say all that is asked of it"
    (home.parent / "models").rename(home.parent / "elsewhere")
    (home.parent / "models").write_text("a file where the folder would be")
    assert "small.gguf" in found(target)
    assert found(tmp_path / "noise.gguf") == found(tmp_path / "missing.gguf") == []


def test_heads_are_read_and_no_more(tmp_path):
    target = write(tmp_path / "big.gguf", layers=8)
    small = write(tmp_path / "small.gguf", layers=1)
    metadata, count, first = peek(small)
    assert count == len(byte_level()["tokenizer.ggml.tokens"])
    assert "tokenizer.ggml.tokens" not in metadata
    assert first == byte_level()["tokenizer.ggml.tokens"][:2048]
    assert head_of(small) == head_of(target)
    for i in range(200):
        (tmp_path / f"{i}.gguf").symlink_to(small)
    started = perf_counter()
    assert len(companions(target)) == 201
    seconds = perf_counter() - started
    print(f"{1e6 * seconds / 200:.0f} us a file")
    assert seconds < 0.5, "some 0.2 ms a file"


def test_auto_drafts_with_a_companion_and_doctor_says_so(tmp_path, talker):
    small = tmp_path / "talker-small.gguf"
    target = write(tmp_path / "big.gguf", layers=8)
    write(small, layers=1)
    llm = LLM(target, control="fixed", draft_tokens=4, context=256)
    assert llm.setup.drafters == ("predicted", "suffix", "talker-small")
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    plain = LLM(target, draft="off", context=256).generate("abc", params)
    assert llm.generate("abc", params).token_ids == plain.token_ids
    said = run_doctor(llm, ["abc"])
    assert said["companion"]["path"] == str(small)
    assert "tokenizer of the target in 0." in said["companion"]["reason"]
    assert [(pair["draft"], pair["same"]) for pair in said["pairs"]] == [(str(small), True)]
    alone = LLM(talker, draft="ngram", context=256)
    assert run_doctor(alone, ["abc"])["companion"] is None
