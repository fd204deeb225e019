"""Where the compiled kernels come in: one import, one choice of instruction set, one pool of threads."""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING

from paceline.errors import NativeUnavailable, UsageError

if TYPE_CHECKING:
    from paceline import _native as native

__all__ = ["choose_isa", "native", "new_pool", "usable_cores"]

log = logging.getLogger(__name__)

_MOST_PER_CORE = 4


class _Native:
    """Stands for the compiled module until something of it is used: only then must it be there."""

    def __getattr__(self, name: str) -> object:
        """Raise NativeUnavailable, with what to do, if the module cannot be loaded."""
        try:
            module = importlib.import_module("paceline._native")
        except ImportError as error:
            raise NativeUnavailable(
                f"the compiled kernels could not be loaded: {error}",
                hint="reinstall with `pip install paceline`; building needs a C++20 compiler "
                "(g++ >= 11 or clang >= 14)",
            ) from error
        vars(self).update({key: value for key, value in vars(module).items() if not key.startswith("__")})
        return getattr(module, name)


if not TYPE_CHECKING:
    native = _Native()


def choose_isa() -> str:
    """Return the instruction set named by `PACELINE_ISA`, else the best of this processor."""
    available = native.isas()
    asked = os.environ.get("PACELINE_ISA", "")
    if asked and asked not in available:
        raise UsageError(
            f"PACELINE_ISA wants an instruction set this processor runs ({', '.join(available)}), got `{asked}`",
            hint="unset PACELINE_ISA to let Paceline choose",
        )
    return asked or available[0]


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def new_pool(threads: int | None = None) -> native.Pool:
    """Return a pool of `threads` threads, one per usable core unless told."""
    cores = usable_cores()
    count = cores if threads is None else threads
    if not 1 <= count <= 1024:
        raise UsageError(f"threads must be between 1 and 1024, got `{count}`")
    if count > _MOST_PER_CORE * cores:
        raise UsageError(
            f"threads must be at most {_MOST_PER_CORE} for each usable core, of which there are {cores}, got `{count}`",
            hint="leave threads out: one per core is the fastest",
        )
    if count > cores:
        log.warning("more threads than usable cores (%d and %d) wait for each other", count, cores)
    return native.Pool(count)
