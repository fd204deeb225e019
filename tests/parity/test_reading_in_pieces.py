"""A draft model reads a long text in pieces beside other replies, and knows it as if it had read it at once."""

import math

import numpy as np
import pytest
from parity_tools import engine_of

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.model.state import BEGIN, TextState
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Request
from paceline.testing import TinyModel

VOCAB, CONTEXT = 16, 1024
TEXT = np.random.default_rng(3).integers(VOCAB, size=600).astype(np.int32)


class Paced(TinyModel):
    """A model whose forwards take a millisecond a row, by a clock of its own."""

    now = 0.0

    def forward(self, batch, cache, taps=()):
        self.now += 1e-3 * len(batch.tokens)
        return super().forward(batch, cache, taps=taps)


def model_of(kind=TinyModel):
    return kind(VOCAB, reach=None, context=CONTEXT, seed=2)


def test_a_text_is_read_in_pieces_that_fit_the_time_and_is_the_same_in_the_end():
    model = model_of(Paced)
    state = TextState(model, context=CONTEXT, slots=1, name="d", clock=lambda: model.now)
    rounds, rest = [], None
    while rest is None:
        before = model.now
        state.allow([Budget(4, 4, reading=0.05)])
        rest = state.read(0, TEXT, 4)
        rounds.append(model.now - before)
    assert len(rounds) > 600 * 1e-3 / 0.05 - 1
    assert max(rounds) <= max(0.05, 1e-3 * BEGIN) * 1.5
    whole = TextState(model_of(), context=CONTEXT, slots=1, name="d")
    assert len(whole.read(0, TEXT, 4)) >= len(rest)
    assert state.held(0) == TEXT[: len(TEXT) - len(rest)].tolist()
    assert state.tokens_read == len(TEXT) - len(rest)


def test_a_drafter_tells_that_it_only_read():
    model = model_of(Paced)
    drafter = ModelDrafter(model, context=CONTEXT, clock=lambda: model.now)
    view = View(0, TEXT, SamplingParams(), 600)
    (draft,) = drafter.propose([view], [Budget(4, 4, reading=0.01)])
    assert not draft.drafted
    assert drafter.spent["model"].steps == 0
    assert 0 < drafter.spent["model"].read < 600
    (draft,) = drafter.propose([view], [Budget(4, 4)])
    assert draft.drafted == 4


@pytest.mark.parametrize("seconds", [0.0, 1e-4, 1e6])
def test_replies_are_the_same_however_long_models_may_read(seconds, monkeypatch):
    monkeypatch.setattr(Scheduler, "patience", lambda self, sequences, reading: seconds)
    requests = [Request(i, TEXT[i : 40 + 90 * i].tolist(), SamplingParams(max_tokens=30)) for i in range(4)]
    target = model_of()
    drafter = ModelDrafter(model_of(), context=CONTEXT)
    engine = engine_of(target, drafter, context=CONTEXT)
    for one in requests:
        engine.add(one)
    said = {one.id: [] for one in requests}
    for event in engine.run():
        said[event.request] += event.tokens
    for one in requests:
        alone = engine_of(target, context=CONTEXT)
        alone.add(one)
        assert said[one.id] == [token for event in alone.run() for token in event.tokens]


def test_time_is_short_only_beside_texts_that_go_on():
    scheduler = Scheduler(model_of().new_cache(1024), 8)
    assert scheduler.patience(3, 0) == scheduler.patience(2, 2) == math.inf
    assert scheduler.patience(2, 1) < 0.1
