"""`--draft auto` mixes all that need no setting, and a known model's smaller sibling if it is here."""

import pytest
from pairs import loaded, setting_of, target_of

import paceline.draft.auto as auto
import paceline.engine.loading  # noqa: F401  (registers every name)
from paceline.config import MIX
from paceline.draft.base import lookup, names
from paceline.draft.mix import MixDrafter
from paceline.model import sources
from paceline.testing import TinyModel


def test_known_by_name():
    assert lookup("auto") is auto.make_auto
    assert {"auto", "off", "ngram", "suffix", "recycle", "predicted"} <= set(names())


def test_without_a_sibling_it_needs_no_model():
    target = target_of()
    drafter = auto.make_auto(setting_of(target, []), "")
    assert isinstance(drafter, MixDrafter)
    assert drafter.sources == ("predicted", "suffix", "recycle")
    assert drafter.sources[1:] == MIX, "what is proposed as company for a model"


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
