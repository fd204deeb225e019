"""How sequences of one batch differ: whose guesses are right more often than its source's are on the whole.

Knows counts only, of sequences that have had neighbours. One that said little is believed to be like the others; one
that a source was given up for comes near them again with time, and is tried anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.control.belief import YOUNG, Belief
from paceline.types import Probabilities

WEIGHT = 2.0  # observations that the others' rate is worth
DECAY = 0.97  # of an observation's weight with each that follows it
FADE = 0.997  # of its weight with each round
CERTAIN = 0.01  # a rate is never nearer than this to 0 or 1


class Leanings:
    """Counts by sequence and source, and how much each sequence drafts."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[str, tuple[float, float]]] = {}  # right, tested
        self._nodes: dict[int, float] = {}

    def keep(self, sequences: Sequence[int]) -> None:
        """Forget all sequences but these."""
        if self._nodes.keys() - set(sequences):
            self._counts = {i: self._counts[i] for i in sequences if i in self._counts}
            self._nodes = {i: self._nodes[i] for i in sequences if i in self._nodes}

    def nodes(self, sequence: int) -> float:
        """Return how many nodes a sequence drafted in a round of late."""
        return self._nodes.get(sequence, 0.0)

    def drafted(self, sequence: int, nodes: int) -> None:
        """Count a round."""
        counts = self._counts.get(sequence, {})
        for name, (right, tested) in counts.items():
            counts[name] = FADE * right, FADE * tested
        before = self._nodes.get(sequence, 0.0)
        self._nodes[sequence] = before + (nodes - before) / 8

    def knows(self, sequence: int) -> bool:
        return sequence in self._counts

    def observe(self, sequence: int, name: str, tested: Sequence[int], kept: Sequence[int], *, censored: bool) -> None:
        """Count a round's guesses of one source; of a round that was cut, only those kept."""
        right, seen = self._counts.setdefault(sequence, {}).get(name, (0.0, 0.0))
        for was_tested, is_right in zip(tested, kept, strict=True):
            if was_tested and (is_right or not censored):
                right, seen = DECAY * right + is_right, DECAY * seen + 1
        self._counts[sequence][name] = right, seen

    def survivals(self, belief: Belief, sequences: Sequence[int], *, hope: float = 0.0) -> Probabilities:
        """Return float64 [B, depth]: how likely a chain of each sequence is still right at each depth.

        The source's rates, their odds all moved by as much as the sequence's own differ.
        """
        rates = belief.rates(hope=hope)
        moved = np.array([self.leaning(belief, sequence) for sequence in sequences])
        if not moved.any():
            return np.tile(np.cumprod(rates, dtype=np.float64), (len(sequences), 1))
        rates = np.clip(rates, CERTAIN, 1 - CERTAIN)
        odds = np.log(rates / (1 - rates)) + moved[:, None]
        return np.cumprod(1 / (1 + np.exp(-odds)), axis=1, dtype=np.float64)

    def hoped(self, belief: Belief, sequences: Sequence[int], *, hope: float) -> Probabilities:
        """Return float64 [B, 1]: how likely a first guess may be right; 0 where enough was tried to know better."""
        if len(sequences) == 1 and not self.knows(sequences[0]):
            return belief.survival(hope=hope)[:1, None] if belief.tried < YOUNG else np.zeros((1, 1))
        found = []
        for sequence in sequences:
            right, tested = self._counts.get(sequence, {}).get(belief.name, (0.0, 0.0))
            own = (right + WEIGHT * belief.rate) / (tested + WEIGHT)
            found.append([min(own + hope * math.sqrt(own * (1 - own) / (tested + WEIGHT)), 1.0) * (tested < YOUNG)])
        return np.array(found)

    def leaning(self, belief: Belief, sequence: int) -> float:
        """Return the logarithm of a sequence's odds over those of its source; 0 if nothing tells them apart."""
        right, tested = self._counts.get(sequence, {}).get(belief.name, (0.0, 0.0))
        if not tested:
            return 0.0
        usual = min(max(belief.rate, CERTAIN), 1 - CERTAIN)
        own = min(max((right + WEIGHT * usual) / (tested + WEIGHT), CERTAIN), 1 - CERTAIN)
        return math.log(own / (1 - own)) - math.log(usual / (1 - usual))
