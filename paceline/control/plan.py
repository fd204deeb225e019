"""The arithmetic of draft length: what a round brings, what it takes, where to stop.

E(g) = 1 + sum of survivals is what g guesses bring, T(g) what they take. The best long-run rate R is max E / T, and
with R known a guess pays if it adds more than R times its seconds (renewal reward; Dinkelbach 1967).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.types import Probabilities


@dataclass(frozen=True, slots=True)
class Clock:
    """What rounds of B sequences take, in seconds.

    `forward` float64 [most + 1]: the target's forward if each of them has so many guesses; `overhead` what every round
    takes besides, `extra` what a round that drafts takes on top, whatever it drafts.
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

    def added(self, step: float) -> Probabilities:
        """Return float64 [most + 1]: the seconds that g guesses add to a plain round, `step` seconds each to draft."""
        lengths = np.arange(len(self.forward))
        return np.asarray(self.forward - self.forward[0] + step * lengths + self.extra * (lengths > 0))


def best_rate(survival: Probabilities, step: float, clock: Clock, *, share: float = 1.0) -> float:
    """Return max E(g) / T(g) in tokens per second, g = 0 included.

    Args:
        share: of rounds in which there is anything to guess; the others are plain.
    """
    brought = clock.sequences * np.concatenate([[0.0], np.cumsum(survival)])
    return float(((clock.sequences + share * brought) / (clock.plain + share * clock.added(step))).max())


def gains(survival: Probabilities, step: float, clock: Clock, rate: float) -> Probabilities:
    """Return float64 [most + 1]: what g guesses bring all sequences beyond what their time is worth."""
    brought = clock.sequences * np.concatenate([[0.0], np.cumsum(survival)])
    return np.asarray(brought - rate * clock.added(step))


def break_even(step: float, clock: Clock, rate: float) -> float:
    """Return the acceptance, the same at every depth, from which guesses pay at all; above 1 if they never do."""
    depths = np.arange(1, len(clock.forward))
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
