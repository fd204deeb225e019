"""One thread plays the rounds; each request ends in exactly one event, read, cancelled, failed or interrupted."""

import os
import signal
import threading

import pytest
from service_tools import LONG, SHORT, all_of, alone, ticket, tokens_of

from paceline.draft.lookup.ngram import NgramDrafter
from paceline.engine.engine import Engine
from paceline.errors import ReplyError, UsageError
from paceline.service.service import Service

# ---- requests and events


def test_many_threads_ask_and_one_plays(service, drafter):
    found = {}

    def run(name):
        one = ticket(name, SHORT, at_once=name % 2 == 0)
        service.ask([one])
        found[name] = tokens_of(all_of(service, one))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == {i: alone(i) for i in range(12)}
    assert len(drafter.threads) == 1
    assert threading.get_ident() not in drafter.threads


def test_requests_asked_together_begin_together(service):
    service.ask(both := [ticket(0), ticket(1)])
    first, second = (all_of(service, one) for one in both)
    assert len(first) == len(second)


def test_a_reader_that_wants_only_the_end_is_woken_once(service):
    one = ticket(0, at_once=False)
    service.ask([one])
    told = service.read(one)
    assert told[-1][0].finish_reason == "length"
    assert [seconds for _, seconds in told] == sorted(seconds for _, seconds in told)
    assert one.line.empty()


def test_a_request_that_cannot_run_ends_in_an_error(service):
    one, other = ticket(0, LONG), ticket(0)
    service.ask([one, other])
    (event,) = all_of(service, other)
    assert isinstance(event.error, UsageError)
    service.cancel(one, wait=True)


# ---- cancelling


@pytest.mark.parametrize("when", ["waiting", "running", "ended", "never asked", "twice"])
def test_a_cancelled_request_ends_exactly_once(service, drafter, when):
    one = ticket(0, SHORT if when == "ended" else LONG)
    service.call(lambda: None)
    drafter.gate.clear()
    if when == "waiting":
        service.ask([ticket(i, LONG) for i in range(1, 9)])
        assert drafter.inside.wait(10)
    if when != "never asked":
        service.ask([one])
        assert drafter.inside.wait(10)
    drafter.gate.set()
    seen = []
    if when == "ended":
        seen = all_of(service, one)
        service.cancel(one)
        service.call(lambda: None)
        assert one.line.empty()
    else:
        if when == "twice":
            service.cancel(one)
        seen = [event for event, _ in service.cancel(one, wait=True)]
        service.cancel(one)
        service.call(lambda: None)
    ends = [event.finish_reason for event in seen if event.finish_reason]
    assert ends == ["length" if when == "ended" else "cancelled"]
    assert one.line.empty()
    assert not service.engine.has(0)


def test_what_is_cancelled_leaves_the_others_alone(service):
    one, other = ticket(0, LONG), ticket(1)
    service.ask([one, other])
    service.cancel(one, wait=True)
    assert tokens_of(all_of(service, other)) == alone(1)


# ---- failing


@pytest.mark.parametrize("error", [RuntimeError("odd"), SystemExit(3), UsageError("wrong"), MemoryError()])
def test_a_failed_round_ends_its_requests_and_not_the_service(service, drafter, error):
    drafter.fails = error
    service.ask(both := [ticket(0), ticket(1)])
    for one in both:
        last = all_of(service, one)[-1]
        assert last.finish_reason == "error"
        assert error in (last.error, last.error.__cause__)
        assert isinstance(last.error, UsageError if isinstance(error, UsageError) else ReplyError)
    drafter.fails = None
    service.ask([again := ticket(0)])
    assert tokens_of(all_of(service, again)) == alone(0)


def test_requests_that_wait_outlive_a_round_that_fails(service, drafter):
    drafter.gate.clear()
    drafter.fails = RuntimeError("once")
    service.ask(many := [ticket(i) for i in range(11)])
    assert drafter.inside.wait(10)
    healed, fail = [], service.engine.fail

    def heals(error):
        drafter.fails = None
        healed.append(error)
        return fail(error)

    service.engine.fail = heals
    drafter.gate.set()
    ends = [all_of(service, one)[-1].finish_reason for one in many]
    assert ends == ["error"] * 8 + ["length"] * 3
    assert len(healed) == 1


def test_every_request_ends_though_a_drafter_fails_to_release(service, drafter, monkeypatch):
    drafter.fails = RuntimeError("odd")
    monkeypatch.setattr(drafter, "release", lambda sequence_id: 1 / 0)
    service.ask(both := [ticket(0), ticket(1)])
    assert [all_of(service, one)[-1].finish_reason for one in both] == ["error", "error"]
    drafter.fails = None
    service.ask([one := ticket(2, LONG)])
    service.read(one)
    assert service.cancel(one, wait=True)[-1][0].finish_reason == "error"
    monkeypatch.undo()


# ---- calls, and asking from inside


def test_a_call_runs_between_rounds_and_returns_its_result(service, drafter):
    service.ask([one := ticket(0, LONG)])
    assert service.call(threading.get_ident) in drafter.threads
    with pytest.raises(ZeroDivisionError):
        service.call(lambda: 1 / 0)
    service.cancel(one, wait=True)


def test_asking_from_inside_a_round_is_refused(service, drafter):
    refused = []

    def asks(views, budgets):
        for ask in (lambda: service.ask([ticket(5)]), lambda: service.call(lambda: None)):
            with pytest.raises(UsageError, match="inside one of its own rounds"):
                ask()
            refused.append(1)
        return NgramDrafter.propose(drafter, views, budgets)

    drafter.propose = asks
    service.ask([one := ticket(0)])
    assert tokens_of(all_of(service, one)) == alone(0)
    assert refused


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_handler_in_a_waiting_thread_is_refused(service, drafter):
    said = []

    def handler(*_):
        try:
            service.ask([ticket(7)])
        except UsageError as error:
            said.append(str(error))
        drafter.gate.set()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        drafter.gate.clear()
        service.ask([one := ticket(0)])
        assert drafter.inside.wait(10)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert tokens_of(all_of(service, one)) == alone(0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(said) == 1
    assert "inside one of its own rounds" in said[0]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_while_waiting_leaves_the_thread_sound(service, drafter):
    drafter.gate.clear()
    service.ask([one := ticket(0, LONG)])
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        service.read(one)
    drafter.gate.set()
    assert service.cancel(one, wait=True)[-1][0].finish_reason == "cancelled"
    service.ask([two := ticket(1)])
    assert tokens_of(all_of(service, two)) == alone(1)


# ---- planted bugs


def never_ends(monkeypatch):
    monkeypatch.setattr(Engine, "fail", lambda self, error: [])


def forgets_the_end(monkeypatch):
    def cancel(self, one):
        if self._tickets.pop(one.id, None):
            self.engine.cancel(one.id)

    monkeypatch.setattr(Service, "_cancel", cancel)


def ends_twice(monkeypatch):
    tell = Service._tell

    def told(self, events):
        for event in events:
            if event.finish_reason == "cancelled":
                self._tickets[event.request].put(event, 0.0)
        tell(self, events)

    monkeypatch.setattr(Service, "_tell", told)


BUGS = {
    never_ends: lambda service, drafter: test_a_failed_round_ends_its_requests_and_not_the_service(
        service, drafter, RuntimeError("odd")
    ),
    forgets_the_end: lambda service, drafter: test_a_cancelled_request_ends_exactly_once(service, drafter, "running"),
    ends_twice: lambda service, drafter: test_a_cancelled_request_ends_exactly_once(service, drafter, "twice"),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(service, drafter, bug, monkeypatch):
    bug(monkeypatch)
    failed = []

    def distribution():
        try:
            BUGS[bug](service, drafter)
        except Exception as error:
            failed.append(error)
        except pytest.fail.Exception as error:
            failed.append(error)

    thread = threading.Thread(target=distribution, daemon=True)
    thread.start()
    thread.join(1.0)
    found = failed or thread.is_alive()
    monkeypatch.undo()
    for one in service.engine.parts.scheduler.sequences:
        service.call(lambda name=one.id: service.engine.has(name) and service.engine.cancel(name))
    assert found, "the bug went unnoticed"
