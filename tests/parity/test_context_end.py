"""Near the context's end guesses take the room left; a draft that reads as much as its target warns of nothing."""

import dataclasses
import logging

import numpy as np
import pytest
from pairs import overlapping, permuted, setting_of, target_of
from parity_tools import run

from paceline.config import LLMConfig
from paceline.core.request import SamplingParams
from paceline.draft.base import Loaded
from paceline.draft.compose.staged import StagedDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.vocab.pairing import drafter_for
from paceline.draft.vocab.retokenise import RetokenisingDrafter
from paceline.engine.loading import load_drafter
from paceline.testing import ByteTokenizer, TinyModel

CONTEXT = 64


def drafters():
    target = target_of(context=CONTEXT)
    same = TinyModel(16, reach=4, seed=0, context=CONTEXT)
    yield target, ModelDrafter(same, context=CONTEXT)
    yield target, StagedDrafter(same, context=CONTEXT)
    twin = permuted(target, name="twin")
    yield target, drafter_for(setting_of(target), twin)
    yield target, drafter_for(setting_of(target), dataclasses.replace(overlapping(context=CONTEXT), name="other"))
    yield target, RetokenisingDrafter(target, target, slots=8, name="by text")


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("length", [1, 4, 8, 16])
@pytest.mark.parametrize("prompt", [20, 50, 59, 61, 62])
def test_a_draft_with_the_targets_context_reads_all_of_it(kind, length, prompt, caplog):
    target, drafter = list(drafters())[kind]
    readers = [drafter.reader] if hasattr(drafter, "reader") else [voice.reader for voice in drafter.voices]
    starts, texts = set(), np.random.default_rng(1).integers(target.model.spec.vocab, size=prompt).tolist()
    own = drafter.observe

    def observe(view, draft, verified):
        starts.update(known.start for reader in readers for known in reader._texts.values())
        own(view, draft, verified)

    drafter.observe = observe
    params = SamplingParams(max_tokens=100)
    (plain,) = run(target.model, [texts], params, context=CONTEXT, tokenizer=target.tokenizer)
    with caplog.at_level(logging.WARNING):
        (said,) = run(
            target.model, [texts], params, drafter, context=CONTEXT, length=length, tokenizer=target.tokenizer
        )
    assert said.key() == plain.key()
    assert said.finish_reason == "length"
    assert starts <= {0}
    assert not caplog.records, [record.getMessage() for record in caplog.records]
    if prompt < 61:
        assert said.metrics.drafted_tokens > 0


@pytest.mark.parametrize(("prompt", "count"), [(59, 4), (59, 60), (63, 60), (70, 4)])
def test_a_shorter_draft_fills_its_context_before_starting_over(prompt, count, caplog):
    target = target_of(context=256)
    drafter = ModelDrafter(TinyModel(16, reach=4, seed=0, context=64), context=256)
    params = SamplingParams(max_tokens=count)
    texts = np.random.default_rng(1).integers(16, size=prompt).tolist()
    (plain,) = run(target.model, [texts], params, context=256)
    with caplog.at_level(logging.WARNING):
        (said,) = run(target.model, [texts], params, drafter, context=256, length=8)
    assert said.key() == plain.key()
    assert len(caplog.records) == (prompt + count > 64)
    assert said.metrics.drafted_tokens > 0


def test_a_draft_gets_its_targets_context_where_it_can():
    tokenizer = ByteTokenizer.letters(16)
    target = Loaded("big", TinyModel(16, context=20_000), tokenizer, 16_000)

    def load(source, pool, *, quant, context, progress):
        assert context is None
        return Loaded(source, TinyModel(16, context=int(source)), tokenizer, min(int(source), 8192))

    for reads, wanted in ((20_000, 16_000), (10_000, 10_000), (128, 128)):
        config = LLMConfig(draft=str(reads))
        assert load_drafter(config, target, None, progress=False, load=load).reader.context == wanted
