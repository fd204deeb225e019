"""How a service ends, what it measures and saves meanwhile, and what a fork and the end of a process raise."""

import multiprocessing
import subprocess
import sys
import threading
from time import monotonic, sleep

import pytest
from service_tools import LONG, all_of, alone, ticket, tokens_of

from paceline.engine.upkeep import Upkeep
from paceline.errors import PacelineError, UsageError
from paceline.service import service as home

# ---- ends


def test_closing_cancels_open_requests_and_refuses_later_ones(service, drafter):
    drafter.gate.clear()
    before = {*threading.enumerate()}
    service.ask(both := [ticket(0, LONG), ticket(1, LONG)])
    assert drafter.inside.wait(10)
    drafter.gate.set()
    service.close()
    assert [all_of(service, one)[-1].finish_reason for one in both] == ["cancelled", "cancelled"]
    for ask in (lambda: service.ask([ticket(3)]), lambda: service.call(lambda: None)):
        with pytest.raises(UsageError, match="was closed"):
            ask()
    assert service.cancel(ticket(4), wait=True) == []
    service.close()
    assert {*threading.enumerate()} <= before, "its thread has ended"


def test_closing_wakes_waiting_readers(service, drafter):
    service.ask([one := ticket(0, LONG)])
    reasons = []
    thread = threading.Thread(target=lambda: reasons.append(all_of(service, one)[-1].finish_reason))
    thread.start()
    service.close()
    thread.join(10)
    assert reasons in (["cancelled"], ["length"])


def test_a_thread_that_is_gone_raises_an_error(service, monkeypatch):
    monkeypatch.setattr(home, "LOOK", 0.01)
    monkeypatch.setattr(service, "_run", lambda: None)
    with pytest.raises(PacelineError, match="is gone"):
        service.call(lambda: None)
    monkeypatch.undo()


# ---- upkeep and saving


class Counting:
    """Stands for upkeep and memory: records when each was called, and what ran meanwhile."""

    def __init__(self, service=None):
        self.service, self.measured, self.saved, self.rounds = service, [], [], 0

    def between_requests(self, controller):
        self.measured.append(len(self.service.engine.parts.scheduler.sequences))

    def before_round(self, controller):
        self.rounds += 1

    def save(self, *, now=True):
        self.saved.append(now)


@pytest.fixture
def counted(service):
    service._upkeep = service._memory = counts = Counting(service)
    return counts


def test_the_machine_is_measured_in_gaps_and_not_beside_others(service, counted, monkeypatch):
    for name in range(3):
        service.ask([one := ticket(name)])
        all_of(service, one)
    service.ask([one := ticket(0, LONG)])
    service.read(one)
    service.ask([ticket(1)])
    service.call(lambda: None)
    service.cancel(one, wait=True)
    assert counted.measured == [], "no request waits for it"
    assert counted.rounds > 4
    monkeypatch.setattr(home, "IDLE", 0.01)
    service.call(lambda: None)
    until = monotonic() + 10
    while not counted.measured and monotonic() < until:
        sleep(0.01)
    service.call(lambda: None)
    assert counted.measured[0] == 0


def test_a_service_without_a_gap_is_measured_in_a_pause(service, counted, monkeypatch):
    monkeypatch.setattr(home, "BUSY", 0.0)
    service.ask([one := ticket(0)])
    assert tokens_of(all_of(service, one)) == alone(0)
    assert counted.measured == [1] * counted.rounds, "beside the one that runs"


def test_experience_is_saved_while_replies_run_and_at_the_end(service, counted):
    service.ask([one := ticket(0, LONG)])
    for _ in range(3):
        service.read(one)
    assert counted.saved
    assert not any(counted.saved), "no hurry in between"
    service.cancel(one, wait=True)
    service.close()
    assert counted.saved[-1] is True


def test_measuring_that_fails_costs_no_reply(service, counted, monkeypatch):
    monkeypatch.setattr(counted, "between_requests", lambda controller: 1 / 0)
    monkeypatch.setattr(counted, "save", lambda *, now=True: 1 / 0)
    service.ask([one := ticket(0)])
    assert tokens_of(all_of(service, one)) == alone(0)


def test_upkeep_has_what_the_service_asks_for():
    assert all(callable(getattr(Upkeep, name)) for name in ("between_requests", "before_round"))


def test_requests_at_the_end_of_python_are_refused(talker):
    """By an exit handler that runs after the service's own; those that run before it may ask."""
    program = f"""
import atexit
def late():
    try:
        llm.generate("x", paceline.SamplingParams(max_tokens=2))
    except paceline.PacelineError as error:
        print("late:", error)
atexit.register(late)
import paceline
llm = paceline.load({str(talker)!r}, draft="off", context=64)
atexit.register(lambda: print("early:", len(llm.generate([1, 2], paceline.SamplingParams(max_tokens=3)).token_ids) > 0))
open_one = iter(llm.stream("x", paceline.SamplingParams(max_tokens=50, ignore_eos=True)))
next(open_one)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    said = "early: True\nlate: nothing is generated any more once Python has begun to end\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, said, "")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_child_of_an_idle_service_has_its_own_thread(service):
    service.ask([one := ticket(0)])
    mine = tokens_of(all_of(service, one))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def child():
        service.ask([one := ticket(0)])
        queue.put((tokens_of(all_of(service, one)), service.call(threading.get_ident) == threading.get_ident()))

    process = context.Process(target=child)
    process.start()
    process.join(30)
    assert not process.is_alive()
    assert queue.get() == (mine, False)
