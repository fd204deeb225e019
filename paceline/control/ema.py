"""One more guess a round while most are right, one fewer while many are wrong: the 0.8 / 0.6 rule, for comparison.

Knows nothing of time, so it may settle where drafting loses.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.types import Budget, Load, Round, View

FIRST = 4  # guesses of a sequence's first round
KEEP = 0.9  # of the average with each round
MORE, FEWER = 0.8, 0.6


class EmaController:
    """A length for each sequence, between 1 and `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._state: dict[int, tuple[int, float]] = {}  # by sequence: length, average acceptance
        self.reason = ""

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        start = min(FIRST, self._most), (MORE + FEWER) / 2
        self._state = {view.id: self._state.get(view.id, start) for view in views}
        return [Budget(length, length) for length, _ in self._state.values()]

    def observe(self, sequence_id: int, round: Round) -> None:
        """Follow the share of a round's guesses that was kept; of a round that was cut, learn nothing."""
        drafted = sum(round.drafted)
        if not drafted or round.censored or sequence_id not in self._state:
            return
        length, average = self._state[sequence_id]
        average = KEEP * average + (1 - KEEP) * sum(round.accepted) / drafted
        length += int(average > MORE) - int(average < FEWER)
        length = max(min(length, self._most), min(1, self._most))
        self._state[sequence_id] = length, average
        self.reason = f"{length} a round: {100 * average:.0f} % of the guesses were kept of late"
