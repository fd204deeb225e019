"""Measure the seconds of forwards and draft steps on this machine once, and keep them on disk.

The key is the model's file, how it is packed, the processor, its instruction set and the threads; a quality says how
far the numbers can be trusted. An unreadable file, or one of another machine, is measured again; so is a doubtful one,
once the machine is quieter.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from paceline.core.aliases import Json
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import TokenTree
from paceline.draft.base import Drafter
from paceline.engine.keyed_store import path_of, read, write
from paceline.engine.quality import REPEATS as ENOUGH
from paceline.engine.quality import SURE, Observed, Quality, judge, worth_replacing
from paceline.estimate.cost import CostTable
from paceline.hardware import Neighbours, cpu_model, own_cores
from paceline.model.base import Model, packed
from paceline.model.flatten import SLACK, flatten
from paceline.store import turn

VERSION = 3  # 3: with its quality; 2: a draft's layers of four bits stay as they are
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
SMALL = 8  # rows that are measured as long as there is time
LARGE = 0.25  # larger ones only if they take at most this share of the time left
TEXT = 64  # tokens in the cache meanwhile, read in pieces
PIECES = (1, 9, TEXT)  # tokens; the next piece is read while it should take less than READING
READING = 0.5  # of the limit: a slow machine reads a shorter text, for attention is little of a forward
LIMIT = 1.6  # seconds for all forwards together
MUST = 4.0  # seconds for two forwards of each row that is required
HARD = 6.0  # seconds for everything, unless two forwards and a draft step take longer: meanwhile a user waits
REPEATS = 7
STEPS = 4  # steps of a draft, and number of drafts
STEP_LIMIT = 1.0  # seconds for drafts; where reading a text takes longer, single steps are measured, and few
PROBE = 96 << 20  # bytes that are read for the floor, beyond most caches; the rest is taken in proportion
LEAST = 32 << 20  # bytes of weights from which the time to read them bounds a forward
LOOK = 0.15  # seconds of watching other processes' load where no window was open: three ticks a core

log = logging.getLogger(__name__)


def involuntary_switches() -> int:
    """Return how often this process's threads had to give up a core."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@dataclass(frozen=True, slots=True)
class Instruments:
    """Counters that are read during a measurement; the window on other processes' load opens when this is made."""

    clock: Callable[[], float] = perf_counter
    cpu: Callable[[], float] = time.process_time
    switches: Callable[[], int] = involuntary_switches
    neighbours: Callable[[], float | None] = field(default_factory=lambda: Neighbours().read)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured: the target's forwards, one step of each source that takes time, and the quality of both."""

    cost: CostTable
    step_seconds: Mapping[str, float]
    quality: Quality

    def to_json(self) -> Json:
        """Return it as plain data, as it is kept."""
        return {
            "forward_seconds": self.cost.to_json(),
            "step_seconds": dict(self.step_seconds),
            "quality": self.quality.to_json(),
        }


@dataclass(slots=True)
class Forwards:
    """Seconds of forwards by rows, and what was counted while they ran."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    wall: float = 0.0
    cpu: float = 0.0
    switches: int = 0

    @property
    def least(self) -> dict[int, float]:
        """Return the least seconds by rows: disturbances only add time."""
        return {rows: max(min(found), 1e-9) for rows, found in self.seconds.items()}


def calibrated(
    model: Model,
    drafter: Drafter,
    key: Mapping[str, str],
    *,
    again: bool = False,
    progress: bool = False,
    instruments: Instruments | None = None,
) -> Calibration:
    """Return the calibration of this model and drafter on this machine; measure if there is none, or a doubtful one.

    Processes that measure at the same time take turns, so that they do not disturb each other; the later ones find what
    the first one kept.

    Args:
        key: what the numbers depend on, by name.
        again: measure even if a calibration is kept, because it has proved wrong.
        instruments: opened before the model was loaded, so that they saw how busy other processes are.
    """
    path, looked = path_of(key), instruments is not None
    tools = instruments or Instruments()
    found = None if again or path is None else _read(path, key)
    if found is not None and found.quality.is_doubtful and not looked:
        time.sleep(LOOK)
    if found is not None and not worth_replacing(found.quality, tools.neighbours()):
        return found
    with _notice(progress), _turn(path) as waited:
        newer = _read(path, key) if waited and path is not None and not again else None
        if newer is not None and (found is None or newer.quality != found.quality):
            return newer
        started = perf_counter()
        found = measure(model, drafter, tools)
        log.info("measured this machine in %.1f s: %s", perf_counter() - started, found.to_json())
        if path is not None:
            _write(path, key, found)
    return found


def known(key: Mapping[str, str]) -> Calibration | None:
    """Return the calibration kept for a key, sound or not; `None` without a usable one."""
    path = path_of(key)
    return None if path is None else _read(path, key)


def measure(model: Model, drafter: Drafter, tools: Instruments) -> Calibration:
    """Measure forwards and draft steps; once more if the first time is doubtful and took no more than half the time."""
    started = tools.clock()
    first = _attempt(model, drafter, tools)
    if not first.quality.is_doubtful or 2 * (tools.clock() - started) > HARD:
        return first
    second = _attempt(model, drafter, tools)
    if not second.quality.is_doubtful:
        return second
    # Both were disturbed, which only adds time.
    both = {rows: min(_base(first, rows), _base(second, rows)) for rows in _rows(first) | _rows(second)}
    steps = {
        name: min(first.step_seconds.get(name, math.inf), second.step_seconds.get(name, math.inf))
        for name in {**first.step_seconds, **second.step_seconds}
    }
    return Calibration(CostTable(both), steps, min(first.quality, second.quality, key=lambda one: len(one.doubts)))


def _rows(found: Calibration) -> set[int]:
    return set(found.cost.measured_rows)


def _base(found: Calibration, rows: int) -> float:
    return float(found.cost.to_json().get(str(rows), math.inf))


def _attempt(model: Model, drafter: Drafter, tools: Instruments) -> Calibration:
    native = packed(model)
    threads = native.threads if native else 1
    tools.neighbours()
    floor = native.floor_seconds(PROBE) if native and native.weight_bytes >= LEAST else 0.0
    forwards = time_forwards(model, tools)
    steps = measure_steps(drafter, model.spec.vocab, clock=tools.clock)
    seen = Observed(
        forwards.seconds,
        forwards.wall,
        forwards.cpu,
        forwards.switches,
        threads,
        tools.neighbours(),
        max(len(own_cores()) - threads, 0),
        floor,
    )
    return Calibration(CostTable(forwards.least), steps, judge(seen))


def measure_forwards(
    model: Model, *, limit: float = LIMIT, clock: Callable[[], float] = perf_counter
) -> dict[int, float]:
    """Return the least seconds of forwards by rows."""
    return time_forwards(model, Instruments(clock=clock), limit=limit).least


def time_forwards(model: Model, tools: Instruments, *, limit: float = LIMIT) -> Forwards:
    """Time forwards by rows: small ones always, more of them and larger ones as time allows.

    The rows that a calibration is judged by are timed twice even beyond `limit`, up to `MUST`; two rows in any case.
    """
    tokens = np.arange(TEXT, dtype=np.int32) % model.spec.vocab
    most = min(TEXT, max(model.spec.context - ROWS[-1] - 1, 1))
    cache, found = model.new_cache(TEXT + 2 * SLACK), Forwards()
    sequence = cache.open()

    def forward(rows: int) -> float:
        batch = flatten(cache, [sequence], [TokenTree.chain(np.resize(tokens, rows))], [rows])
        switches, cpu, started = tools.switches(), tools.cpu(), tools.clock()
        model.forward(batch, cache)
        seconds = tools.clock() - started
        found.cpu += tools.cpu() - cpu
        found.switches += tools.switches() - switches
        found.wall += seconds
        return seconds

    held, took, started = 0, 0.0, tools.clock()
    for until in PIECES:
        rows = min(until, most) - held
        if rows > 0 and took * rows <= READING * limit * max(held, 1):
            took = forward(rows)
            cache.commit(sequence, range(rows), tokens[held : held + rows].tolist())
            held += rows
    if held == 1 and took > READING * limit:
        found.seconds[1] = [took]  # on so slow a machine the first forward's extra cost hardly matters
    else:
        forward(1)  # the first ones of a process are slow
        found.wall, found.cpu, found.switches = 0.0, 0.0, 0
        started = tools.clock()
    widths = [rows for rows in ROWS if held + rows <= model.spec.context]
    for _ in range(REPEATS):
        for rows in widths:
            known = found.seconds.get(rows)
            expected = min(known) if known else (1 + 0.1 * rows) * min(found.seconds.get(1, [0.0]))
            is_needed = rows in SURE and len(known or ()) < ENOUGH
            left = (MUST if is_needed else limit) - (tools.clock() - started)
            is_second = known is None and len(found.seconds) < 2
            if is_second or expected < (left if rows <= SMALL else LARGE * left):
                found.seconds.setdefault(rows, []).append(forward(rows))
    cache.release(sequence)
    return found


def measure_steps(drafter: Drafter, vocab: int, *, clock: Callable[[], float] = perf_counter) -> dict[str, float]:
    """Return the least seconds of a step of each of the drafter's sources that takes time."""
    view = View(-1, np.arange(TEXT // 2, dtype=np.int32) % vocab, SamplingParams(), TEXT // 2)
    seconds: dict[str, list[float]] = {}
    started = clock()
    drafter.propose([view], [Budget(1, 1)])  # reads the text
    steps = STEPS if clock() - started < STEP_LIMIT else 1
    for repeat in range(STEPS):
        drafter.propose([view], [Budget(steps, steps)])
        for name, spent in drafter.spent.items():
            if spent.steps and not spent.read:
                seconds.setdefault(name, []).append(spent.seconds / spent.steps)
        if seconds and (repeat or steps < STEPS) and clock() - started > STEP_LIMIT:
            break
    drafter.release(view.id)
    return {name: min(found) for name, found in seconds.items()}


def identity(path: Path) -> str:
    """Return a quick identity of a model: names and sizes of its files, a digest of some bytes."""
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
    """Return the properties of this machine that the numbers depend on."""
    return {"cpu": cpu_model(), "threads": str(threads), "isa": isa}


def _read(path: Path, key: Mapping[str, str]) -> Calibration | None:
    try:
        said = read(path, key, VERSION)
        if said is None:
            return None
        steps = {str(name): float(seconds) for name, seconds in said["step_seconds"].items()}
        if not all(math.isfinite(seconds) and seconds > 0 for seconds in steps.values()):
            raise ValueError(f"steps take more than no time, got {steps}")
        cost = CostTable.from_json(said["forward_seconds"])
        if len(cost.measured_rows) < 2:
            raise ValueError("one number of rows is no table")
        return Calibration(cost, steps, Quality.from_json(said["quality"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        log.info("measuring this machine again: %s is of no use (%s)", path, error)
        return None


def _write(path: Path, key: Mapping[str, str], found: Calibration) -> None:
    """Write a calibration; if that fails, the next load measures again."""
    if len(found.cost.measured_rows) < 2:
        log.info("what was measured is not kept: one number of rows is no table")
        return
    try:
        write(path, key, VERSION, found.to_json())
    except OSError as error:
        log.info("what was measured is not kept: %s", error)


@contextlib.contextmanager
def _turn(path: Path | None) -> Iterator[bool]:
    """Take turns with other processes that measure; yields whether another process measured first."""
    if path is None:
        yield False
        return
    # Not the folder of the file itself: its lock is for short writes.
    with turn(path.parent.parent, patience=0.0) as is_ours:
        if is_ours:
            yield False
            return
    with turn(path.parent.parent, patience=HARD):
        yield True


@contextlib.contextmanager
def _notice(wanted: bool) -> Iterator[None]:
    """Show on a terminal that a measurement is running."""
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
