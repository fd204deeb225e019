"""The same length every round: for comparison, and by request."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.request import View
from paceline.core.round import Budget, Load, Round


class FixedController:
    """Ask for `length` drafted tokens in a chain, whatever happens."""

    def __init__(self, length: int) -> None:
        self._budget = Budget(length, length)
        self.reason = f"{length} a round, as asked"

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        return [self._budget] * len(views)

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn nothing."""
