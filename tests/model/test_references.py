"""Small random models of many families say what transformers says with them; see make_references.py."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from converted import FILES, as_gguf
from gguf_writer import write_gguf
from make_references import OWN_HEAD, weight_of
from test_safetensors import encode
from tiny import PlainModel, feed, pool_of

from paceline.formats.files import open_model
from paceline.model.native import NativeModel

HERE = Path(__file__).parent
SAID = json.loads((HERE / "references.json").read_text())
LOGITS = np.load(HERE / "references.npz")
READS = {"phi3 beyond its first context": 64}  # the context asked for, which chooses between sets of RoPE divisors
MOST = {"gemma": 1e-5}  # its scores are large, and the cache rounds keys to sixteen bits


def folder_of(path, name):
    case = SAID["cases"][name]
    path.mkdir()
    (path / "config.json").write_text(json.dumps(case["config"]))
    (path / "tokenizer.json").write_text("{}")
    tensors = {key: weight_of(key, tuple(shape)) for key, shape in case["shapes"].items()}
    (path / "model.safetensors").write_bytes(encode(tensors))
    return path


def divergence(wanted, got):
    """Return the KL divergence of each row's distribution, float64."""
    p, q = (one - np.logaddexp.reduce(one, axis=1, keepdims=True) for one in map(np.float64, (wanted, got)))
    return (np.exp(p) * (p - q)).sum(axis=1)


def logits_of(path, context=None):
    file = open_model(path)
    model = NativeModel(file, pool_of(), quant="f32", context=context)
    cache = model.new_cache(64)
    return feed(model, cache, cache.open(), np.array(SAID["tokens"], np.int32))


@pytest.mark.parametrize("name", sorted(SAID["cases"]))
def test_a_family_says_what_transformers_says(tmp_path, name):
    found = divergence(LOGITS[name], logits_of(folder_of(tmp_path / "m", name), READS.get(name)))
    assert found.mean() < MOST.get(name, 1e-6), found.mean()


@pytest.mark.parametrize("name", sorted(SAID["cases"]))
def test_so_does_a_plain_forward_of_the_same_numbers(tmp_path, name):
    """In float64, with keys and values as they are, nothing is left but the reference's own rounding."""
    model = PlainModel.of(open_model(folder_of(tmp_path / "m", name)), kept=np.float64, context=READS.get(name))
    cache = model.new_cache(64)
    got = feed(model, cache, cache.open(), np.array(SAID["tokens"], np.int32))
    assert divergence(LOGITS[name], got).mean() < 1e-9


@pytest.mark.parametrize("name", sorted(FILES))
def test_so_does_a_gguf_file_of_it(tmp_path, name):
    path = write_gguf(tmp_path / "m.gguf", *as_gguf(name, SAID["cases"][name]))
    found = divergence(LOGITS[name], logits_of(path, READS.get(name)))
    assert found.mean() < MOST.get(name, 1e-6), found.mean()


def test_a_wrong_number_would_be_seen(tmp_path):
    folder = folder_of(tmp_path / "m", "mistral")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"sliding_window": 16}))
    assert divergence(LOGITS["mistral"], logits_of(folder)).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ministral3 far behind its first context", {"query_growth": 0.0}),
        ("ministral3 far behind its first context", {"query_period": 48}),
        ("granite", {"logit_scale": 1.0}),
        ("granite", {"attention_scale": 32**-0.5}),
        ("granite", {"embed_scale": 12.0}),
        ("glm4", {"rope_interleaved": False}),
        ("olmo3", {"rope_tables": (0, 0, 0, 0)}),
        ("exaone4 with windows", {"rope_tables": (0, 0, 0, 0)}),
        ("phi3 with windows", {"windows": (0, 0, 0, 0)}),
    ],
)
def test_each_trait_of_a_family_would_be_missed(tmp_path, name, changes):
    file = open_model(folder_of(tmp_path / "m", name))
    file.spec = replace(file.spec, **changes)
    model = PlainModel.of(file, kept=np.float64)
    cache = model.new_cache(64)
    assert divergence(LOGITS[name], feed(model, cache, cache.open(), np.array(SAID["tokens"], np.int32))).mean() > 1e-5


def test_the_head_that_a_config_denies_is_in_the_file():
    assert all("lm_head.weight" in SAID["cases"][name]["shapes"] for name in OWN_HEAD)
