"""Rows and pages are shared among requests, and no reply tells: each is what it is alone, whatever runs beside it."""

import dataclasses

import numpy as np
import pytest
from parity_tools import caches_of, engine_of
from sweep import sweep

from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.engine import Engine
from paceline.engine.scheduler import ROWS, Scheduler
from paceline.engine.sequence import WAITING, Request, Sequence
from paceline.errors import UsageError
from paceline.kernels.ops import PAGE
from paceline.model.flatten import SLACK
from paceline.testing import ByteTokenizer, TinyModel
from paceline.verify.coupled import CoupledVerifier

VOCAB, CONTEXT = 16, 512
WHOLE = (CONTEXT + SLACK) // PAGE  # pages of one sequence as long as can be


def model_of():
    return TinyModel(VOCAB, reach=None, context=1024, seed=2)


def pooled(pages, drafter=None, *, model=None, slots=8):
    """An engine whose pool has so many pages."""
    model = model or model_of()
    parts = drafter or NgramDrafter(), FixedController(4), CoupledVerifier()
    room = pages * model.page_bytes
    return Engine(model, ByteTokenizer.letters(VOCAB), *parts, context=CONTEXT, slots=slots, cache_bytes=room)


class Watch:
    """Plays an engine round by round, recounts everything and keeps the rows of each sequence."""

    def __init__(self, engine):
        self.engine, self.said, self.rounds, self.preempted = engine, {}, [], 0
        self.ends = []
        scheduler = engine.parts.scheduler
        choose, preempt = scheduler.choose, scheduler._preempt

        def watched(free_pages, row_budget):
            turns = choose(free_pages, row_budget)
            self.rounds.append([(one.id, rows) for one, rows in turns])
            assert sum(rows for _, rows in turns) <= row_budget
            return turns

        def counted():
            self.preempted += 1
            return preempt()

        scheduler.choose, scheduler._preempt = watched, counted

    def play(self):
        for event in self.engine.step():
            self.said.setdefault(event.request, []).extend(event.tokens)
            assert event.request not in self.ends, "an event after the end"
            assert event.error is None, event.error
            if event.finish_reason:
                self.ends.append(event.request)
        self.engine.parts.scheduler.check()
        for own in caches_of(self.engine.parts.drafter):
            own.check()

    def run(self, most=3000):
        while not self.engine.is_idle:
            assert len(self.rounds) < most, "the rounds do not end"
            self.play()
        assert self.engine.cache.held() == 0
        for own in caches_of(self.engine.parts.drafter):
            assert own.held() == 0
        return self.said


def requests_of(seed, count, temperature):
    """Random requests: short and long prompts, some that begin alike, replies of many lengths."""
    chance = np.random.default_rng(seed)
    shared = chance.integers(VOCAB, size=70).tolist()
    for name in range(count):
        prompt = chance.integers(VOCAB, size=int(chance.choice([1, 5, 40, 40, 200]))).tolist()
        if chance.random() < 0.2:
            prompt = [*shared, *prompt]
        params = SamplingParams(
            temperature, seed=int(chance.integers(9)), max_tokens=int(chance.choice([1, 9, 250, 330]))
        )
        yield Request(name, prompt, params)


def alone(request, model):
    engine = engine_of(model, context=CONTEXT)
    engine.add(request)
    return [token for event in engine.run() for token in event.tokens]


def mixed(seed, temperature, drafter=None, pages=None):
    """Play requests that come one after the other over a small pool; return what was watched."""
    chance, model = np.random.default_rng(seed), model_of()
    requests = list(requests_of(seed, 7 if seed < 3 else 12, temperature))
    watch = Watch(pooled(pages or int(chance.integers(WHOLE, WHOLE + 6)), drafter, model=model))
    for request in requests:
        watch.engine.add(request)
        for _ in range(int(chance.integers(0, 8))):
            watch.play()
    watch.run()
    for request in requests:
        assert watch.said[request.id] == alone(request, model), f"request {request.id}"
    return watch


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("seed", sweep(range(12), fast=range(3)))
def test_batched_replies_over_a_small_pool_equal_single_ones(seed, temperature):
    assert mixed(seed, temperature).preempted > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_model_beside_a_small_pool_changes_no_token(temperature):
    draft = ModelDrafter(TinyModel(VOCAB, reach=None, context=1024, seed=2), context=CONTEXT)
    watch = mixed(1, temperature, draft, pages=WHOLE)
    assert watch.preempted > 0


def preempting(temperature):
    """Two requests that outgrow the pool together; the younger one is preempted in mid-reply."""
    model = model_of()
    long = SamplingParams(temperature, seed=3, max_tokens=300, ignore_eos=True)
    requests = [Request(i, [1 + i, 2, 3] * 50, long) for i in range(2)]
    watch = Watch(pooled(WHOLE, model=model))
    for request in requests:
        watch.engine.add(request)
    return model, requests, watch


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_preempted_reply_returns_its_pages_and_resumes_exactly(temperature):
    model, requests, watch = preempting(temperature)
    scheduler, cache = watch.engine.parts.scheduler, watch.engine.cache
    while not watch.preempted:
        watch.play()
    first, second = scheduler.sequences
    assert (first.id, second.id) == (0, 1)
    assert second.cache == WAITING
    assert 0 < len(second.output) < 300, "in mid-reply"
    assert cache.held() == PAGE * cache.pages(first.cache)
    watch.run()
    for request in requests:
        assert watch.said[request.id] == alone(request, model)
    assert watch.ends == [0, 1]


def test_the_default_pool_preempts_nothing():
    watch = Watch(engine_of(model_of(), NgramDrafter(), context=CONTEXT))
    for i in range(8):
        watch.engine.add(Request(i, [i, 1, 2] * 50, SamplingParams(max_tokens=500)))
    watch.run()
    assert watch.preempted == 0
    assert all(len(turns) == 8 for turns in watch.rounds[5:100])


# ---- rows


def prompts(engine, lengths, **params):
    chance = np.random.default_rng(7)
    for i, length in enumerate(lengths):
        engine.add(Request(i, chance.integers(VOCAB, size=length).tolist(), SamplingParams(**params)))


def test_eight_prompts_share_rounds_with_a_running_reply():
    watch = Watch(engine_of(model_of(), context=CONTEXT, slots=9))
    watch.engine.parts = dataclasses.replace(watch.engine.parts, clock=lambda: 0.0)  # reading holds nothing up
    prompts(watch.engine, [5], max_tokens=400)
    watch.play()
    watch.said.clear()
    chance = np.random.default_rng(1)
    for i in range(1, 9):
        watch.engine.add(Request(i, chance.integers(VOCAB, size=256).tolist(), SamplingParams(max_tokens=4)))
    while len(watch.ends) < 8:
        before = len(watch.said.get(0, []))
        watch.play()
        assert len(watch.said[0]) > before, "the running reply waits"
        assert sum(rows for _, rows in watch.rounds[-1]) <= ROWS == 256
    assert watch.ends == sorted(watch.ends), "first come, first served"
    assert len(watch.rounds) <= 8 * 256 // (ROWS - 9) + 8


def test_a_prompt_alone_is_read_in_whole_chunks():
    watch = Watch(engine_of(model_of(), context=1000))
    prompts(watch.engine, [900], max_tokens=2)
    watch.run()
    assert [turns[0][1] for turns in watch.rounds] == [256, 256, 256, 132, 1]


def test_prompts_progress_beside_more_replies_than_rows():
    """And the replies take turns."""
    scheduler = Scheduler(TinyModel(VOCAB).new_cache(200 * PAGE), 32)
    texts = [*([[1, 2]] * 20), list(range(16)) * 4]
    for i, text in enumerate(texts):
        request = Request(i, text, SamplingParams(max_tokens=50))
        scheduler.add(Sequence(request, ByteTokenizer.letters(VOCAB), context=256))
    assert len(scheduler.admit()) == 21
    played = dict.fromkeys(range(21), 0)
    for one in scheduler.sequences[:20]:
        _read(scheduler, one, 1)
    for _ in range(10):
        turns = scheduler.choose(200, 16)
        assert sum(rows for _, rows in turns) == 16
        for one, rows in turns:
            played[one.id] += rows
            _read(scheduler, one, rows if one.id == 20 else 0)
    assert played[20] == 40
    assert {played[i] for i in range(20)} == {6}


def _read(scheduler, sequence, count):
    cache, start = scheduler._cache, scheduler._cache.length(sequence.cache)
    cache.extend(sequence.cache, max(count, 1))
    cache.commit(sequence.cache, range(count), sequence.tokens[start : start + count].tolist())


# ---- the pool


def test_a_pool_that_holds_no_whole_context_is_refused():
    assert pooled(WHOLE).cache.store.pages == WHOLE
    with pytest.raises(UsageError, match=f"at least {WHOLE * TinyModel.page_bytes} bytes, got"):
        pooled(WHOLE - 1)


def test_requests_wait_while_others_have_the_pages():
    watch = Watch(pooled(WHOLE))
    prompts(watch.engine, [300, 300, 3], max_tokens=5)
    watch.run()
    assert watch.ends == [0, 1, 2], "the short one does not overtake"
    assert {len(turns) for turns in watch.rounds} == {1, 2}, "the last one fits beside"
    assert watch.preempted == 0


# ---- planted bugs


def lost(sequence):
    """Forgets the latest token of a preempted sequence."""
    sequence._length -= 1


def broken(name, monkeypatch):
    preempt, close, shares = Scheduler._preempt, Scheduler._close, Scheduler._shares

    def keeps_pages(self, sequence):
        sequence.cache = WAITING

    def stays_open(self, sequence):
        handle = sequence.cache
        close(self, sequence)
        sequence.cache = handle

    def loses_a_token(self):
        lost(self._running[-1])
        return preempt(self)

    def last_in_line(self):
        freed = preempt(self)
        self._waiting.append(self._waiting.pop(0))
        return freed

    def preempts_the_oldest(self):
        self._running.append(self._running.pop(0))
        return preempt(self)

    def for_all(self, row_budget):
        lacking = {one.id: len(one) - self._cache.length(one.cache) for one in self._running}
        return [(one, min(lacking[one.id], row_budget)) for one in self._running]

    def readers_first(self, row_budget):
        turns = [(one, rows) for one, rows in shares(self, row_budget) if rows > 1]
        return turns or shares(self, row_budget)

    method, bug = {
        "keeps pages": ("_close", keeps_pages),
        "stays open": ("_close", stays_open),
        "loses a token": ("_preempt", loses_a_token),
        "last in line": ("_preempt", last_in_line),
        "preempts the oldest": ("_preempt", preempts_the_oldest),
        "rows for all": ("_shares", for_all),
        "readers first": ("_shares", readers_first),
    }[name]
    monkeypatch.setattr(Scheduler, method, bug)


BUGS = ("keeps pages", "stays open", "loses a token", "last in line", "preempts the oldest")
BUGS += ("rows for all", "readers first")


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, monkeypatch):
    broken(bug, monkeypatch)
    distributions = [
        lambda: test_a_preempted_reply_returns_its_pages_and_resumes_exactly(0.8),
        test_requests_in_line_stay_in_line,
        test_eight_prompts_share_rounds_with_a_running_reply,
    ]
    found = 0
    for distribution in distributions:
        try:
            distribution()
        except (AssertionError, KeyError, IndexError, ValueError):
            found += 1
    assert found


def test_requests_in_line_stay_in_line():
    """Three outgrow the pool; the two that are preempted come back in the order in which they came."""
    watch = Watch(pooled(WHOLE))
    long = SamplingParams(max_tokens=200, ignore_eos=True)
    for i in range(3):
        watch.engine.add(Request(i, [1 + i, 2, 3] * 10, long))
    watch.engine.add(Request(3, [9] * 5, long))
    while not watch.engine.is_idle:
        watch.play()
        names = [one.id for one in watch.engine.parts.scheduler.sequences]
        assert names == sorted(names)
    assert watch.preempted >= 2


class Clocked(TinyModel):
    """A model whose forwards take 10 ms and 2 ms a row on a clock of its own."""

    now = 0.0

    def forward(self, batch, cache, *, taps=()):
        self.now += 0.010 + 0.002 * len(batch.tokens)
        return super().forward(batch, cache, taps=taps)


def test_a_long_prompt_does_not_hold_up_a_running_reply():
    """Alone a prompt is read 256 rows at a time; beside a reply, so many that a round takes three usual ones."""
    model = Clocked(VOCAB, reach=2, context=4096)
    engine = engine_of(model, context=4096, slots=4)
    engine.parts = dataclasses.replace(engine.parts, clock=lambda: model.now)
    engine.add(Request(0, [1, 2], SamplingParams(max_tokens=900)))
    for _ in range(20):
        engine.step()
    engine.add(Request(1, [3] * 1500, SamplingParams(max_tokens=1)))
    lengths, before = [], model.now
    while engine.has(1):
        events = engine.step()
        assert {0} <= {event.request for event in events}
        lengths.append(model.now - before)
        before = model.now
    assert max(lengths[3:]) < 3.2 * 0.012
    assert sum(lengths) < 2 * (1500 * 0.002 + 6 * 0.010)
    engine.cancel(0)
    engine.add(Request(2, [4] * 1500, SamplingParams(max_tokens=1)))
    rounds = 0
    while engine.has(2):
        engine.step()
        rounds += 1
    assert rounds == 6
