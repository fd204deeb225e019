"""Who takes part in the next round. First come, first served; the seam for continuous batching."""

from __future__ import annotations

from collections import deque

from paceline.engine.sequence import Sequence
from paceline.types import Load


class Scheduler:
    """Keep at most `slots` sequences running and hand all of them to each round."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Let waiting sequences run while there are slots and return them."""
        admitted = [self._waiting.popleft() for _ in range(min(len(self._waiting), self.slots - len(self._running)))]
        self._running += admitted
        return admitted

    def choose(self) -> list[Sequence]:
        """Return the sequences of the next round."""
        return list(self._running)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is."""
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def find(self, request: int) -> Sequence | None:
        """Return the sequence of a request that has not ended."""
        return next((s for s in (*self._running, *self._waiting) if s.id == request), None)

    def load(self) -> Load:
        return Load(len(self._running), len(self._waiting))

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting
