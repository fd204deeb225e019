"""Whose turn it is to play rounds of one LLM: one thread's at a time, nobody's inside a round of his own, and nobody's
once Python is about to end.

A thread that Python ends while it is in native code takes the process down with it, so whoever plays is waited for.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref

from paceline.errors import PacelineError, UsageError

PATIENCE = 10.0  # seconds that the end of the process waits for a round


class Baton:
    """Play with `lock` held and after `check`; `is_playing` is for whoever calls what the user has written."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_playing = False
        self.is_lost = False  # a fork left whoever had it behind, in the middle of something
        _batons.add(self)

    def check(self) -> None:
        """Refuse to play; for who holds the lock.

        Raises:
            UsageError: this thread is in the middle of a round already.
            PacelineError: this process was forked while another thread played.
        """
        if self.is_playing:
            raise UsageError(
                "a model cannot be asked for a reply from inside one of its own rounds",
                hint="a logits processor, a drafter or a signal handler that wants one needs a second LLM",
            )
        if self.is_lost:
            raise PacelineError(
                "this process was forked while another thread was generating, so half a round is missing here",
                hint="fork while nothing is being generated, or load the model in the child",
            )


_batons = weakref.WeakSet[Baton]()


def _after_fork() -> None:
    for baton in _batons:
        if baton.lock.acquire(blocking=False):
            baton.lock.release()
        else:
            baton.lock, baton.is_playing, baton.is_lost = threading.RLock(), False, True


def _at_exit() -> None:
    for baton in list(_batons):
        baton.lock.acquire(timeout=PATIENCE)  # for good: who waits for it now waits until the end


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
