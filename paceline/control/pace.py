"""The long-run pace of decoding: tokens per predicted second against plain decoding, which prices are set by.

Predicted seconds, for they are steady; whether drafting really gains is for the guard, which asks no prediction.
"""

from __future__ import annotations

START = 8  # rounds that are taken to have gone before, at the speed believed in
MEMORY = 0.98  # of the past's weight with each round
OUTLIER = 3.0  # times predicted: what a disturbed round counts at most


class Pace:
    """Two sums that forget: what the tokens would have taken plain, and what their rounds were predicted to take."""

    def __init__(self) -> None:
        self._plain, self._predicted, self._before = 0.0, 0.0, 0.0

    def speedup(self, believed: float) -> float:
        """Return tokens per predicted second against plain decoding, at least 1.

        Args:
            believed: what it is taken to be for as long as few rounds were seen.
        """
        if not self._predicted:
            return believed
        return max((self._plain + believed * self._before) / (self._predicted + self._before), 1.0)

    def add(self, plain: float, predicted: float) -> None:
        """Enter a round: the seconds its tokens would have taken plain, and those expected of it."""
        self._before = MEMORY * self._before if self._predicted else START * predicted
        self._plain = MEMORY * self._plain + plain
        self._predicted = MEMORY * self._predicted + predicted
