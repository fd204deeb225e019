"""A round in the making: what its sequences have said so far. Knows counts and seconds only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from paceline.types import Round


@dataclass(slots=True)
class Pending:
    """One round, from its budgets to the last sequence's outcome."""

    sequences: int
    is_open: bool = False  # somebody may draft
    depth: int = 0  # and how deep, probes aside
    probed: str = ""
    kept: int = 0
    drafted: int = 0
    asked: dict[str, int] = field(default_factory=dict)  # by source: sequences that it may guess for
    guessed: dict[str, int] = field(default_factory=dict)  # and those that it had a guess for
    tokens: int = 0
    seen: int = 0
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # drafting, verifying, other

    def add(self, round: Round) -> None:
        """Enter what the round did to one sequence."""
        self.tokens += round.committed
        self.seen += 1
        for i, seconds in enumerate((round.draft_seconds, round.verify_seconds, round.other_seconds)):
            self.seconds[i] += seconds

    @property
    def is_sound(self) -> bool:
        """Whether its seconds can be true."""
        return all(math.isfinite(seconds) and seconds >= 0 for seconds in self.seconds) and self.seconds[1] > 0
