"""Controllers decide how much to draft, from counts and seconds alone: no model, no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.core.request import View
from paceline.core.round import Budget, Load, Round

OFF = "drafting off"
"""The beginning of a reason when nothing is drafted."""


class Controller(Protocol):
    """Sets budgets before a round and observes their outcome after it."""

    @property
    def reason(self) -> str:
        """The reason for the latest budgets, as a readable sentence; empty if there is none."""

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        """Return one budget per sequence of the coming round."""

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn from a round of one sequence."""
