"""The performance model of speculative decoding: what a round brings, what it takes, where it pays.

Times are in units of one plain token: `draft_step` is c, the cost of a draft step over that of a plain token, and
`curve` v(M), a target forward of M tokens over one of one. (Leviathan et al. 2211.17192, theorem 3.8, with the
verification cost it takes as 1 put back in.) Pure Python: a plan must not wait for numpy.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Curve = Callable[[int], float]  # v(M); v(1) = 1
LONGEST = 32  # draft lengths looked at


@dataclass(frozen=True, slots=True)
class Costs:
    """What a round is made of, in plain tokens: a draft step, the target's curve, and all that is neither."""

    draft_step: float
    curve: Curve
    overhead: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to draft and what it brings: `tokens` a round, bonus included, in `time` plain tokens."""

    nodes: int
    depth: int
    tokens: float
    time: float

    @property
    def speedup(self) -> float:
        return self.tokens / self.time


def conditional(acceptance: float | Sequence[float], depth: int) -> float:
    """Return the odds that a guess at `depth` (1 first) is right, its parent being right; the last one goes on."""
    if isinstance(acceptance, (int, float)):
        return float(acceptance)
    return float(acceptance[min(depth, len(acceptance)) - 1])


def expected_tokens(acceptance: float | Sequence[float], length: int) -> float:
    """Return the tokens of a round that drafts a chain, the bonus included: 1 + a1 + a1 a2 + …"""
    total, path = 1.0, 1.0
    for depth in range(1, length + 1):
        path *= conditional(acceptance, depth)
        total += path
    return total


def chain(acceptance: float | Sequence[float], length: int, costs: Costs) -> Choice:
    """Return what drafting a chain of `length` brings; 0 is plain decoding."""
    time = length * costs.draft_step + costs.curve(length + 1) + (costs.overhead if length else 0.0)
    return Choice(length, length, expected_tokens(acceptance, length), time)


def best_chain(acceptance: float | Sequence[float], costs: Costs, longest: int = LONGEST) -> Choice:
    """Return the length of the greatest speed-up; plain decoding where nothing beats it."""
    return max((chain(acceptance, length, costs) for length in range(longest + 1)), key=lambda choice: choice.speedup)


def rank_acceptance(first: float, ranks: int) -> tuple[float, ...]:
    """Return the odds of each candidate of a node, best first: each takes half of what those before it left.

    An assumption, for want of measured ones: `first` is the likeliest candidate's.
    """
    odds, left = [first], 1 - first
    for _ in range(ranks - 1):
        odds.append(left / 2)
        left /= 2
    return tuple(odds)


def best_tree(ranks: Sequence[float], costs: Costs, *, nodes: int = 64, depth: int = 16) -> Choice:
    """Return the best tree whose node's i-th candidate is right with odds `ranks[i]`.

    The best tree of n nodes holds the n likeliest paths, so it grows best-first (as Sequoia's dynamic programme does,
    2402.12374). One draft step a level, each as long as a plain draft step.
    """
    best = chain(0.0, 0, costs)
    for deepest in range(1, depth + 1):
        heap = [(-odds, 1) for odds in ranks]
        heapq.heapify(heap)
        tokens, levels = 1.0, 0
        for count in range(1, nodes + 1):
            if not heap:
                break
            value, level = heapq.heappop(heap)
            tokens -= value
            levels = max(levels, level)
            if level < deepest:
                for odds in ranks:
                    heapq.heappush(heap, (value * odds, level + 1))
            time = levels * costs.draft_step + costs.curve(count + 1) + costs.overhead
            choice = Choice(count, levels, tokens, time)
            if choice.speedup > best.speedup:
                best = choice
    return best


def break_even(costs: Costs, longest: int = LONGEST) -> float | None:
    """Return the least acceptance at which some length beats plain decoding; None if none does even when always right.

    With v = 1 and no overhead it is c itself (2211.17192, corollary 3.9).
    """

    def pays(acceptance: float) -> bool:
        return any(chain(acceptance, length, costs).speedup > 1 for length in range(1, longest + 1))

    if not pays(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def ceiling(acceptance: float) -> float:
    """Return the speed-up with a free draft and free verification: 1 / (1 - a)."""
    return float("inf") if acceptance >= 1 else 1 / (1 - acceptance)


def naive_speedup(acceptance: float, length: int, draft_step: float) -> float:
    """Return what the often quoted r K t_T / (t_D + t_T) says.

    It counts every accepted guess as if refusals cut nothing behind them, forgets the bonus token, and pays for one
    draft step where `length` are made.
    """
    return acceptance * length / (draft_step + 1)


def measured_curve(points: Sequence[tuple[int, float]]) -> Curve:
    """Return v(M) through measured (M, seconds), straight between them, going on as between the last two."""
    known = sorted(points)
    base = known[0][1] if known[0][0] == 1 else None
    if base is None or base <= 0:
        raise ValueError("v(M) needs the time of one token")

    def curve(rows: int) -> float:
        for (m0, t0), (m1, t1) in itertools.pairwise(known):
            if rows <= m1 or (m1, t1) == known[-1]:
                return (t0 + (t1 - t0) * (rows - m0) / (m1 - m0)) / base
        return 1.0  # one point only: nothing is known of more rows

    return curve
