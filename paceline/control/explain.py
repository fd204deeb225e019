"""The reason for the latest budgets, as a readable sentence with the numbers that decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.control.base import OFF
from paceline.control.draft_prefill import Backlog
from paceline.control.gate import Gate
from paceline.control.guard import Guard
from paceline.core.aliases import Probabilities
from paceline.estimate.source import Source
from paceline.estimate.throughput import Clock, admit, break_even


@dataclass(frozen=True, slots=True)
class Decision:
    """The latest round's decision: by source, its depth for each sequence and its backlog of reading."""

    clock: Clock | None = None
    rate: float = 0.0
    sources: Mapping[str, Source] = field(default_factory=dict)
    sequences: Sequence[int] = ()
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    guard: Guard = field(default_factory=Guard)
    gates: Mapping[str, Gate] = field(default_factory=dict)
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)


def explain(decision: Decision) -> str:
    """Return the choice and its reason; empty before the first round."""
    clock = decision.clock
    if clock is None:
        return ""
    if decision.guard.is_closed:
        return f"{OFF} for a while: with it, decoding ran at {decision.guard.speed:.2f} of its plain speed"
    survivals = {name: source.survivals(decision.sequences) for name, source in decision.sources.items()}
    on = {name: _usual(decision, clock, name, survivals[name]) for name, each in decision.lengths.items() if any(each)}
    heard = [name for name in on if not decision.sources[name].is_quiet]
    off = [
        _refusal(decision, clock, name)
        for name in decision.lengths
        if name not in on and not decision.sources[name].is_quiet
    ]
    if not heard:
        return f"{OFF}: {'; '.join(off) or 'no source has anything to guess'}"
    deepest = max(heard, key=lambda name: (max(on[name]), decision.sources[name].tried))
    chosen = _choice(decision, clock, deepest, on[deepest], survivals[deepest])
    return "; ".join([chosen, *(f"without {text}" for text in off)])


def _usual(decision: Decision, clock: Clock, name: str, survivals: Probabilities) -> list[int]:
    """Return how many guesses of a source pay on average for each sequence; a source that weighs may make others."""
    source, lengths = decision.sources[name], decision.lengths[name]
    if not source.weighs:
        return list(lengths)
    usual, _ = admit(survivals, source.step_seconds, clock, decision.rate)
    return [min(max(many, 1), most) for many, most in zip(usual, lengths, strict=True)]


def _choice(decision: Decision, clock: Clock, name: str, lengths: Sequence[int], survivals: Probabilities) -> str:
    source = decision.sources[name]
    least, most = min(lengths), max(lengths)
    about = "about " if source.weighs and most < clock.most else ""
    many = f"{about}{most} token{'' if most == 1 else 's'}"
    each = "" if least == most else f"{least} to "
    said = f"{each}{many} a round{', by sequence' if each else ''}: {name} {_record(source)}"
    if most >= clock.most:
        return f"{said}; no more were asked for"
    added = max(float(survivals[i][most]) for i, length in enumerate(lengths) if length == most)
    cost = decision.rate * _next(clock, lengths, source.step_seconds)
    would = "would at best add" if each else "would add"
    return f"{said}; the {_ordinal(most + 1)} {would} {added:.2f} tokens and cost {cost:.2f}"


def _next(clock: Clock, lengths: Sequence[int], step: float) -> float:
    """Return the seconds of one more guess for the deepest sequence; if all are equal, of one for each, shared."""
    total, count = sum(lengths), clock.sequences if min(lengths) == max(lengths) else 1
    return float(clock.forward[total + count] - clock.forward[total] + step) / count


def _refusal(decision: Decision, clock: Clock, name: str) -> str:
    source, backlog = decision.sources[name], decision.backlogs.get(name)
    if backlog is not None and any(map(decision.gates[name].is_open, decision.sequences)):
        return (
            f"{name}: reading {backlog.tokens} tokens first would take {backlog.seconds:.1f} s and is likely to save "
            f"{backlog.saved:.1f} s"
        )
    needed = break_even(source.step_seconds, clock, clock.plain_rate)
    bar = f"break-even {100 * needed:.0f} %" if needed <= 1 else "no guess could pay for itself"
    row = float(np.diff(clock.added(0.0))[0]) / clock.plain if clock.most else 0.0
    step = f"a step costs {source.step_seconds / clock.plain:.2f} of a plain token and " if source.is_costly else ""
    return f"{name} {_record(source)}; {step}checking one more costs {row:.2f} of a plain token; {bar}"


def _record(source: Source) -> str:
    if not source.tried and source.recalled:
        return f"was right {100 * source.rate:.0f} % of the time before"
    if not source.tried:
        return f"is untried and taken to be right {100 * source.rate:.0f} % of the time"
    return f"is right {100 * source.rate:.0f} % of the time"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
