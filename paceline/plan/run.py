"""Plan from names and numbers as a user gives them; the command and `paceline.run_plan` are this."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.errors import UsageError
from paceline.plan.forecast import Json, Plan, forecast, read_doctor
from paceline.plan.hardware import Hardware
from paceline.plan.names import check_pair, hardware_of, shape_of
from paceline.plan.roofline import Run
from paceline.plan.shapes import SOURCES

TARGET, DRAFT, HARDWARE, ACCEPTANCE, CONTEXT, BITS = "8b", "1b", "a100", 0.75, 1024, 16.0
MOST_BATCH = 65536
FREE = "free"  # a draft that costs nothing: look-up in the text


def run_plan(
    target: str | None = None,
    draft: str | None = None,
    *,
    hardware: str | None = None,
    bandwidth: float | None = None,
    flops: float | None = None,
    acceptance: float | Sequence[float] | None = None,
    context: int | None = None,
    batch: int = 1,
    bits: float | None = None,
    draft_bits: float | None = None,
    measured: str | Path | None = None,
    cost: float | None = None,
    v: Mapping[int, float] | None = None,
) -> Json:
    """Forecast what speculation would bring, without loading anything; what `paceline plan --json` prints.

    Args:
        target: a known model or a model file; "8b" if not given.
        draft: the same, or "free"; "1b" if not given.
        hardware: a known machine, or a JSON file that describes one; "a100" if not given.
        bandwidth, flops: GB/s and TFLOPS that stand for the machine's own.
        acceptance: odds that a guess is right, or those by depth.
        context: tokens in a sequence; 1024 if not given.
        bits, draft_bits: of a weight. If not given, what a model file has; else 16, and for the draft the target's.
        measured: a doctor's JSON, whose times and acceptance stand for models and machine: none may be named as well.
        cost: plain tokens that a draft step takes; goes before everything else, like `v`.
        v: v(M) at some M, the time of checking M tokens in plain tokens.

    Raises:
        UsageError: a name is not known, a number cannot be meant, or two settings exclude each other.
    """
    if measured:
        _check_measured(
            target=target,
            draft=draft,
            hardware=hardware,
            bandwidth=bandwidth,
            flops=flops,
            context=context,
            bits=bits,
            draft_bits=draft_bits,
        )
    draft, context = DRAFT if draft is None else draft, CONTEXT if context is None else context
    _check_number("bits", bits, 1, 32)
    _check_number("draft_bits", draft_bits, 1, 32)
    _check_number("context", context, 1, 2**31 - 1, whole=True)
    _check_number("batch", batch, 1, MOST_BATCH, whole=True)
    data = read_doctor(Path(measured)) if measured else {}
    given = None if acceptance is None else _odds(acceptance)
    odds = given or [float(value) for value in data.get("acceptance") or ()] or [ACCEPTANCE]
    machine = hardware_of(hardware or HARDWARE, bandwidth=bandwidth, flops=flops)
    target_run = _run(TARGET if target is None else target, machine, context, bits, BITS)
    draft_run = None if draft == FREE else _run(draft, machine, context, draft_bits, target_run.bits)
    points = [] if v is None else _points(v)
    if cost is not None:
        _check_cost(cost, draft)
    if draft == FREE and draft_bits is not None:
        raise UsageError("draft_bits must be of a draft model, and look-up has none", hint="drop --draft-bits")
    found: Json = {
        "target": target_run.shape.name,
        "draft": draft_run.shape.name if draft_run else FREE,
        "hardware": machine.name,
        "hardware_source": machine.source,
        "sources": {run.shape.name: SOURCES.get(run.shape.name) for run in (target_run, draft_run) if run},
        "pair": check_pair(target_run.shape, draft_run.shape) if draft_run else None,
        "context": context,
        "batch": batch,
        "bits": target_run.bits,
        "draft_bits": draft_run.bits if draft_run else None,
        "acceptance_is": "given" if given else "measured" if data.get("acceptance") else "assumed",
        "cost_is": "given" if cost is not None else "measured" if data else "computed",
        "v_is": "given" if points else "measured" if data else "computed",
        **forecast(Plan(target_run, draft_run, odds, batch, data, cost, points)),
    }
    if data:  # the measurements name neither models nor machine
        unknown = ("target", "draft", "hardware", "hardware_source", "context", "bits", "draft_bits", "memory", "pair")
        found |= {**dict.fromkeys(unknown), "sources": {}}
    return found


def _run(name: str, machine: Hardware, context: int, bits: float | None, usual: float) -> Run:
    """Return a model on a machine; bits that are not given are the file's or the usual ones."""
    shape, stored = shape_of(name)
    return Run(shape, machine, next(value for value in (bits, stored, usual) if value is not None), context)


def _check_measured(**given: object) -> None:
    """Refuse what only a forecast by data sheets reads."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} is for data sheets, and --from has measured times, got `{value}`",
                hint="drop one of the two",
            )


def _odds(acceptance: float | Sequence[float]) -> list[float]:
    odds = [acceptance] if isinstance(acceptance, (int, float)) else list(acceptance)
    if not odds or any(not 0 <= value <= 1 for value in odds):
        raise UsageError(
            f"acceptance must be numbers from 0 to 1, got `{','.join(f'{value:g}' for value in odds)}`",
            hint="for example 0.8 or 0.8,0.7 by depth",
        )
    return [float(value) for value in odds]


def _check_cost(cost: float, draft: str) -> None:
    if not 0 <= cost < math.inf:
        raise UsageError(f"cost must be plain tokens a draft step takes, 0 or more, got `{cost}`")
    if draft == FREE and cost:
        raise UsageError(f"a free draft costs nothing, got cost `{cost}`", hint="drop one of the two")


def _points(v: Mapping[int, float]) -> list[tuple[int, float]]:
    """Return v(M) as points, ascending, v(1) among them."""
    hint = "for example 1:1,4:1.3,8:1.6: checking four tokens takes 1.3 times as long as one"
    points = sorted({1: 1.0, **v}.items())
    if any(rows < 1 or not 0 < value < math.inf for rows, value in points) or points[0] != (1, 1.0):
        raise UsageError(f"v must give positive numbers by tokens checked, 1 for one, got `{dict(v)}`", hint=hint)
    if len(points) < 2:
        raise UsageError(f"v must say more than that one token takes 1, got `{dict(v)}`", hint=hint)
    fall = next((b for a, b in itertools.pairwise(points) if b[1] < a[1]), None)
    if fall is not None:
        raise UsageError(f"v must not fall as more tokens are checked, got {fall[1]:g} at `{fall[0]}`", hint=hint)
    return points


def _check_number(name: str, value: object, least: int, most: int, *, whole: bool = False) -> None:
    if value is None:
        return
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not fits or not least <= value <= most:  # type: ignore[operator]
        number = "a whole number" if whole else "a number"
        raise UsageError(f"{name} must be {number} from {least} to {most}, got `{value!r:.80}`")
