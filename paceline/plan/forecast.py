"""What speculation would bring: one answer from shapes and data sheets, or from a doctor's measurements."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.plan.hardware import Hardware
from paceline.plan.performance import (
    Choice,
    Costs,
    best_chain,
    best_tree,
    break_even,
    ceiling,
    chain,
    measured_curve,
    naive_speedup,
    rank_acceptance,
)
from paceline.plan.roofline import Run

Json = dict[str, Any]
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (*range(1, 9), 10, 12, 16)
SEEDS_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What a forecast starts from; `draft` None drafts for free.

    `measured` replaces what the data sheets say. `cost`, a draft step in plain tokens, and `v`, points of v(M), replace
    both; they are those of one sequence.
    """

    target: Run
    draft: Run | None
    acceptance: Sequence[float]
    batch: int = 1
    measured: Json = field(default_factory=dict)
    cost: float | None = None
    v: Sequence[tuple[int, float]] = ()


def forecast(plan: Plan) -> Json:
    """Return the forecast as plain data; every time is in seconds, every speed-up over plain decoding."""
    costs, plain = costs_of(plan, plan.batch)
    first = float(plan.acceptance[0])
    best = best_chain(plan.acceptance, costs)
    tree = best_tree(rank_acceptance(first, 4), costs)
    room = memory(plan)
    seeds = naive_speedup(first, SEEDS_LENGTH, costs.draft_step)
    return {
        "measured": bool(plan.measured),
        "plain_seconds": plain,
        "plain_tokens_per_second": 1 / plain,
        "draft_step": costs.draft_step,
        "overhead": costs.overhead,
        "acceptance": list(plan.acceptance),
        "v": {str(rows): costs.curve(rows) for rows in ROWS},
        "lengths": [_choice(chain(plan.acceptance, length, costs)) for length in _lengths(best.nodes)],
        "best_chain": _choice(best),
        "best_tree": _choice(tree),
        "break_even": break_even(costs),
        "ceiling": min(ceiling(first), 1e9),
        "batches": [_batch(plan, batch) for batch in BATCHES],
        "memory": room,
        "seeds_formula": {
            "length": SEEDS_LENGTH,
            "speedup": seeds,
            "right": chain(plan.acceptance, SEEDS_LENGTH, costs).speedup,
            "why": "it lets refusals cut nothing, forgets the bonus token, and pays for one draft step of "
            f"{SEEDS_LENGTH} and none of the extra rows the target checks",
        },
        "verdict": verdict(best, tree, costs, first) + ("" if plan.measured else _shortage(room, plan.target.hardware)),
    }


def costs_of(plan: Plan, batch: int) -> tuple[Costs, float]:
    """Return a round's costs in plain tokens, and the seconds of a plain step of the whole batch."""
    points = list(plan.v)
    if plan.measured:
        timed = sorted((int(rows), float(seconds)) for rows, seconds in plan.measured["target_seconds"].items())
        points, one = points or timed, timed[0][1]
    else:
        one = plan.target.seconds(1)
    if points:
        known = measured_curve(points)
        at = known(batch)

        def curve(rows: int) -> float:
            return known(batch * rows) / at
    else:
        at = plan.target.seconds(batch, batch) / one

        def curve(rows: int) -> float:
            return plan.target.seconds(batch * rows, batch) / (one * at)

    plain = one * at
    if plan.cost is not None:
        step = plan.cost / at
    elif plan.measured:
        step = float(plan.measured.get("draft_step_seconds", 0.0)) / plain
    else:
        step = plan.draft.seconds(batch, batch) / plain if plan.draft else 0.0
    return Costs(step, curve, float(plan.measured.get("other_seconds", 0.0)) / plain), plain


def memory(plan: Plan) -> Json:
    """Return bytes: weights, keys and values of the batch, and the logits rows of a round."""
    runs = [run for run in (plan.target, plan.draft) if run is not None]
    kv = [plan.batch * run.shape.kv_bytes(run.context) for run in runs]
    found = {
        "target_weights": plan.target.weight_bytes,
        "draft_weights": plan.draft.weight_bytes if plan.draft else 0.0,
        "target_kv": kv[0],
        "draft_kv": kv[1] if plan.draft else 0.0,
        "logits": plan.batch * (best_chain(plan.acceptance, costs_of(plan, plan.batch)[0]).nodes + 1)
        * plan.target.shape.vocab * 4.0,
    }  # fmt: skip
    total = sum(found.values())
    return {**found, "total": total, "fits": total <= plan.target.hardware.memory_bytes}


def verdict(best: Choice, tree: Choice, costs: Costs, acceptance: float) -> str:
    """Say in one sentence whether it is worth it."""
    least = break_even(costs)
    if best.nodes == 0:
        wanted = "no acceptance would pay" if least is None else f"it would pay from an acceptance of {least:.1%} on"
        return f"Do not speculate: at an acceptance of {acceptance:.0%} every draft length is slower; {wanted}."
    better = f", a tree of {tree.nodes} nodes {tree.speedup:.2f}×" if tree.speedup > best.speedup * 1.02 else ""
    said = f"Draft {best.nodes} token{'s' if best.nodes > 1 else ''} a round: {best.speedup:.2f}× plain decoding"
    return f"{said}{better}; it pays from an acceptance of {least or 0:.1%} on."


def read_doctor(path: Path) -> Json:
    """Return the measurements in a doctor's JSON.

    Raises:
        UsageError: the file cannot be read, or is not a doctor's.
    """
    hint = "write one with: paceline doctor --model M --draft D --json > doctor.json"
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError) as error:  # bytes that are no text included
        raise UsageError(f"`{path}` must be a doctor's JSON; it is no JSON", hint=hint) from error
    measured = found.get("measured") if isinstance(found, dict) else None
    try:
        assert isinstance(measured, dict)
        seconds = {int(rows): float(value) for rows, value in measured["target_seconds"].items()}
        odds = [float(value) for value in measured.get("acceptance", [])]
        rest = [float(measured.get(name, 0.0)) for name in ("draft_step_seconds", "other_seconds")]
        good = 1 in seconds and all(0 < value < math.inf for value in seconds.values())
        good = good and all(0 <= value < math.inf for value in rest) and all(0 <= value <= 1 for value in odds)
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        good = False
    if not good:
        raise UsageError(f"`{path}` must be a doctor's JSON with `measured.target_seconds` by rows", hint=hint)
    assert isinstance(measured, dict)
    return measured


def _lengths(best: int) -> list[int]:
    """Return the lengths to list, the best one among them."""
    return sorted({*LENGTHS, best} - {0})


def _shortage(room: Json, machine: Hardware) -> str:
    if room["fits"]:
        return ""
    has = f"{room['total'] / 1e9:.1f} GB are wanted and {machine.name} has {machine.memory_bytes / 1e9:.0f}"
    return f" It does not fit: {has}; fewer --bits or a smaller model."


def _choice(choice: Choice) -> Json:
    return {
        "nodes": choice.nodes,
        "depth": choice.depth,
        "tokens": choice.tokens,
        "time": choice.time,
        "speedup": choice.speedup,
    }


def _batch(plan: Plan, batch: int) -> Json:
    costs, plain = costs_of(plan, batch)
    best = best_chain(plan.acceptance, costs)
    return {"batch": batch, "plain_tokens_per_second": batch / plain, "length": best.nodes, "speedup": best.speedup}
