"""Whose turn it is to play rounds of one LLM: one thread's at a time, nobody's inside a round of his own, and nobody's
once Python is about to end.

A thread that Python ends while it is in native code takes the process down with it, so whoever plays is waited for.
Loading and calibrating are nobody's turn: who does that in a thread joins it.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from paceline.errors import PacelineError, UsageError

PATIENCE = 10.0  # seconds that the end of the process waits for rounds

Result = TypeVar("Result")


class Baton:
    """Held while something is done that must be alone with a model, its cache and its requests."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_taken = False  # by this thread, where the lock lets it in
        self._is_lost = False  # a fork left whoever had it behind, in the middle of something
        _batons.add(self)
        _register()

    def alone(self, do: Callable[[], Result]) -> Result:
        """Wait for the turn and return what `do` does.

        A callable, for whoever is interrupted between two lines of a context manager would keep the turn.

        Raises:
            UsageError: this thread has the turn already.
            PacelineError: this process was forked while another thread had it.
        """
        with self._lock:
            self._check()
            self._is_taken = True
            try:
                return do()
            finally:
                self._is_taken = False

    def alone_if_free(self, do: Callable[[], None]) -> None:
        """Do it if nobody has the turn, this thread included; else nothing."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_taken and not self._is_lost:
                    self.alone(do)
            finally:
                self._lock.release()

    def _check(self) -> None:
        if self._is_taken:
            raise UsageError(
                "a model cannot be asked for a reply from inside one of its own rounds",
                hint="a logits processor, a drafter or a signal handler that wants one needs an LLM of its own",
            )
        if self._is_lost:
            raise PacelineError(
                "this process was forked while another thread was generating, so half a round is missing here",
                hint="fork while nothing is being generated, or load the model in the child",
            )

    def _after_fork(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock, self._is_taken, self._is_lost = threading.RLock(), False, True

    def _keep(self, until: float) -> None:
        self._lock.acquire(timeout=max(until - monotonic(), 0.0))


_batons = weakref.WeakSet[Baton]()


def _after_fork() -> None:
    for baton in _batons:
        baton._after_fork()


def _at_exit() -> None:
    until = monotonic() + PATIENCE
    for baton in list(_batons):
        baton._keep(until)  # for good: who waits for it now waits until the end


@functools.cache
def _register() -> None:
    """Late, so that what is saved at the end is saved after the last round: who registers last comes first there."""
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork)
