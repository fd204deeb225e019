"""The arithmetic of draft length: the tokens of a round, its seconds, and where to stop.

E(g) = 1 + sum of survivals is the tokens of a round with g guesses, T(g) its seconds. The best long-run rate R is max
E / T, and with R known a guess pays if it adds more than R times its seconds (renewal reward; Dinkelbach 1967).
Sequences of one batch share the forward: its rows go to the likeliest guesses of all sequences (SmartSpec 2406.14066).
Lengths depend on earlier rounds only and are settled before anything is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Probabilities

LOOKED_AT = 1024  # the likeliest guesses of a round, at most


@dataclass(frozen=True, slots=True)
class Clock:
    """What rounds of B sequences take, in seconds.

    `forward` float64 [B * most + 1]: the target's forward by guesses, all sequences together; `overhead`: what every
    round takes besides; `extra`: what any round that drafts takes on top.
    """

    sequences: int
    forward: Probabilities
    overhead: float = 0.0
    extra: float = 0.0

    @property
    def plain(self) -> float:
        """Seconds of a round without guesses."""
        return float(self.forward[0]) + self.overhead

    @property
    def plain_rate(self) -> float:
        """Tokens per second without guesses."""
        return self.sequences / self.plain

    @property
    def most(self) -> int:
        """How many guesses a sequence may have."""
        return (len(self.forward) - 1) // self.sequences

    def added(self, step: float) -> Probabilities:
        """Return float64 [most + 1]: the seconds that g guesses each add to a plain round, `step` seconds a depth."""
        lengths, forward = np.arange(self.most + 1), self.forward[:: self.sequences]
        return np.asarray(forward - forward[0] + step * lengths + self.extra * (lengths > 0))


def best_rate(survival: Probabilities, step: float, clock: Clock, *, share: float = 1.0) -> float:
    """Return the most tokens per second that any allocation of guesses brings, none at all included.

    Args:
        survival: float64 [most], or [B, most] if sequences differ.
        share: of rounds in which the source has a guess; the others are plain.
    """
    _, _, brought, added = _ways(_each(survival, clock), step, clock)
    found = (clock.sequences + share * brought) / (clock.plain + share * added)
    return max(float(found.max()), clock.plain_rate)


def admit(
    survival: Probabilities, step: float, clock: Clock, rate: float, *, deepest: int | None = None
) -> tuple[list[int], float]:
    """Return how many guesses each sequence should have, and their gain: tokens less `rate` times their seconds.

    Args:
        survival: float64 [most], or [B, most] if sequences differ; never rising with depth.
        deepest: the most that one sequence may have.
    """
    each = _each(survival, clock)[:, :deepest]
    if each.shape[1] == 0:
        return [0] * clock.sequences, 0.0
    order, limits, brought, added = _ways(each, step, clock)
    gain = brought - rate * added
    way, count = (int(at) for at in np.unravel_index(gain.argmax(), gain.shape))
    if gain[way, count] <= 0:
        return [0] * clock.sequences, 0.0
    taken = order[: count + 1]
    owner = taken[taken % each.shape[1] <= limits[way]] // each.shape[1]
    return np.bincount(owner, minlength=clock.sequences).tolist(), float(gain[way, count])


def _each(survival: Probabilities, clock: Clock) -> Probabilities:
    return np.broadcast_to(np.atleast_2d(survival), (clock.sequences, np.shape(survival)[-1]))


def _ways(
    each: Probabilities, step: float, clock: Clock
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Probabilities, Probabilities]:
    """Return the allocations of guesses: order int [n], limits int [L], tokens and seconds, both float64 [L, n].

    Allocation (l, i) holds the i + 1 likeliest guesses that are within depth limits[l], the best set for its rows and
    steps. All allocations are computed, not up to the first worse one, because the seconds of forwards rise in steps.
    """
    depths = each.shape[1]
    order = np.argsort(-each, axis=None, kind="stable")[:LOOKED_AT]  # stable: a guess never precedes its parent
    limits = np.arange(depths) if len(each) > 1 else np.array([depths - 1])
    at = order % depths
    is_in = at[None, :] <= limits[:, None]
    brought = np.cumsum(is_in * each.reshape(-1)[order], axis=1)
    rows = np.cumsum(is_in, axis=1)
    deepest = 1 + np.minimum(np.maximum.accumulate(at), limits[:, None])
    return order, limits, brought, clock.forward[rows] - clock.forward[0] + step * deepest + clock.extra


def gains(survival: Probabilities, step: float, clock: Clock, rate: float) -> Probabilities:
    """Return float64 [most + 1]: tokens less `rate` times seconds, of g guesses for each sequence."""
    brought = clock.sequences * np.concatenate([[0.0], np.cumsum(survival)])
    return np.asarray(brought - rate * clock.added(step))


def break_even(step: float, clock: Clock, rate: float) -> float:
    """Return the acceptance, the same at every depth, from which guesses pay at all; above 1 if they never do."""
    depths = np.arange(1, clock.most + 1)
    low, high = 0.0, 1.0
    if not len(depths) or gains(np.ones(len(depths)), step, clock, rate)[1:].max() <= 0:
        return 2.0
    for _ in range(20):
        middle = (low + high) / 2
        if gains(np.power(middle, depths, dtype=np.float64), step, clock, rate)[1:].max() > 0:
            high = middle
        else:
            low = middle
    return high
