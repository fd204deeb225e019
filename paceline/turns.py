"""Processes that rewrite one file take turns, so that none writes over what another has just added."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 5.0  # seconds after which the holder of the turn is taken for stopped


@contextlib.contextmanager
def turn(folder: Path, *, patience: float = PATIENCE) -> Iterator[bool]:
    """Wait until no other process is at the files of a folder, and keep others waiting meanwhile.

    It is advice, not a lock: after `patience` seconds the process goes on all the same, and at once where there is no
    folder to lock or the file system has no locks. A turn ends with its process. Yields whether no other process has
    one.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield True
        return
    try:
        ends = time.monotonic() + patience
        while not (is_ours := _taken(handle)) and time.monotonic() < ends:
            time.sleep(0.01)
        yield is_ours
    finally:
        os.close(handle)


@contextlib.contextmanager
def turn_or_later(folder: Path, *, now: bool) -> Iterator[bool]:
    """Take a turn; where what is to be done need not be done `now`, do not wait. Yields whether to go on."""
    with turn(folder, patience=PATIENCE if now else 0.0) as is_ours:
        yield is_ours or now


def _taken(handle: int) -> bool:
    """Whether the turn is ours, or the file system has none."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
