"""How many threads a forward uses, on made-up machines: the governor is given seconds and losses."""

import numpy as np
import pytest

from paceline.kernels.native import native


class Machine:
    """A forward's seconds and lost thread seconds by number of threads; `noise` is relative, its mean is nought."""

    def __init__(self, most, seconds, lost=None, noise=0.2, seed=0):
        self.governor, self.random, self.now = native.Governor(most), np.random.default_rng(seed), 0.0
        self.set(seconds, lost, noise)

    def set(self, seconds, lost=None, noise=0.2):
        self.seconds, self.noise = seconds, noise
        self.lost = lost or (lambda threads: 0.0)

    def run(self, duration, kinds=(1.0,)):
        """Return forwards' worth of work per second, and the share of time by threads."""
        work, spent, end = 0.0, {}, self.now + duration
        while self.now < end:
            kind = int(self.random.integers(len(kinds)))
            threads = self.governor.threads
            noise = 1 + self.noise * self.random.uniform(-1, 1)
            seconds = self.seconds(threads) * kinds[kind] * noise
            self.now += seconds
            self.governor.saw(kind, threads, seconds, self.lost(threads) * seconds, self.now)
            work += kinds[kind]
            spent[threads] = spent.get(threads, 0) + seconds / duration
        return work / duration, spent


QUIET = {1: 0.010, 2: 0.006}


def test_a_quiet_machine_keeps_all_threads():
    assert Machine(2, QUIET.get).run(20)[1].keys() == {2}


def test_rare_interruptions_cost_no_thread():
    machine = Machine(2, QUIET.get)
    for lost in (0.004, 0.03) * 50:
        machine.run(0.1)
        machine.governor.saw(0, 2, 0.006 + lost, lost, machine.now)
    assert machine.governor.threads == 2
    assert machine.run(1)[1].keys() == {2}


@pytest.mark.parametrize("scale", [0.3, 1, 8])
@pytest.mark.parametrize("slower", [1.1, 1.5, 3])
def test_fewer_threads_where_more_are_slower(scale, slower):
    one = 0.010 * scale
    machine = Machine(2, lambda threads: one * (slower if threads == 2 else 1), lambda threads: 0.5 * (threads - 1))
    machine.run(0.1 + 3 * one)
    speed, spent = machine.run(30)
    assert speed * one > 0.95, spent


@pytest.mark.parametrize("faster", [0.6, 0.9])
def test_all_threads_where_they_are_faster_although_they_lose_time(faster):
    machine = Machine(2, lambda threads: 0.010 * (faster if threads == 2 else 1), lambda threads: 0.5 * (threads - 1))
    speed, spent = machine.run(30)
    assert speed * 0.010 * faster > 0.95, spent


def test_load_that_comes_and_goes_is_followed():
    machine = Machine(2, QUIET.get)
    machine.run(2)
    machine.set(lambda threads: 0.012 if threads == 1 else 0.030, lambda threads: 0.5 * (threads - 1))
    machine.run(0.06)
    assert machine.governor.threads == 1
    machine.run(20)
    machine.set(QUIET.get)
    machine.run(3.2)
    assert machine.governor.threads == 2
    assert machine.run(10)[1].keys() == {2}


def test_forwards_of_several_kinds_are_told_apart():
    machine = Machine(2, lambda threads: 0.010 * (1.3 if threads == 2 else 1), lambda threads: 0.4 * (threads - 1))
    speed, spent = machine.run(30, kinds=(0.1, 1.0, 5.0))
    assert speed * 0.010 > 0.94, spent


def test_one_of_eight_threads_goes_for_one_busy_neighbour():
    def seconds(threads):
        return 0.008 / threads * 8 * (1.5 if threads == 8 else 1)

    machine = Machine(8, seconds, lambda threads: 0.6 if threads == 8 else 0.0)
    machine.run(0.2)
    assert machine.governor.threads == 7
    speed, spent = machine.run(30)
    assert speed * seconds(7) > 0.95, spent


def test_a_small_share_of_many_cores_is_found():
    """A container may use two cores of 64: the others' time is taken away."""

    def seconds(threads):
        return 0.016 / min(threads, 2) * (1 if threads <= 2 else 2 + threads / 64)

    machine = Machine(64, seconds, lambda threads: max(0, threads - 2))
    machine.run(1)
    speed, spent = machine.run(30)
    assert speed * seconds(2) > 0.9, spent
