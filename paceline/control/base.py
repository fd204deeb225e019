"""How much to draft is decided here, from counts and seconds alone: no model, no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.types import Budget, Load, Round, View

OFF = "drafting off"
"""How a reason begins when nothing is drafted."""


class Controller(Protocol):
    """Budgets before a round, what came of them after it."""

    @property
    def reason(self) -> str:
        """Why it chose what it chose last, in a sentence for people; empty if there is nothing to say."""

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        """Return one budget per sequence of the coming round."""

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn from a round of one sequence."""
