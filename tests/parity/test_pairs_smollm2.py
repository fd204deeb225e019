"""Drafts made of models on a real target: SmolLM2-135M, with Gemma 3 270M's other vocabulary where it is here."""

import pytest
from parity_tools import run

from paceline.core.request import SamplingParams
from paceline.draft.base import Setting
from paceline.draft.compose.staged import StagedDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.vocab import pairing as translate
from paceline.engine.loading import load, make_drafter
from paceline.formats.catalog import models_folder

FILE, OTHER = (models_folder() / f"{name}.gguf" for name in ("smollm2-135m", "gemma3-270m"))
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not there; `paceline pull smollm2-135m`")
PROMPTS = [
    "Repeat after me: one two three four. one two three four. one two",
    "안녕하세요",
    "for i in range(10):\n    ",
]
EACH = [
    SamplingParams(max_tokens=8),
    SamplingParams(0.8, seed=2, max_tokens=8),
    SamplingParams(0.8, seed=3, max_tokens=8),
]


@pytest.fixture(scope="module")
def target(loaded):
    return loaded(draft="off", context=1024)


def replies(target, drafter, prompts=PROMPTS, each=EACH, length=4):
    settings = {"tokenizer": target.tokenizer, "context": 512, "check": False, "length": length}
    ids = [target.encode(prompt) for prompt in prompts]
    if drafter is None:
        return [run(target.engine.parts.model, [p], one, **settings)[0] for p, one in zip(ids, each, strict=True)]
    return run(target.engine.parts.model, ids, each, drafter, **settings)


def test_layers_and_stages_of_the_target_itself_change_nothing(target):
    """Staged, the target drafts for itself: every guess is right, and those repeated took fewer forwards."""
    model = target.engine.parts.model
    plain = [said.key() for said in replies(target, None)]
    staged = replies(target, StagedDrafter(model, context=512))
    assert [said.key() for said in staged] == plain
    assert all(said.metrics.acceptance_rate == 1 for said in staged)
    shallow = replies(target, ModelDrafter(model.first_layers(28), context=512))
    assert [said.key() for said in shallow] == plain


@pytest.mark.slow
@pytest.mark.skipif(not OTHER.exists(), reason=f"{OTHER} is not there; `paceline pull gemma3-270m`")
@pytest.mark.parametrize("enough", [0.75, 1.1], ids=["tli", "slem"])
@pytest.mark.parametrize("name", ["GEMMA", "branches:GEMMA+SMOLLM", "ensemble:GEMMA+SMOLLM"])
def test_a_draft_of_another_vocabulary_changes_nothing(target, name, enough, monkeypatch):
    if enough > 1 and name.startswith("ensemble"):
        pytest.skip("an ensemble needs a distribution over the target's tokens")
    monkeypatch.setattr(translate, "ENOUGH", enough)
    pool = target.engine.parts.model._pool
    paths = {"GEMMA": OTHER, "SMOLLM": FILE}

    def load_draft(source, quant=None):
        return load(str(paths[source]), pool, quant="q4", context=None, progress=False)

    drafter = make_drafter(name, Setting(target.target, target.config, load_draft))
    each = [SamplingParams(0.8 * (i % 2), seed=i, max_tokens=24) for i in range(4)]
    prompts = [*PROMPTS, "Q: What is 2 + 2?\nA:"]
    plain, said = (replies(target, one, prompts, each) for one in (None, drafter))
    assert [one.key() for one in said] == [one.key() for one in plain]
    print(drafter.sources, [round(one.metrics.acceptance_rate, 2) for one in said])
    assert sum(one.metrics.accepted_tokens for one in said) > 5
