"""`--draft auto` asks everybody who needs no asking for, and a known model's smaller sibling if it is here."""

import pytest
from pairs import loaded, setting_of, target_of

import paceline.draft.auto as auto
from paceline import LLM, SamplingParams
from paceline.choices import DRAFTERS
from paceline.draft.mix import MixDrafter
from paceline.model import sources
from paceline.testing import TinyModel


def test_known_by_name():
    assert DRAFTERS["auto"].factory == f"{auto.__name__}:{auto.make_auto.__name__}"
    assert {"auto", "off", "ngram", "suffix", "recycle", "predicted"} <= set(DRAFTERS)


def test_without_a_sibling_it_needs_no_model():
    target = target_of()
    drafter = auto.make_auto(setting_of(target, []), "")
    assert isinstance(drafter, MixDrafter)
    assert drafter.sources == ("predicted", "suffix", "recycle")


def test_the_sibling_of_a_known_model_joins(monkeypatch):
    target = target_of()
    small = loaded("small", TinyModel(16, seed=2), target.tokenizer.pieces)
    monkeypatch.setattr(auto, "companion", lambda name: "small" if name == target.name else None)
    drafter = auto.make_auto(setting_of(target, [small]), "")
    assert drafter.sources[:3] == ("predicted", "suffix", "recycle")
    assert len(drafter.sources) == 4


@pytest.mark.parametrize("is_here", [True, False])
def test_a_sibling_is_only_taken_from_this_disk(is_here, monkeypatch, tmp_path):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    folder = sources.models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if is_here:
        with (folder / "qwen2.5-coder-0.5b.gguf").open("wb") as file:
            file.truncate(sources.KNOWN["qwen2.5-coder-0.5b"].bytes)
    assert sources.companion("qwen2.5-coder-1.5b") == ("qwen2.5-coder-0.5b" if is_here else None)
    assert sources.companion("smollm2-135m") is None


def drafter_of(talker, draft, **settings):
    return LLM(talker, draft=draft, control="fixed", context=128, **settings).engine.parts.drafter


@pytest.mark.parametrize(
    ("draft", "sources"),
    [
        ("auto,ngram", ("predicted", "suffix", "recycle", "ngram")),
        ("ngram,auto", ("ngram", "predicted", "suffix", "recycle")),
        ("auto,MODEL", ("predicted", "suffix", "recycle", "other")),
        ("MODEL,auto,ngram", ("other", "predicted", "suffix", "recycle", "ngram")),
        ("auto,suffix", ("predicted", "recycle", "suffix")),
        ("auto,suffix:FILE", ("predicted", "recycle", "suffix", "corpus")),
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
    assert reply.tally.drafted_tokens > 0


def test_a_companion_makes_room_for_a_named_model_where_laws_are_weighed(monkeypatch, talker, tmp_path):
    small, named = (tmp_path / name for name in ("small.gguf", "named.gguf"))
    for path in (small, named):
        path.write_bytes(talker.read_bytes())
    monkeypatch.setattr(auto, "companion", lambda name: str(small))
    assert drafter_of(talker, f"auto,{named}").sources[-2:] == ("small", "named")
    assert drafter_of(talker, f"auto,{named}", verify="rejection").sources[-2:] == ("recycle", "named")
    assert drafter_of(talker, "auto", verify="rejection").sources[-1] == "small"
    assert drafter_of(talker, f"auto,{small}").sources[-2:] == ("recycle", "small"), "the same file drafts once"
