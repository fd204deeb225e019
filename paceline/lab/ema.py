"""One more guess a round while most are right, one fewer while many are wrong: the 0.8 / 0.6 rule, for comparison.

Knows nothing of time, so it may settle where drafting loses.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.request import View
from paceline.core.round import Budget, Load, Round

FIRST = 4  # guesses of a sequence's first round
KEEP = 0.9  # of the average with each round
MORE, FEWER = 0.8, 0.6


class EmaController:
    """A length for each sequence, between 1 and `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._state: dict[int, tuple[int, float]] = {}  # by sequence: length, average acceptance
        self._seen = set[int]()  # sequences that had a guess tested

    @property
    def reason(self) -> str:
        """Name the length for each sequence of the latest round, and the average share of guesses kept."""
        told = [self._state[name] for name in self._state if name in self._seen]
        if not told:
            first = min(FIRST, self._most)
            return (
                f"{first} a round at first, one more above {100 * MORE:.0f} % kept, one fewer below {100 * FEWER:.0f} %"
            )
        lengths, shares = _range([length for length, _ in told]), _range([round(100 * share) for _, share in told])
        return f"{lengths} a round: {shares} % of the guesses were kept of late"

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        start = min(FIRST, self._most), (MORE + FEWER) / 2
        self._state = {view.id: self._state.get(view.id, start) for view in views}
        self._seen &= self._state.keys()
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
        self._seen.add(sequence_id)


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return str(most) if least == most else f"{least} to {most}"
