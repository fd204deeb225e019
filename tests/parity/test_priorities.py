"""Priorities, deadlines and cancels: who runs when changes, and no token does; every request ends once."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity_tools import engine_of
from test_scheduling import CONTEXT, WHOLE, alone, model_of, pooled

from paceline.core.request import SamplingParams
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.engine import Engine
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Request
from paceline.testing import TinyModel

LONG = SamplingParams(max_tokens=120, ignore_eos=True)


class Play:
    """Plays an engine by a clock of its own; recounts everything after each round."""

    def __init__(self, engine):
        self.engine, self.now, self.said, self.ends = engine, 0.0, {}, {}
        object.__setattr__(engine.parts, "clock", lambda: self.now)

    def see(self, event):
        assert event.request not in self.ends, "an event after the end"
        self.said.setdefault(event.request, []).extend(event.tokens)
        if event.finish_reason:
            self.ends[event.request] = event.finish_reason

    def step(self, count=1):
        for _ in range(count):
            for event in self.engine.step():
                self.see(event)
            self.now += 1.0
            self.engine.check()

    def finish(self, most=5000):
        while not self.engine.is_idle or self.engine.parts.owed:
            self.step()
            assert self.now < most, "the rounds do not end"
        self.engine.check()
        assert self.engine.cache.held() == 0


def test_a_request_of_priority_takes_the_place_of_the_least_and_no_reply_changes():
    model = model_of()
    play = Play(pooled(4 * WHOLE, model=model, slots=2))
    usual, least = Request(0, [1, 2, 3], LONG), Request(1, [4, 5], LONG, priority=1)
    urgent = Request(2, [6], LONG, priority=-1)
    for one in (least, usual):
        play.engine.add(one)
    play.step(5)
    play.engine.add(urgent)
    before = {name: len(said) for name, said in play.said.items()}
    play.step(4)
    assert len(play.said[1]) == before[1], "the least one waits"
    assert len(play.said[0]) > before[0], "the other one goes on"
    assert play.said[2]
    play.finish()
    for one in (usual, least, urgent):
        assert play.said[one.id] == alone(one, model)


def test_those_of_one_priority_come_first_come_first_served():
    play = Play(pooled(4 * WHOLE, slots=1))
    for i, priority in enumerate([0, 1, 0, -1]):
        play.engine.add(Request(i, [1 + i], SamplingParams(max_tokens=3, ignore_eos=True), priority=priority))
    play.finish()
    assert [*play.ends] == [3, 0, 2, 1]


def test_a_reply_whose_time_is_over_ends_with_what_it_has():
    model = model_of()
    play = Play(pooled(WHOLE, model=model, slots=1))
    late = Request(0, [1, 2, 3], LONG, deadline=6.0)
    waiting = Request(1, [4], LONG, deadline=3.0)
    play.engine.add(late)
    play.engine.add(waiting)
    play.finish()
    assert play.ends == {0: "deadline", 1: "deadline"}
    assert not play.said.get(1), "it never ran"
    assert play.said[0] == alone(Request(0, [1, 2, 3], LONG), model)[: len(play.said[0])]
    assert play.said[0]


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 3),  # rounds before it comes
        st.lists(st.integers(0, 15), min_size=1, max_size=90),
        st.integers(1, 90),  # tokens
        st.sampled_from([0, 0, 0, -1, 2]),  # priority
        st.sampled_from([math.inf, math.inf, 4.0, 30.0]),  # rounds until its deadline
        st.sampled_from([None, None, None, 2, 9]),  # rounds until it is cancelled
        st.sampled_from([0.0, 0.8]),
    ),
    min_size=1,
    max_size=8,
)


def schedule(arrivals, pages, slots, drafter=None, model=None):
    """Play requests as they come and go; return what was played and the requests."""
    model = model or model_of()
    play, requests, leaving = Play(pooled(WHOLE + pages, drafter, model=model, slots=slots)), [], []

    def leave():
        for when, name in [*leaving]:
            if when <= play.now:
                leaving.remove((when, name))
                if (event := play.engine.cancel(name)) is not None:
                    play.see(event)
                play.engine.check()

    for i, (wait, prompt, tokens, priority, seconds, cancelled, temperature) in enumerate(arrivals):
        for _ in range(wait):
            play.step()
            leave()
        params = SamplingParams(temperature, seed=i, max_tokens=tokens, ignore_eos=True)
        requests.append(Request(i, prompt, params, priority=priority, deadline=play.now + seconds))
        play.engine.add(requests[-1])
        if cancelled is not None:
            leaving.append((play.now + cancelled, i))
    while leaving:
        play.step()
        leave()
    play.finish()
    return play, requests, model


def judged(play, requests, model):
    assert play.ends.keys() == {one.id for one in requests}
    for one in requests:
        said, wanted = play.said.get(one.id, []), alone(Request(one.id, one.prompt, one.params), model)
        if play.ends[one.id] in ("deadline", "cancelled"):
            assert said == wanted[: len(said)], one
        else:
            assert said == wanted, one


@settings(max_examples=40, deadline=None)
@given(ARRIVALS, st.integers(0, 3), st.integers(1, 4))
def test_any_schedule_leaves_every_reply_what_it_is_alone(arrivals, pages, slots):
    judged(*schedule(arrivals, pages, slots))


def test_a_draft_model_beside_any_schedule():
    draft = ModelDrafter(TinyModel(16, reach=None, context=1024, seed=2), context=CONTEXT)
    arrivals = [(i % 3, [1 + i] * (7 * i + 1), 60, -(i % 2), 20.0 if i == 3 else math.inf, None, 0.8) for i in range(6)]
    judged(*schedule(arrivals, 0, 3, draft))


def broken(name, monkeypatch):
    expire, cancel = Engine._expire, Engine.cancel

    def twice(self):
        expire(self)
        self.parts.owed.extend([*self.parts.owed])

    def keeps_pages(self, request):
        sequence = self.parts.scheduler.find(request)
        if sequence is not None:
            self.cache.extend(self.cache.open([1, 2, 3]), 3)
        return cancel(self, request)

    def gives_no_way(self):
        admitted = []
        while self._waiting and len(self._running) < self.slots and self._opens(self._waiting[0]):
            admitted.append(self._waiting.pop(0))
            self._running.append(admitted[-1])
            self._running.sort(key=lambda one: one.rank)
        return admitted

    method, owner, bug = {
        "two ends": ("_expire", Engine, twice),
        "keeps pages": ("cancel", Engine, keeps_pages),
        "no deadline": ("_expire", Engine, lambda self: None),
        "gives no way": ("admit", Scheduler, gives_no_way),
    }[name]
    monkeypatch.setattr(owner, method, bug)


CANCELLED = [
    (0, [1, 2], 60, 0, math.inf, None, 0.0),
    (2, [3], 60, 0, math.inf, 0, 0.0),
    (3, [3], 9, 0, math.inf, None, 0.0),
]


@pytest.mark.parametrize("bug", ["two ends", "keeps pages", "no deadline", "gives no way"])
def test_a_planted_bug_is_found(bug, monkeypatch):
    broken(bug, monkeypatch)
    tests = [
        test_a_request_of_priority_takes_the_place_of_the_least_and_no_reply_changes,
        test_a_reply_whose_time_is_over_ends_with_what_it_has,
        lambda: judged(*schedule(CANCELLED, 0, 2)),
    ]
    found = 0
    for test in tests:
        try:
            test()
        except (AssertionError, KeyError):
            found += 1
    assert found


def test_an_engine_that_has_one_request_knows_no_other():
    engine = engine_of(model_of(), context=CONTEXT)
    assert engine.cancel(7) is None
    engine.check()
