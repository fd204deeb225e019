"""A round under way: the outcomes of its sequences so far. Knows counts and seconds only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.core.round import Round


@dataclass(slots=True)
class Pending:
    """One round, from its budgets to the last sequence's outcome."""

    sequences: int
    is_open: bool = False  # a source may draft
    asked: dict[str, list[int]] = field(default_factory=dict)  # by source: sequences that it may guess for
    by_source: dict[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)  # by sequence: drafted, kept
    drafted: int = 0
    tokens: int = 0
    seen: int = 0
    writing: int = 0  # sequences that gained tokens; the others only read
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # drafting, verifying, other

    def add(self, sequence: int, round: Round) -> None:
        """Add the round's outcome for one sequence."""
        self.by_source[sequence] = round.by_source
        self.drafted += sum(round.drafted)
        self.tokens += round.committed
        self.seen += 1
        self.writing += round.committed > 0
        for i, seconds in enumerate((round.draft_seconds, round.verify_seconds, round.other_seconds)):
            self.seconds[i] += seconds

    @property
    def is_sound(self) -> bool:
        """Whether its seconds are finite and not negative, and the forward took some."""
        return all(math.isfinite(seconds) and seconds >= 0 for seconds in self.seconds) and self.seconds[1] > 0
