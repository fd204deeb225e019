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

    def choose(self) -> list[Sequence]:
        """Admit what fits and return the sequences of the next round."""
        while self._waiting and len(self._running) < self.slots:
            self._running.append(self._waiting.popleft())
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
