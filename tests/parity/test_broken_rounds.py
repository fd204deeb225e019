"""A round that is broken off loses no other reply a token, and a drafter that returns no draft is named."""

import sys

import numpy as np
import pytest
from parity_tools import engine_of, plain_tokens

from paceline.core.request import SamplingParams
from paceline.core.tree import Draft, TokenTree
from paceline.draft.base import Drafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.engine.sequence import Request
from paceline.engine.step import settle, settle_all, settle_alone, step
from paceline.errors import UsageError
from paceline.testing import TinyModel
from paceline.verify.coupled import CoupledVerifier

PARAMS = SamplingParams(max_tokens=12)


class Interrupted(CoupledVerifier):
    """Is interrupted once, when the second request is verified for the third time."""

    def __init__(self):
        self.turns = 0

    def verify(self, draft, logits, view):
        if view.id == 1:
            self.turns += 1
            if self.turns == 3:
                raise KeyboardInterrupt
        return super().verify(draft, logits, view)


def test_an_interrupt_loses_the_others_nothing():
    model = TinyModel(16, reach=None)
    prompts = {i: [1 + i, 2, 3] for i in range(3)}
    engine = engine_of(model, NgramDrafter(), verifier=Interrupted())
    for i, prompt in prompts.items():
        engine.add(Request(i, prompt, PARAMS))
    said, ends, interrupts = {i: [] for i in prompts}, {}, 0
    while not engine.is_idle or engine.parts.owed:
        try:
            events = engine.step()
        except KeyboardInterrupt:
            interrupts += 1
            continue
        for event in events:
            said[event.request] += event.tokens
            if event.finish_reason:
                ends[event.request] = event
    assert interrupts == 1
    for i in (0, 2):
        assert said[i] == plain_tokens(model, prompts[i], PARAMS)[3:]
    assert ends[1].finish_reason == "error"
    assert "broken off" in str(ends[1].error)
    engine.cache.check()
    assert engine.cache.held() == 0


def interrupted_at(count, engine):
    """Play one round that is interrupted at its `count`-th line; return its events and whether it was."""
    watched, left = {f.__code__ for f in (step, settle_all, settle_alone, settle)}, [count]

    def trace(frame, event, argument):
        if frame.f_code not in watched:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return engine.step(), False
    except KeyboardInterrupt:
        return [], True
    finally:
        sys.settrace(before)


def test_an_interrupt_at_any_line_leaves_a_round_consistent():
    model = TinyModel(16, reach=None)
    prompts = {i: [1 + i, 2, 3] for i in range(3)}
    plain = {i: plain_tokens(model, prompt, PARAMS)[3:] for i, prompt in prompts.items()}
    for count in range(1, 200):
        engine = engine_of(model, NgramDrafter())
        for i, prompt in prompts.items():
            engine.add(Request(i, prompt, PARAMS))
        said, ends = {i: [] for i in prompts}, []
        events = [*engine.step(), *engine.step()]
        last, was_interrupted = interrupted_at(count, engine)
        for event in [*events, *last, *engine.run()]:
            assert event.request not in ends
            said[event.request] += event.tokens
            if event.finish_reason:
                ends.append(event.request)
                assert event.finish_reason == "length" or "broken off" in str(event.error)
        assert sorted(ends) == [0, 1, 2]
        cut = [i for i in prompts if said[i] != plain[i]]
        assert len(cut) <= was_interrupted
        assert all(said[i] == plain[i][: len(said[i])] for i in prompts)
        engine.cache.check()
        assert engine.cache.held() == 0
        if not was_interrupted:
            return
    raise AssertionError("a round has more lines than were tried")


def chain(*tokens, parents=None, guess=None, source=None):
    count = len(tokens)
    parents = np.arange(-1, count - 1) if parents is None else np.array(parents)
    tree = TokenTree(np.array(tokens, np.int32), parents.astype(np.int32))
    guess = np.ones(count if guess is None else guess, np.float32)
    return Draft(tree, guess, np.full(count, source or 0, np.int8))


@pytest.mark.parametrize(("make", "says"), [
    (lambda last: chain(last + 1, 2), "root"), (lambda last: chain(last, 99), "from 0 to 15"),
    (lambda last: chain(last, -5), "from 0 to 15"),
    (lambda last: chain(last, 2, 3, parents=[-1, 2, 1]), "before their"),
    (lambda last: chain(last, 2, parents=[-1, -1]), "before their"), (lambda last: chain(last, 2, guess=1), "a guess"),
    (lambda last: chain(last, 2, source=4), "sources"), (lambda last: chain(last, *[2] * 70), "at most 64"),
    (lambda last: chain(), "root"),
])  # fmt: skip
def test_what_is_no_draft_is_refused_by_name(make, says):
    class Careless(Drafter):
        sources = ("careless",)

        def propose(self, views, budgets):
            return [make(int(view.tokens[-1])) for view in views]

    engine = engine_of(TinyModel(16, reach=None), Careless())
    engine.add(Request(0, [1, 2, 3], PARAMS))
    with pytest.raises(UsageError, match="careless") as caught:
        list(engine.run())
    assert says in str(caught.value)


def test_a_sequences_tokens_are_read_only():
    class Writer(NgramDrafter):
        def propose(self, views, budgets):
            views[0].tokens[-1] = 9
            return super().propose(views, budgets)

    engine = engine_of(TinyModel(16, reach=None), Writer())
    engine.add(Request(0, [1, 2, 3], PARAMS))
    with pytest.raises(ValueError, match="read-only"):
        engine.step()
