"""Whether speculation earns its keep: what the same tokens would have taken without it, against what they took.

Two sums of both that forget: one of predicted seconds, steady enough to set prices by, and one of real seconds of
rounds that drafted, which notices when something costs time that no prediction knows of, unless predictions promise so
much that a third more is no loss.
"""

from __future__ import annotations

START = 8  # rounds that are taken to have gone before, at the speed believed in
MEMORY = 0.98  # of the past's weight with each round
ENOUGH = 32  # drafting rounds before real seconds are judged
LOSING = 1.03  # times plain: from here on it loses
SKEWED = 1.3  # times predicted: what a round counts at most then, for disturbances only ever add
PAUSE = 64  # rounds without, the first time; twice as many each time after
LONGEST = 6  # doublings
OUTLIER = 3.0  # times predicted: what a disturbed round counts at most


class Ledger:
    """Keeps both sums and the pause that follows a loss."""

    def __init__(self) -> None:
        self._plain, self._predicted, self._before = 0.0, 0.0, 0.0
        self._real_plain, self._real, self._rounds = 0.0, 0.0, 0
        self._pauses, self._left = 0, 0
        self.loss = 0.0  # of the latest pause: speed against plain

    def speedup(self, believed: float) -> float:
        """Return tokens per predicted second against plain decoding, at least 1.

        Args:
            believed: what it is taken to be for as long as few rounds were seen.
        """
        if not self._predicted:
            return believed
        return max((self._plain + believed * self._before) / (self._predicted + self._before), 1.0)

    @property
    def is_paused(self) -> bool:
        return self._left > 0

    def resume(self) -> None:
        """End a pause: what lost with one text may pay with another. If it does not, the next pause is longer."""
        self._left = 0

    def add(self, plain: float, predicted: float, real: float, *, drafted: bool) -> None:
        """Enter a round: the seconds its tokens would have taken plain, those expected of it, and real ones."""
        self._before = MEMORY * self._before if self._predicted else START * predicted
        self._plain = MEMORY * self._plain + plain
        self._predicted = MEMORY * self._predicted + predicted
        if self._left:
            self._left -= 1
        elif drafted:
            self._real_plain = MEMORY * self._real_plain + plain
            self._real = MEMORY * self._real + min(real, SKEWED * predicted)
            self._rounds += 1
            if self._rounds >= ENOUGH and self._real > LOSING * self._real_plain:
                self.loss = self._real_plain / self._real
                self._left = PAUSE << min(self._pauses, LONGEST)
                self._pauses += 1
                self._real_plain, self._real, self._rounds = 0.0, 0.0, 0
