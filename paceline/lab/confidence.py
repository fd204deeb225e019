"""Stop drafting where the drafter is unsure: a floor under its own confidence, steered to a share of guesses kept.

A draft model stops by its own confidence: the probability of its guess (at temperature 0, its top probability), or the
entropy of its distribution. Look-ups have none: for them, and for a mix as a whole, the floor applies to the
calibrated value of a node, as a price that is the same for all. Steering as in AdaEDL (2410.18351); the first floor
is that of Hugging Face's assisted generation. Knows nothing of time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core.request import View
from paceline.core.round import Budget, Floor, Load, Round

FLOOR = 0.4  # of the first round
TARGET = 0.8  # share of guesses to be kept
KEEP = 0.9  # of the average with each round
STEP = 0.01  # that the floor moves with each round
LEAST, HIGHEST = 0.05, 0.95


class ConfidenceController:
    """Up to `most` guesses, each at least as sure as the floor says.

    Args:
        by_entropy: measure a draft model's confidence by the entropy of its distribution, not by its guess.
    """

    def __init__(self, most: int, *, target: float = TARGET, by_entropy: bool = False) -> None:
        self._by_entropy = by_entropy
        self._most, self._target = most, target
        self.floor, self.average = FLOOR, target
        self._is_tried = False

    @property
    def reason(self) -> str:
        late = f"of late {100 * self.average:.0f} % were" if self._is_tried else "none was put to the test yet"
        by = " by entropy" if self._by_entropy else ""
        return (
            f"guesses at least {100 * self.floor:.0f} % sure{by}, so that {100 * self._target:.0f} % are kept; {late}"
        )

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        price = self.floor * np.arange(self._most + 1, dtype=np.float64)
        floor = Floor(self.floor, self._by_entropy)
        return [Budget(self._most, self._most, price, floor=floor)] * len(views)

    def observe(self, sequence_id: int, round: Round) -> None:
        """Raise the floor while too few guesses are kept, lower it while more than the target are."""
        drafted = sum(round.drafted)
        if round.censored or round.committed == 0:
            return
        if drafted:
            self._is_tried = True
            self.average = KEEP * self.average + (1 - KEEP) * sum(round.accepted) / drafted
        rises = drafted > 0 and self.average < self._target  # where nothing is drafted the floor must fall
        self.floor = min(max(self.floor + (STEP if rises else -STEP), LEAST), HIGHEST)
