"""What each tuned number and each device of the policy is worth: switch it off, halve it or double it, and play again.

A change patches names where they are read, in one process, for the time of one session; nothing of it stays.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from rig.hindsight import geometric
from rig.judge import Question, Speedups, Task, answers, controlled
from rig.play import AUTO

Patch = tuple[str, Any]
"""`module:name` below paceline, or of the rig if it begins so, and what to put there."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different."""

    name: str
    patches: tuple[Patch, ...] = ()
    draft: str = ""  # instead of the question's


IMPORTED = {("control.draft_prefill", "USUAL"), ("control.guard", "START")}  # numbers that the controller reads as well


def _number(where: str, *values: float, also: str = "") -> list[Change]:
    module, name = where.split(":")
    homes = [where, *([f"{also}:{name}"] if also else [])]
    return [Change(f"{module} {name} = {value:g}", tuple((home, value) for home in homes)) for value in values]


def _numbers() -> Iterator[Change]:
    """Yield changes of numbers: off where that has a meaning, else half, and double."""
    for module, *numbers in (
        ("control.optimal", ("MEMORY", 0.96, 0.99), ("UNHEARD", 32, 10**9), ("AGAIN", 4, 16), ("HOPED", 0.8),
         ("SAME", 1, 16), ("NEAR", 4, 16)),
        ("control.gate", ("HOPE", 1, 4), ("MOST", 3, 12), ("TRY", 0, 1), ("SHARE", 0.003, 0.012), ("WORST", 1, 4)),
        ("estimate.source", ("PRIOR", 0.5, 0.85), ("WEIGHT", 1, 4), ("DECAY", 0.96, 0.99), ("OWN_DECAY", 0.94, 0.985),
         ("FADE", 0.994, 1), ("DOUBTED", 3, 10**9), ("SHRINK", 1.5, 6), ("QUIET", 12, 10**9), ("WINDOW", 5, 17),
         ("EXPECTED", 0.2, 0.6), ("GAINED", 16, 64)),
        ("control.draft_prefill", ("USUAL", 64, 256), ("BEFORE", 6.5, 16), ("COPIED", 0, 3), ("MARGIN", 1, 3)),
        ("control.guard", ("START", 1.5, 6), ("MOST", 3, 12), ("WIDE", 0, 4), ("SHARE", 0.005, 0.02), ("AGE", 64, 256),
         ("KEPT", 1, 5), ("PROOF", 1, 4), ("DISTURBED", 2, 8), ("LONGEST", 4, 16)),
        ("estimate.cost", ("PRIOR", 2, 6), ("WINDOW", 5, 17), ("RECENT", 2, 8), ("STALE", 256, 10**9),
         ("SOON", 16, 10**9), ("DISTURBED", 1, 2), ("SLACK", 1.2, 3)),
        ("estimate.acceptance", ("TILTED", 1, 4), ("TILT_DECAY", 0.94, 0.985), ("CERTAIN", 0.01, 0.04)),
        ("draft.compose.mix", ("FADE", 0.96, 1)),
        ("draft.model.chain", ("ALIKE", 4, 16), ("FADE", 0.94, 1), ("USUAL", 4, 16)),
    ):  # fmt: skip
        for name, *values in numbers:
            also = "control.optimal" if (module, name) in IMPORTED else ""
            yield from _number(f"{module}:{name}", *values, also=also)


def _devices() -> Iterator[Change]:
    """Yield changes that switch a device off."""
    for name, where, value in (
        ("guard off", "control.guard:Guard.allows", lambda self, sequences: True),
        ("gate off: every source has credit", "control.gate:Gate.is_open", lambda self, sequence: True),
        ("long-run rate off: prices are those of plain decoding", "control.optimal:MEMORY", 0.0),
        ("costs as calibrated, never corrected", "estimate.cost:CostTable.observe", lambda self, rows, seconds: None),
        (
            "whatever is unread is read",
            "control.draft_prefill:DraftPrefill.is_worth",
            lambda self, seconds, saved: True,
        ),
        ("tries off", "control.optimal:OptimalController._tries", lambda self, source, reads, *rest: [0] * len(reads)),
        ("guesses at any price off", "control.optimal:OptimalController._force", lambda self, *rest: None),
        ("a source's past counts in full when its gate closes", "estimate.source:DOUBTED", 10.0**9),
        ("limits of depth by averages on", "rig.play:weighing", lambda *drafters: frozenset()),
        ("a text's odds (tilt) off", "estimate.acceptance:Tilt.moved", lambda self, rates: rates),
        ("fair prices in a mix off", "draft.compose.mix:_fair", lambda budget, copies, chains: budget),
        ("discounts of siblings off", "draft.compose.mix:discount_siblings", lambda draft: draft.acceptance_prob),
        ("runners-up off", "draft.model.steps:RANKS", 0),
        ("first guesses speak for others off", "draft.model.chain:scaled", lambda rates, ratio: rates),
        ("suffix's prior flat", "draft.lookup.suffix:OF_LENGTH", (0.68,) * 8),
        ("suffix's shares flat", "draft.lookup.suffix:OF_SHARE", (0.68,) * 7),
    ):
        yield Change(name, ((where, value),))
    for left_out in AUTO.split(","):
        yield Change(f"without {left_out}", draft=",".join(name for name in AUTO.split(",") if name != left_out))


NOTHING = Change("nothing (luck alone)")
CHANGES = {change.name: change for change in (NOTHING, *_devices(), *_numbers())}


@contextlib.contextmanager
def changed(change: Change) -> Iterator[None]:
    """While entered, a change holds.

    Raises:
        AttributeError: a name is not there any more.
    """
    undo = list[tuple[Any, str, Any]]()
    try:
        for where, value in change.patches:
            module, path = where.split(":")
            home = importlib.import_module(module if module.startswith("rig") else f"paceline.{module}")
            *owners, name = path.split(".")
            owner = reduce(getattr, owners, home)
            undo.append((owner, name, owner.__dict__[name] if name in vars(owner) else getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, before in reversed(undo):
            setattr(owner, name, before)


def ablated(task: Task) -> Speedups:
    """Play a session with the change that is the task's kind."""
    change = CHANGES[task.kind]
    question = replace(task.question, draft=change.draft or task.question.draft)
    with changed(change):
        return controlled(replace(task, question=question))


def ablate(question: Question, names: Sequence[str], *, processes: int = 2, show: Any = None) -> dict[str, Any]:
    """Return what each change makes of a controller's speed, by machine; geometric means over workloads.

    The change that is none plays other sessions: what luck makes of it.
    """
    wanted = [CHANGES[name] for name in names]
    base = [Task(NOTHING.name, question, m, s) for m in question.machines for s in question.sessions]
    tasks = list(base)
    for change in wanted:
        later = 100 if change is NOTHING else 0
        tasks += [replace(task, kind=change.name, session=task.session + later) for task in base]
    speeds = list[float]()
    for i, said in enumerate(answers(tasks, processes, ablated), start=1):
        speeds.append(_speed(said))
        if show is not None and i % len(base) == 0:
            show(f"{i // len(base)} of {len(tasks) // len(base)}")
    found = []
    for i, change in enumerate(wanted, start=1):
        ratios = [new / old for new, old in zip(speeds[i * len(base) :], speeds[: len(base)], strict=False)]
        each = len(question.sessions)
        machines = {m: geometric(ratios[j * each : (j + 1) * each]) for j, m in enumerate(question.machines)}
        found.append({"name": change.name, "machines": machines, "all": geometric(list(machines.values()))})
    return {"sessions": list(question.sessions), "machines": list(question.machines), "changes": found}


def _speed(said: Speedups) -> float:
    """Return a session's speed-up: the geometric mean over workloads of that over their texts."""
    workloads: dict[str, list[float]] = {}
    for name, speedups in said.items():
        workloads.setdefault(name.rpartition(" ")[0], []).extend(speedups)
    return geometric([geometric(each) for each in workloads.values()])
