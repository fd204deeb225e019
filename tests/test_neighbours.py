"""How busy others are is what the system calls busy less what this process took, on its own cores."""

import os
import time

import pytest

from paceline.hardware import Neighbours

HERTZ = os.sysconf("SC_CLK_TCK")


class Machine:
    """Two cores, a clock and a process on a made-up time."""

    def __init__(self):
        self.now, self.own, self.broken = 100.0, 5.0, None
        self.cores = [dict.fromkeys(("user", "system", "idle", "iowait", "steal"), 1000) for _ in range(3)]

    def text(self):
        if self.broken is not None:
            raise self.broken
        lines = ["cpu 9 9 9 9 9 9 9 9 9 9"]
        for i, core in enumerate(self.cores):
            c = {name: round(ticks) for name, ticks in core.items()}
            lines.append(f"cpu{i} {c['user']} 0 {c['system']} {c['idle']} {c['iowait']} 0 0 {c['steal']} 7 0")
        return "\n".join([*lines, "intr 12345 0 0", "ctxt 99"])

    def passes(self, seconds, own=0.0, **used):
        """Let time pass, `used` cores by kind on core 0, the rest idle."""
        self.now += seconds
        self.own += own * seconds
        for name, cores in used.items():
            self.cores[0][name] += cores * seconds * HERTZ
        self.cores[1]["idle"] += (2 - sum(used.values())) * seconds * HERTZ

    def neighbours(self, cores=(0, 1)):
        return Neighbours(stat=self.text, clock=lambda: self.now, own_seconds=lambda: self.own, cores=cores)


@pytest.mark.parametrize(("own", "used", "others"), [
    (0.0, {}, 0.0),
    (0.0, {"user": 1.5}, 1.5),
    (1.2, {"user": 1.5}, 0.3),
    (0.0, {"system": 0.5, "steal": 0.25}, 0.75),
    (0.0, {"iowait": 1.0}, 0.0),
    (1.0, {"user": 0.9}, 0.0),  # ticks are rounded: less than nothing is nothing
])  # fmt: skip
def test_others_are_what_is_busy_less_what_is_ours(own, used, others):
    machine = Machine()
    neighbours = machine.neighbours()
    machine.passes(2.0, own=own, **used)
    assert neighbours.read() == pytest.approx(others, abs=0.02)


def test_each_reading_begins_a_window():
    machine = Machine()
    neighbours = machine.neighbours()
    machine.passes(1.0, user=2.0)
    assert neighbours.read() == pytest.approx(2.0)
    machine.passes(1.0)
    assert neighbours.read() == pytest.approx(0.0)


def test_a_reading_too_soon_repeats_the_last_one():
    machine = Machine()
    neighbours = machine.neighbours()
    machine.passes(0.01, user=1.0)
    assert neighbours.read() is None
    machine.passes(0.99, user=1.0)
    assert neighbours.read() == pytest.approx(1.0)
    machine.passes(0.02)
    assert neighbours.read() == pytest.approx(1.0)


def test_cores_this_process_may_not_run_on_do_not_count():
    machine = Machine()
    neighbours = machine.neighbours(cores=(1,))
    machine.passes(1.0, user=1.0)
    assert neighbours.read() == 0.0


@pytest.mark.parametrize("text", ["", "cpu", "cpu 1\ncpu0 1 2 3\n", "cpu 1\ncpux a b c d e f g h\n", "nonsense\n" * 9])
def test_a_system_that_does_not_say_is_no_load(text):
    machine = Machine()
    machine.text = lambda: text
    neighbours = machine.neighbours()
    machine.passes(1.0)
    assert neighbours.read() is None


def test_a_file_of_zeros_says_nothing():
    """Some sandboxes have such a one."""
    machine = Machine()
    machine.text = lambda: "cpu 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 0"
    neighbours = machine.neighbours()
    machine.passes(1.0, own=1.0)
    assert neighbours.read() is None


def test_a_file_that_goes_and_comes_back_begins_again():
    machine = Machine()
    neighbours = machine.neighbours()
    machine.broken = PermissionError("no")
    machine.passes(1.0, user=2.0)
    assert neighbours.read() is None
    machine.broken = None
    machine.passes(1.0, user=2.0)
    assert neighbours.read() is None, "there is nothing to take it from yet"
    machine.passes(1.0, user=0.5)
    assert neighbours.read() == pytest.approx(0.5)


def test_the_real_file_is_read_in_no_time():
    neighbours = Neighbours()
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        neighbours.read()
        best = min(best, time.perf_counter() - started)
    assert best < 2e-3  # about 30 microseconds; a machine of many interrupts takes longer to say
