"""`--draft auto` mixes all that need no setting, and a known model's smaller sibling if it is here."""

from dataclasses import replace
from pathlib import Path

import pytest
from pairs import loaded, setting_of, target_of
from talker import write_talker

import paceline.draft.auto as auto
from paceline import LLM, SamplingParams
from paceline.choices import DRAFTERS
from paceline.draft.compose.mix import MixDrafter
from paceline.errors import ModelFileError
from paceline.formats.companions import Companion
from paceline.testing import TinyModel


def test_known_by_name():
    assert DRAFTERS["auto"].factory == f"{auto.__name__}:{auto.make_auto.__name__}"
    assert {"auto", "off", "ngram", "suffix", "recycle", "predicted"} <= set(DRAFTERS)


def test_without_a_sibling_it_needs_no_model():
    target = target_of()
    drafter = auto.make_auto(setting_of(target, []), "")
    assert isinstance(drafter, MixDrafter)
    assert drafter.sources == ("predicted", "suffix")


def test_a_companion_joins_if_readable_and_of_the_same_tokens(monkeypatch):
    target = replace(target_of(), path=Path("target.gguf"))
    small = loaded("small", TinyModel(16, seed=2), target.tokenizer.pieces)
    other = loaded("other", TinyModel(16, seed=2), target.tokenizer.pieces[::-1])
    found = [Companion(Path(name), 1, "because") for name in ("lost", "other", "small")]
    monkeypatch.setattr(auto, "companions", lambda path: found)

    def load(source, quant=None):
        if source == "lost":
            raise ModelFileError("it is damaged")
        return {"small": small, "other": other}[source]

    drafter = auto.make_auto(replace(setting_of(target, []), load=load), "")
    assert drafter.sources == ("predicted", "suffix", "small")


def drafter_of(talker, draft, **settings):
    return LLM(talker, draft=draft, control="fixed", context=128, **settings).engine.parts.drafter


@pytest.mark.parametrize(
    ("draft", "sources"),
    [
        ("auto,ngram", ("predicted", "suffix", "ngram")),
        ("ngram,auto", ("ngram", "predicted", "suffix")),
        ("auto,MODEL", ("predicted", "suffix", "other")),
        ("MODEL,auto,ngram", ("other", "predicted", "suffix", "ngram")),
        ("auto,suffix", ("predicted", "suffix")),
        ("auto,suffix:FILE", ("predicted", "suffix", "corpus")),
    ],
)
def test_auto_and_a_name_are_autos_members_and_that_name(talker, tmp_path, draft, sources):
    other = tmp_path / "other.gguf"
    other.write_bytes(talker.read_bytes())
    drafter = drafter_of(talker, draft.replace("MODEL", str(other)).replace("FILE", str(tmp_path / "kept")))
    assert drafter.sources == sources


def test_auto_and_a_name_write_what_plain_decoding_writes(talker):
    params = SamplingParams(0.7, seed=5, max_tokens=50, ignore_eos=True)
    plain = LLM(talker, draft="off", context=128).generate("a b a b a", params)
    reply = LLM(talker, draft="auto,ngram", control="fixed", context=128).generate(
        "a b a b a", params, prediction="a b"
    )
    assert reply.token_ids == plain.token_ids
    assert reply.metrics.drafted_tokens > 0


def test_a_named_model_replaces_a_companion_where_distributions_are_weighed(monkeypatch, talker, tmp_path):
    small, named = (tmp_path / name for name in ("small.gguf", "named.gguf"))
    for path in (small, named):
        path.write_bytes(talker.read_bytes())
    monkeypatch.setattr(auto, "companions", lambda path: [Companion(small, 1, "because")])
    assert drafter_of(talker, f"auto,{named}").sources[-2:] == ("small", "named")
    assert drafter_of(talker, f"auto,{named}", verify="rejection").sources[-2:] == ("suffix", "named")
    assert drafter_of(talker, "auto", verify="rejection").sources[-1] == "small"
    assert drafter_of(talker, f"auto,{small}").sources[-2:] == ("suffix", "small"), "the same file drafts once"


def test_a_companion_too_large_for_memory_is_left_out(monkeypatch, talker, tmp_path):
    small = tmp_path / "small.gguf"
    small.write_bytes(talker.read_bytes())
    monkeypatch.setattr(auto, "companions", lambda path: [Companion(small, 1000, "because")])
    for free, last in (((2000, 999), "suffix"), ((2000, 1000), "small"), (None, "small")):
        monkeypatch.setattr(auto, "memory_bytes", lambda free=free: free)
        assert drafter_of(talker, "auto").sources[-1] == last


def test_times_are_kept_for_the_companion_they_were_measured_with(monkeypatch, talker, tmp_path):
    small, keys = tmp_path / "small.gguf", []
    monkeypatch.setattr(auto, "companions", lambda path: [Companion(small, 1000, "because")])
    for seed in (1, 2):
        small.unlink(missing_ok=True)
        write_talker(small, seed=seed)
        keys.append(LLM(talker, control="fixed", context=128).calibration_key)
    assert keys[0] != keys[1]
    assert keys[0] == keys[1] | {"draft": keys[0]["draft"]}
