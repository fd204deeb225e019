"""Why so much was drafted, in a sentence for people with the numbers that decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.control.base import OFF
from paceline.control.belief import Belief
from paceline.control.debts import Debt
from paceline.control.guard import Guard
from paceline.control.plan import Clock, break_even
from paceline.types import Probabilities


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the latest decision was made of, by source: survivals float64 [B, depth] and each sequence's length."""

    clock: Clock | None = None
    rate: float = 0.0
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    survivals: Mapping[str, Probabilities] = field(default_factory=dict)
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    guard: Guard = field(default_factory=Guard)
    debts: Mapping[str, Debt] = field(default_factory=dict)
    weighing: Collection[str] = ()  # sources for which lengths are what pays on average


def explain(outlook: Outlook) -> str:
    """Say what was chosen and why; empty before anything was."""
    clock = outlook.clock
    if clock is None:
        return ""
    if outlook.guard.is_closed:
        return f"{OFF} for a while: with it, decoding ran at {outlook.guard.speed:.2f} of its plain speed"
    on = [name for name, lengths in outlook.lengths.items() if any(lengths)]
    off = [
        _refusal(outlook, clock, name)
        for name in outlook.lengths
        if name not in on and not outlook.beliefs[name].is_silent
    ]
    if not on:
        return f"{OFF}: {'; '.join(off) or 'nobody has anything to guess'}"
    deepest = max(on, key=lambda name: (max(outlook.lengths[name]), outlook.beliefs[name].tried))
    return "; ".join([_choice(outlook, clock, deepest), *(f"without {text}" for text in off)])


def _choice(outlook: Outlook, clock: Clock, name: str) -> str:
    belief, lengths = outlook.beliefs[name], outlook.lengths[name]
    least, most = min(lengths), max(lengths)
    about = "about " if name in outlook.weighing and most < clock.most else ""
    many = f"{about}{most} token{'' if most == 1 else 's'}"
    each = "" if least == most else f"{least} to "
    said = f"{each}{many} a round{', by sequence' if each else ''}: {name} {_record(belief)}"
    if most >= clock.most:
        return f"{said}; no more were asked for"
    added = max(float(outlook.survivals[name][i][most]) for i, length in enumerate(lengths) if length == most)
    cost = outlook.rate * _next(clock, lengths, belief.step_seconds)
    if added > cost and most == belief.start:
        return f"{said}; more once it has proved right"
    would = "would at best add" if each else "would add"
    return f"{said}; the {_ordinal(most + 1)} {would} {added:.2f} tokens and cost {cost:.2f}"


def _next(clock: Clock, lengths: Sequence[int], step: float) -> float:
    """Return the seconds of one more guess for the deepest sequence; if all are alike, of one for each, its share."""
    total, count = sum(lengths), clock.sequences if min(lengths) == max(lengths) else 1
    return float(clock.forward[total + count] - clock.forward[total] + step) / count


def _refusal(outlook: Outlook, clock: Clock, name: str) -> str:
    belief, debt = outlook.beliefs[name], outlook.debts.get(name)
    if debt is not None:
        return (
            f"{name}: reading {debt.tokens} tokens first would take {debt.seconds:.1f} s and is likely to save "
            f"{debt.saved:.1f} s"
        )
    needed = break_even(belief.step_seconds, clock, outlook.rate)
    bar = f"break-even {100 * needed:.0f} %" if needed <= 1 else "no guess could pay for itself"
    row = float(np.diff(clock.added(0.0))[0]) / clock.plain if clock.most else 0.0
    step = f"a step costs {belief.step_seconds / clock.plain:.2f} of a plain token and " if belief.is_costly else ""
    return f"{name} {_record(belief)}; {step}checking one more costs {row:.2f} of a plain token; {bar}"


def _record(belief: Belief) -> str:
    if not belief.tried and belief.recalled:
        return f"was right {100 * belief.rate:.0f} % of the time before"
    if not belief.tried:
        return f"is untried and taken to be right {100 * belief.rate:.0f} % of the time"
    return f"is right {100 * belief.rate:.0f} % of the time"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
