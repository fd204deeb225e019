"""A thread that owns an engine: requests come by a queue, and the events of each leave by a queue of its own.

Only that thread plays rounds, so neither Ctrl-C nor a reader that comes late, leaves early or is collected in mid-round
can break one. It sleeps while there is nothing to do and keeps the machine's cost table right: in the gaps between
requests, and in a pause of a few seconds where there is no gap for a minute. What was learnt is saved on the way.

The thread starts with the first request, ends with `close` and is waited for at the end of the process: Python takes a
process down with a thread that is in native code. Knows nothing of texts.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any, Literal, TypeVar

from paceline.core.request import Event
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.engine.upkeep import Upkeep
from paceline.engine.warm_start import WarmStart
from paceline.errors import PacelineError, UsageError, reply_error

LOOK = 1.0  # seconds after which a waiting caller checks that the thread is still alive
PATIENCE = 10.0  # seconds that closing waits for the round under way
IDLE = 0.5  # seconds without an order that make a gap: a program's next order arrives sooner
BUSY = 60.0  # seconds without a gap after which a due measurement runs between two rounds

Told = list[tuple[Event, float]]
"""Events, each with the seconds (of `perf_counter`) at which it became known."""
State = Literal["open", "closed", "ended", "lost"]
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Ticket:
    """A request and its line of events.

    Args:
        at_once: deliver each event as it comes; else all of them with the last one, which wakes the reader once.
    """

    def __init__(self, request: Request, *, at_once: bool = True) -> None:
        self.request, self.id = request, request.id
        self.line: SimpleQueue[Told] = SimpleQueue()
        self.has_ended = False  # its last event was delivered
        self._at_once, self._held = at_once, Told()

    def put(self, event: Event, seconds: float) -> None:
        """Deliver an event; only the service's thread calls this."""
        self._held.append((event, seconds))
        self.has_ended = event.finish_reason is not None
        if self._at_once or self.has_ended:
            self.line.put(self._held)
            self._held = []


class Service:
    """Owns `engine` from its first request on.

    Each accepted request ends in exactly one event with a finish reason.

    Args:
        upkeep: keeps the cost table of the machine right.
        memory: keeps the records of drafters and controller.
    """

    def __init__(self, engine: Engine, *, upkeep: Upkeep | None = None, memory: WarmStart | None = None) -> None:
        self.engine, self._upkeep, self._memory = engine, upkeep, memory
        self._state: State = "open"
        _services.add(self)
        _register()
        self._renew()

    def _renew(self) -> None:
        """Reset to no thread; also in a fork's child, which has none of its parent's threads."""
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._owner = threading.Lock()  # held by the thread as long as it lives
        self._thread = 0
        self._tickets: dict[int, Ticket] = {}
        self._is_busy = False  # a round is under way; a fork's child would have half of it
        self._gap = monotonic()  # when there was last nothing to do

    # ---- called from outside

    def ask(self, tickets: Sequence[Ticket]) -> None:
        """Queue requests, which begin together; a refusal by `Engine.add` arrives as an event.

        `read` each to its last event, or `cancel` it.

        Raises:
            UsageError: from inside a round, or while this thread waits for this service; or the service is closed.
            PacelineError: the process was forked in the middle of something, or is about to end.
        """
        self._post(lambda: self._begin(tickets))

    def read(self, ticket: Ticket) -> Told:
        """Return the next events of a request, waiting for them."""
        told = self._next(ticket.line)
        return self._gone() if told is None else told

    def cancel(self, ticket: Ticket, *, wait: bool = False) -> Told:
        """End a request: its last event has the reason "cancelled", unless it had ended already.

        Args:
            wait: wait for the last event, which must not have been read yet; ignored inside a round.

        Returns:
            The unread events, if `wait`.
        """
        left = Told()
        if self._state in ("ended", "lost") or (self._state == "closed" and not self._thread):
            return left
        self._orders.put(lambda: self._cancel(ticket))
        if wait and self._owner.locked() and not self._is_inside():
            while not (left and left[-1][0].finish_reason):
                told = self._next(ticket.line)
                if told is None:
                    break
                left += told
        return left

    def call(self, do: Callable[[], Result]) -> Result:
        """Return what `do` returns, called between two rounds; raises what it raises and what `ask` does."""
        box: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._post(lambda: self._answer(do, box))
        answer = self._next(box)
        result, error = self._gone() if answer is None else answer
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the thread with the round it is in, cancel open requests and save what was learnt; refuse later ones."""
        self._end("closed")

    # ---- waiting and refusing

    def _post(self, order: Callable[[], None]) -> None:
        self._check()
        if not self._owner.locked():
            threading.Thread(target=self._run, name="paceline", daemon=True).start()  # a surplus thread ends at once
        self._orders.put(order)
        if self._state != "open":  # closed meanwhile: the order may be too late
            self._check()

    def _check(self) -> None:
        if self._state == "lost":
            raise PacelineError(
                "this process was forked while another thread was generating, so half a round is missing here",
                hint="fork while nothing is being generated, or load the model in the child",
            )
        if self._state == "closed":
            raise UsageError("this model was closed, and nothing can be asked of it", hint="load it again")
        if self._state == "ended":
            if threading.current_thread() is not threading.main_thread():
                threading.Event().wait()  # until the process ends
            raise PacelineError("nothing is generated any more once Python has begun to end")
        if self._is_inside():
            raise UsageError(
                "a model cannot be asked for a reply from inside one of its own rounds",
                hint="a logits processor, a drafter or a signal handler that wants one needs an LLM of its own",
            )

    def _next(self, line: SimpleQueue[Result]) -> Result | None:
        """Return the next item of a queue, or `None` if the thread is gone and the queue empty."""
        while True:
            try:
                return line.get(timeout=LOOK)
            except Empty:
                if not self._thread and line.empty():
                    return None

    def _gone(self) -> Any:
        self._check()
        raise PacelineError("the thread that generates is gone", hint="load the model again")

    def _is_inside(self) -> bool:
        """Whether this thread plays the rounds, or runs a signal handler while it waits for one."""
        if threading.get_ident() == self._thread:
            return True
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code is _WAITING and frame.f_locals["self"] is self:
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False

    def _end(self, state: State) -> None:
        if self._state != "open":
            return
        self._state = state
        if threading.get_ident() == self._thread:  # collected in the middle of a round, which becomes the last
            return
        if self._owner.locked():
            self._orders.put(lambda: None)  # wakes it
            self._owner.acquire(timeout=PATIENCE)  # for good

    # ---- in the thread

    def _run(self) -> None:
        if not self._owner.acquire(blocking=False):
            return
        self._thread = threading.get_ident()
        try:
            while self._state == "open":
                if self.engine.is_idle:
                    self._is_busy, self._gap = False, monotonic()
                    order = self._await_order()
                    self._is_busy = True
                    order()
                    del order  # its references are freed while this waits
                self._obey()
                if not self.engine.is_idle:
                    self._play()
            if self._state == "closed":  # at the end of the process, waiting callers keep waiting
                self._obey()
                for ticket in list(self._tickets.values()):
                    self._cancel(ticket)
            self._save(now=True)
        finally:
            self._thread = 0
            self._owner.release()

    def _obey(self) -> None:
        while not self._orders.empty():
            self._orders.get()()

    def _await_order(self) -> Callable[[], object]:
        """Wait for an order; in a gap the machine is measured again if that is due, so that no request waits for it."""
        try:
            return self._orders.get(timeout=IDLE)
        except Empty:
            self._is_busy = True
            self._measure()
            self._is_busy = False
            return self._orders.get()

    def _begin(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket.has_ended:  # cancelled before
                continue
            try:
                self.engine.add(ticket.request)
            except Exception as error:
                ticket.put(_failed(ticket.id, error), perf_counter())
            else:
                self._tickets[ticket.id] = ticket

    def _cancel(self, ticket: Ticket) -> None:
        if ticket.has_ended:
            return
        if self._tickets.get(ticket.id) is not ticket:  # not begun
            ticket.put(Event(ticket.id, (), "", finish_reason="cancelled"), perf_counter())
            return
        try:
            event = self.engine.cancel(ticket.id)
            assert event is not None, ticket.id  # delivered as soon as it ends
        except Exception as error:
            event = _failed(ticket.id, error)
        self._tell([event])

    def _answer(self, do: Callable[[], Result], box: SimpleQueue[tuple[Any, BaseException | None]]) -> None:
        try:
            outcome: tuple[Any, BaseException | None] = do(), None
        except BaseException as error:
            outcome = None, error
        self._is_busy = not self.engine.is_idle
        box.put(outcome)

    def _play(self) -> None:
        """Play a round and deliver its events; a failed round ends the running requests."""
        if monotonic() - self._gap > BUSY:
            self._measure()
        try:
            if self._upkeep is not None:
                self._upkeep.before_round(self.engine.parts.controller)
            events = self.engine.step()
        except BaseException as error:
            events = self.engine.fail(error)
            ended = {event.request for event in events if event.finish_reason}
            events += [
                _failed(name, error) for name in self._tickets if name not in ended and not self.engine.has(name)
            ]
        self._save(now=False)
        self._tell(events)

    def _tell(self, events: Sequence[Event]) -> None:
        """Deliver events, last of all: the reader of the last one may fork, swap parts or end the process."""
        now, self._is_busy = perf_counter(), not self.engine.is_idle
        for event in events:
            ticket = self._tickets.get(event.request)
            if event.finish_reason is not None:
                self._tickets.pop(event.request, None)
            if ticket is not None:
                ticket.put(event, now)

    def _measure(self) -> None:
        """Measure the machine again if that is due."""
        self._gap = monotonic()
        if self._upkeep is not None:
            try:
                self._upkeep.between_requests(self.engine.parts.controller)
            except Exception:
                log.exception("the machine is not measured again; what is known of it stays")

    def _save(self, *, now: bool) -> None:
        if self._memory is not None:
            try:
                self._memory.save(now=now)
            except Exception:
                log.exception("what was learnt is not saved")

    # ---- the process around it

    def _after_fork(self) -> None:
        if self._is_busy:
            self._state = "lost"
        self._renew()


_WAITING = Service._next.__code__
_services = weakref.WeakSet[Service]()


def _failed(request: int, error: BaseException) -> Event:
    return Event(request, (), "", finish_reason="error", error=reply_error(error))


def _after_fork() -> None:
    for service in list(_services):
        service._after_fork()


def _at_exit() -> None:
    for service in list(_services):
        service._end("ended")


@functools.cache
def _register() -> None:
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork)
