"""Files that are never half there, and processes that take turns at them.

A file is written beside its place and moved there whole. A lock is the system's own (`flock`): it ends with its
process, and a folder is locked without a file being left in it, so a read-only one can be.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 5.0  # seconds after which the process that has the turn is taken for stopped


def write(path: Path, data: bytes, *, is_durable: bool = False) -> None:
    """Put a file in its place as a whole.

    Args:
        is_durable: wait until the bytes are on the disk, so that a power failure leaves the old file or the new one.

    Raises:
        OSError: that cannot be; the old file, if there is one, stays, and nothing lies beside it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        part.write_bytes(data)
        place(part, path, is_durable=is_durable)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def place(part: Path, path: Path, *, is_durable: bool = True) -> None:
    """Give a file that is written its name.

    Raises:
        OSError: that cannot be.
    """
    if is_durable:
        with part.open("rb") as file:
            os.fsync(file.fileno())
    os.replace(part, path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that lock this file waiting, for as long as it takes.

    Raises:
        OSError: the file cannot be made.
    """
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def turn(folder: Path, *, patience: float = PATIENCE) -> Iterator[bool]:
    """Wait until no other process is at the files of a folder, and keep others waiting meanwhile.

    It is advice, not a lock: after `patience` seconds one goes on all the same, and where there is no folder to lock
    (or a file system without locks) at once. Yields whether no other is at it.
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
    """Take a turn; what need not be done `now` waits for no other. Yields whether to go on."""
    with turn(folder, patience=PATIENCE if now else 0.0) as is_ours:
        yield is_ours or now


def _taken(handle: int) -> bool:
    """Whether the turn is ours, or no process can have it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
