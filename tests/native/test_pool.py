"""The pool: every task once and in its phase, and the same bits, whatever its threads do and however many they are."""

import gc
import multiprocessing
import threading
import time
from collections import Counter

import numpy as np
import pytest
from tiny import ISAS, alone, feed, pool_of, same, text, tiny

from paceline.kernels.native import native
from paceline.kernels.tensor import GgmlType


def play(pool, phases, call=lambda *_: None):
    """Run a job and return how often each task ran; raises where a phase began before the last was done."""
    counts, done = Counter(), Counter()

    def run(phase, begin, end, thread):
        assert phase == 0 or done[phase - 1] == phases[phase - 1][0], f"phase {phase} began early"
        assert 0 <= thread < pool.threads
        call(phase, begin, end)
        counts.update((phase, task) for task in range(begin, end))
        done[phase] += end - begin

    pool.run(phases, run)
    return counts


def each_once(phases):
    return Counter((phase, task) for phase, (tasks, _) in enumerate(phases) for task in range(tasks))


def wait_for_threads(pool, count):
    """Return once `count` threads have taken part in one job."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        seen = set()
        pool.run([(4 * count, 1)], lambda phase, begin, end, thread, seen=seen: (seen.add(thread), time.sleep(0.002)))
        if len(seen) == count:
            return
    pytest.fail(f"of {count} threads only {seen} come")


def random_phases(random):
    return [(int(random.integers(1, 40)), int(random.integers(1, 4))) for _ in range(random.integers(1, 9))]


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_every_task_runs_once_and_after_the_phase_before(threads):
    random, pool = np.random.default_rng(threads), native.Pool(threads)
    pool.jitter(100)
    for _ in range(40):
        phases = random_phases(random)
        pool.hold(int(random.integers(0, threads + 1)))
        assert play(pool, phases) == each_once(phases)


def test_runs_beyond_the_tickets_bits_are_made_longer():
    pool, seen = native.Pool(2), []
    pool.run([(100_000, 1)], lambda phase, begin, end, thread: seen.append((begin, end)))
    assert len(seen) < 2**15
    assert sorted(seen)[0][0] == 0
    assert all(a[1] == b[0] for a, b in zip(sorted(seen), sorted(seen)[1:], strict=False))
    assert max(seen)[1] == 100_000


def test_callers_take_turns():
    pool, wrong = native.Pool(3), []
    pool.jitter(50)

    def caller(seed):
        random = np.random.default_rng(seed)
        for _ in range(15):
            phases = random_phases(random)
            if play(pool, phases) != each_once(phases):
                wrong.append(phases)

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(3)]
    for one in callers:
        one.start()
    for one in callers:
        one.join(30)
    assert not wrong
    assert not any(one.is_alive() for one in callers)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_tasks_exception_reaches_the_caller_and_ends_the_job(threads):
    pool = native.Pool(threads)
    pool.jitter(50)

    def refuse(phase, begin, end):
        if phase == 2 and begin == 0:
            raise ArithmeticError("planned")

    for _ in range(10):
        with pytest.raises(ArithmeticError, match="planned"):
            play(pool, [(9, 2)] * 5, refuse)
        assert play(pool, [(9, 2)] * 3) == each_once([(9, 2)] * 3)


def test_pools_end_whatever_their_threads_are_doing():
    for i in range(30):
        pool = native.Pool(4)
        pool.jitter(200)
        pool.hold(i % 5)
        if i % 3:
            play(pool, [(7, 1)] * (i % 3))
        del pool
        gc.collect()


def test_threads_that_were_not_needed_come_back():
    pool = native.Pool(3)
    for held in (1, 2, 1, 3, 2):
        pool.hold(held)
        wait_for_threads(pool, held)
        assert pool.active == held
        time.sleep(0.01)  # for the others to fall asleep


def forked(pool, queue):
    wait_for_threads(pool, 3)
    queue.put(play(pool, [(20, 1)] * 4) == each_once([(20, 1)] * 4))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("held", [0, 1])
def test_a_forked_child_has_threads_of_its_own(held):
    context = multiprocessing.get_context("fork")
    pool, queue = native.Pool(3), context.SimpleQueue()
    pool.hold(held)
    play(pool, [(20, 1)] * 4)
    pool.hold(3)
    child = context.Process(target=forked, args=(pool, queue))
    child.start()
    child.join(20)
    if child.is_alive():
        child.kill()
        pytest.fail("the child hangs")
    assert queue.get()
    forked(pool, queue)
    assert queue.get()


def test_contention_is_told_once():
    pool = native.Pool(2)
    pool.run([(50, 1)] * 3, lambda *_: sum(range(2000)))
    wall, lost = pool.contention()
    assert 0 <= lost <= wall
    assert wall > 0
    assert pool.contention()[0] < wall


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("isa", ISAS[:1])
def test_rows_are_the_same_bits_while_threads_come_and_go(isa, threads):
    model = tiny("qwen2", GgmlType.Q8_0, isa, threads=threads)
    tokens, pool, random = text(1, 60), pool_of(threads), np.random.default_rng(0)
    want = alone(tiny("qwen2", GgmlType.Q8_0, isa), tokens)
    pool.jitter(60)
    stop = threading.Event()

    def switch():  # also between the choice of threads and the forward
        while not stop.wait(0.001):
            pool.hold(int(random.integers(0, threads + 1)))

    switcher = threading.Thread(target=switch)
    switcher.start()
    try:
        for chunk in (1, 7, 60):
            cache = model.new_cache(128)
            same(feed(model, cache, cache.open(), tokens, chunk=chunk), want, f"chunks of {chunk}")
    finally:
        stop.set()
        switcher.join()
        pool.hold(0)
        pool.jitter(0)


def test_two_programs_share_a_pool():
    """As a target and its draft model do; each also from a thread of its own."""
    pool = pool_of(2)
    names = [("llama", GgmlType.Q4_0), ("qwen2", GgmlType.Q8_0)]
    models = [tiny(name, kind, ISAS[0], threads=2) for name, kind in names]
    tokens = text(2, 30)
    want = [alone(tiny(name, kind, ISAS[0]), tokens) for name, kind in names]
    caches = [model.new_cache(64) for model in models]
    sequences = [cache.open() for cache in caches]
    pool.jitter(30)
    try:
        for at in range(0, 30, 5):
            for model, cache, sequence, rows in zip(models, caches, sequences, want, strict=True):
                pool.hold(1 + at // 5 % 2)
                same(feed(model, cache, sequence, tokens[at : at + 5]), rows[at : at + 5], f"from token {at}")
        pool.hold(0)
        got = [None, None]

        def run(i):
            cache = models[i].new_cache(64)
            got[i] = feed(models[i], cache, cache.open(), tokens, chunk=4)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        for i in range(2):
            same(got[i], want[i], f"model {i} beside the other")
    finally:
        pool.hold(0)
        pool.jitter(0)
