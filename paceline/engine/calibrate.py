"""Measure once what forwards and draft steps take on this machine, and remember it on disk.

What is remembered is keyed by the model's file, how it is packed, the processor, its instruction set and the threads.
A file that is unreadable or of another machine is measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from paceline.control.cost import CostTable
from paceline.draft.base import Drafter
from paceline.engine.measured import path_of, read, write
from paceline.hardware import cpu_model
from paceline.model.base import Model
from paceline.model.flatten import SLACK, flatten
from paceline.types import Budget, Json, SamplingParams, TokenTree, View

VERSION = 2  # 2: a draft's layers of four bits stay as they are
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
SURE = 8  # rows that are measured as long as there is time; more only if
LARGE = 0.25  # of the time left is enough for them
TEXT = 64  # tokens in the cache meanwhile
LIMIT = 1.6  # seconds for all forwards together
REPEATS = 7
STEPS = 4  # of a draft, and so many drafts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured: the target's forwards, and one step of each source that takes time."""

    cost: CostTable
    step_seconds: Mapping[str, float]


def calibrated(
    model: Model, drafter: Drafter, key: Mapping[str, str], *, again: bool = False, progress: bool = False
) -> Calibration:
    """Return what is known of this model and drafter on this machine, measured now if nothing is.

    Args:
        key: what the numbers depend on, by name.
        again: measure whatever is known, because it has proved wrong.
    """
    path = path_of(key)
    known = None if again or path is None else _read(path, key)
    if known is not None:
        return known
    with _notice(progress):
        started = perf_counter()
        found = Calibration(CostTable(measure_forwards(model)), measure_steps(drafter, model.spec.vocab))
        log.info("measured this machine in %.1f s: %s", perf_counter() - started, found.cost.to_json())
    if path is not None:
        _write(path, key, found)
    return found


def measure_forwards(
    model: Model, *, limit: float = LIMIT, clock: Callable[[], float] = perf_counter
) -> dict[int, float]:
    """Return the least seconds of forwards by rows: small ones always, more of them and larger ones as time allows."""
    tokens = np.arange(TEXT, dtype=np.int32) % model.spec.vocab
    held = min(TEXT, max(model.spec.context - ROWS[-1] - 1, 1))
    widths = [rows for rows in ROWS if held + rows <= model.spec.context]
    cache = model.new_cache(TEXT + 2 * SLACK)
    sequence = cache.open()
    model.forward(flatten(cache, [sequence], [TokenTree.chain(tokens[:held])], [1]), cache)
    cache.commit(sequence, range(held), tokens[:held].tolist())

    def forward(rows: int) -> float:
        chain = TokenTree.chain(np.resize(tokens, rows))
        batch = flatten(cache, [sequence], [chain], [rows])
        started = clock()
        model.forward(batch, cache)
        return clock() - started

    forward(1)  # the first ones of a process are slow
    started = clock()
    seconds: dict[int, list[float]] = {}
    for _ in range(REPEATS):
        for rows in widths:
            known = seconds.get(rows)
            expected = min(known) if known else (1 + 0.1 * rows) * min(seconds.get(1, [0.0]))
            left = limit - (clock() - started)
            if expected < (left if rows <= SURE else LARGE * left) or not seconds:
                seconds.setdefault(rows, []).append(forward(rows))
    cache.release(sequence)
    return {rows: max(min(found), 1e-9) for rows, found in seconds.items()}  # what disturbs only ever adds


def measure_steps(drafter: Drafter, vocab: int) -> dict[str, float]:
    """Return the least seconds of a step of each of the drafter's sources that takes time."""
    view = View(-1, np.arange(TEXT // 2, dtype=np.int32) % vocab, SamplingParams(), TEXT // 2)
    seconds: dict[str, list[float]] = {}
    for repeat in range(STEPS):
        drafter.propose([view], [Budget(STEPS, STEPS)])
        for name, spent in drafter.spent.items() if repeat else ():  # the first one reads the text
            if spent.steps and not spent.read:
                seconds.setdefault(name, []).append(spent.seconds / spent.steps)
    drafter.release(view.id)
    return {name: min(found) for name, found in seconds.items()}


def identity(path: Path) -> str:
    """Return what tells a model from others at a glance: names and sizes of its files, a digest of some bytes."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("*")) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name}:{size};".encode())
        with file.open("rb") as stream:
            for place in (0, size // 2, max(size - 65536, 0)):
                stream.seek(place)
                digest.update(stream.read(65536))
    return digest.hexdigest()


def machine_key(threads: int, isa: str) -> dict[str, str]:
    """Return what of this machine the numbers depend on."""
    return {"cpu": cpu_model(), "threads": str(threads), "isa": isa}


def _read(path: Path, key: Mapping[str, str]) -> Calibration | None:
    try:
        said = read(path, key, VERSION)
        if said is None:
            return None
        steps = {str(name): float(seconds) for name, seconds in said["step_seconds"].items()}
        if not all(math.isfinite(seconds) and seconds > 0 for seconds in steps.values()):
            raise ValueError(f"steps take more than no time, got {steps}")
        return Calibration(CostTable.from_json(said["forward_seconds"]), steps)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        log.info("measuring this machine again: %s is of no use (%s)", path, error)
        return None


def _write(path: Path, key: Mapping[str, str], found: Calibration) -> None:
    """Keep what was found; if that cannot be, the next load measures again."""
    said: Json = {"forward_seconds": found.cost.to_json(), "step_seconds": dict(found.step_seconds)}
    try:
        write(path, key, VERSION, said)
    except OSError as error:
        log.info("what was measured is not kept: %s", error)


@contextlib.contextmanager
def _notice(wanted: bool) -> Iterator[None]:
    """Say on a terminal what takes so long."""
    shown = wanted and sys.stderr is not None and sys.stderr.isatty()
    if shown:
        sys.stderr.write("measuring this machine once …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
