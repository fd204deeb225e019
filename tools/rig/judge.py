"""Play sessions on every machine and hold them against what hindsight makes of the same texts; see rig/hindsight.py.

Work is cut into tasks by machine and session, which processes share. A result is plain data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rig.hindsight import (
    best_by_workload,
    clairvoyant,
    fixed_speedups,
    geometric,
    held_by_lookups,
    price_speedups,
    shared_start,
)
from rig.machines import MACHINES, Machine
from rig.play import AUTO, MODEL, Player, control_of, order_of
from rig.recording import HOME, Recording, load

TOLERANCE = 1.01  # times the clairvoyant that may be reached: its look-ups have learnt other rates

Speedups = dict[str, list[float]]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What to play: `sessions` are orders of the texts, each with noise of its own."""

    control: str = "optimal"
    draft: str = AUTO
    machines: tuple[str, ...] = tuple(MACHINES)
    sessions: tuple[int, ...] = (0, 1)
    file: Path = HOME


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a question: `kind` names a function of this module, `session` is -1 for all that need none."""

    kind: str
    question: Question
    machine: str
    session: int = 0


@cache
def _recording(file: Path) -> Recording:
    return load(file)


def controlled(task: Task) -> Speedups:
    """Return each text's speed-up in one session, by text."""
    recording, machine = _recording(task.question.file), MACHINES[task.machine]
    player = Player(recording, machine, control_of(task.question.control), draft=task.question.draft, seed=task.session)
    played = [player.play(text) for text in order_of(recording, task.session)]
    return {one.text.name: [one.speedup(machine)] for one in played}


def priced(task: Task) -> Speedups:
    """Return each text's speed-up by price, texts as recorded."""
    recording = _recording(task.question.file)
    return price_speedups(recording, recording.texts, MACHINES[task.machine], task.question.draft)


def fixed(task: Task) -> dict[str, Speedups]:
    """Return each text's speed-up by machine and fixed length."""
    recording = _recording(task.question.file)
    return fixed_speedups(recording, recording.texts, _machines(task.question), task.question.draft)


def foreseen(task: Task) -> dict[str, list[float]]:
    """Return each text's speed-up by machine if everything is known beforehand."""
    recording, draft = _recording(task.question.file), task.question.draft
    texts, shared = recording.texts, shared_start(recording.texts)
    held = held_by_lookups(recording, texts, draft)
    has_model = MODEL in draft.split(",")
    return {
        machine.name: [
            clairvoyant(text, lookups, machine, unread=len(text.prompt) - shared if has_model else None)
            for text, lookups in zip(texts, held, strict=True)
        ]
        for machine in _machines(task.question)
    }


KINDS: dict[str, Callable[[Task], Any]] = {
    "controlled": controlled,
    "priced": priced,
    "fixed": fixed,
    "foreseen": foreseen,
}


def answer(task: Task) -> Any:
    """Do a task."""
    return KINDS[task.kind](task)


def answers(tasks: Sequence[Task], processes: int, do: Callable[[Task], Any] = answer) -> Iterator[Any]:
    """Do tasks, in order, shared by so many processes."""
    if processes < 2:
        yield from map(do, tasks)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(do, tasks)


def judge(question: Question, *, processes: int = 2) -> Json:
    """Return what a controller makes, by machine and workload, and what hindsight makes of the same."""
    tasks = [Task("controlled", question, m, s) for m in question.machines for s in question.sessions]
    first = question.machines[0]
    tasks += [Task("priced", question, m) for m in question.machines]
    tasks += [Task("fixed", question, first), Task("foreseen", question, first)]
    done = list(answers(tasks, processes))
    found = {task.machine: list[Speedups]() for task in tasks}
    for task, said in zip(tasks, done, strict=True):
        if task.kind == "controlled":
            found[task.machine].append(said)
    prices = {task.machine: said for task, said in zip(tasks, done, strict=True) if task.kind == "priced"}
    *_, lengths, known = done
    recording = _recording(question.file)
    machines = {
        name: _table(recording, MACHINES[name], found[name], prices[name], lengths[name], known[name])
        for name in question.machines
    }
    return {
        "control": question.control,
        "draft": question.draft,
        "sessions": list(question.sessions),
        "recording": recording.about,
        "machines": machines,
    }


def _table(
    recording: Recording,
    machine: Machine,
    sessions: Sequence[Speedups],
    prices: Speedups,
    lengths: Speedups,
    known: Sequence[float],
) -> Json:
    """Return a machine's numbers by workload, and their geometric means under `all`."""
    best_prices = best_by_workload(recording.texts, prices)
    best_lengths = best_by_workload(recording.texts, lengths)
    found: Json = {}
    for workload in recording.workloads:
        of = [i for i, text in enumerate(recording.texts) if text.workload == workload]
        each = [one[recording.texts[i].name][0] for one in sessions for i in of]
        found[workload] = _row(
            geometric(each), best_prices[workload], best_lengths[workload], geometric([known[i] for i in of])
        )
    columns = ("speedup", "best_price", "best_fixed", "clairvoyant")
    found["all"] = {name: geometric([found[w][name] for w in recording.workloads]) for name in columns}
    plain = 1 / (machine.target(1) + machine.outside)
    for row in found.values():
        row["tokens_per_second"] = plain * row["speedup"]
        row.update({f"of_{name}": row["speedup"] / row[name] for name in columns[1:]})
    return {name: {key: _rounded(value) for key, value in row.items()} for name, row in found.items()}


def _row(speedup: float, price: tuple[str, float], length: tuple[str, float], known: float) -> Json:
    return {
        "speedup": speedup,
        "best_price": price[1],
        "price": price[0],
        "best_fixed": length[1],
        "fixed": length[0],
        "clairvoyant": known,
    }


def complaints(result: Mapping[str, Any]) -> list[str]:
    """Return what cannot be: more than the clairvoyant has, or a session that drafts nothing and is not plain."""
    found = []
    for machine, rows in result["machines"].items():
        for workload, row in rows.items():
            for name in ("speedup", "best_price", "best_fixed"):
                if row[name] > TOLERANCE * row["clairvoyant"]:
                    found.append(
                        f"{machine}, {workload}: {name} {row[name]} passes the clairvoyant's {row['clairvoyant']}"
                    )
    return found


def _machines(question: Question) -> list[Machine]:
    return [MACHINES[name] for name in question.machines]


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
