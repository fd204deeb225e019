"""Estimates of one source of guesses: its acceptance by depth and by sequence, and the seconds of a step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from paceline.core.aliases import Probabilities
from paceline.core.round import Spent
from paceline.estimate.acceptance import Acceptance, bounded, odds, scaled
from paceline.estimate.numbers import lower_median

PRIOR, WEIGHT = 0.7, 2.0  # prior rate, and the guesses it is worth; a sequence's prior is its source's rate
DECAY, OWN_DECAY = 0.98, 0.97  # of a guess's weight with each later one, in the source and in the sequence
FADE = 0.997  # of all weights with each round: an unused depth or sequence returns to the common rate
DOUBTED = 6.0  # guesses that a source's past is worth once its gate closes
SHRINK = 3.0  # guesses that the source's own rate is worth at each depth
QUIET = 24  # rounds asked in without a guess, after which a source is asked rarely
WINDOW = 9  # rounds that a step's seconds are the median of; what was calibrated counts as one of them
EXPECTED = 0.4  # tokens that a costly source gains per token of a reply, before it has run
GAINED = 32  # rounds in the mean of its gain


class Source:
    """One source.

    Args:
        depth: the deepest guess that is counted by itself.
        step_seconds: of one step, as calibrated; `None` for a source not known to take time.
        weighs: whether the source itself stops where a guess does not pay.
    """

    def __init__(self, name: str, depth: int, *, step_seconds: float | None = None, weighs: bool = False) -> None:
        self.name, self.weighs = name, weighs
        self._right, self._tested = PRIOR * WEIGHT, WEIGHT
        self._depth, self._at = depth, Acceptance(np.full(depth, PRIOR), weight=SHRINK, decay=DECAY)
        self._own: dict[int, tuple[float, float]] = {}  # right and tested, by sequence
        self._steps = deque[float]([step_seconds] if step_seconds else [], maxlen=WINDOW)
        self._is_warm = bool(self._steps)  # an uncalibrated first round reads the whole text as well
        self.step_seconds = step_seconds or 0.0
        self.has_run = not step_seconds  # rounds have shown its seconds, not just a calibration
        self.recalled = 0.0  # guesses that the counts of earlier runs are worth
        self.tried = 0
        self.unheard = 0  # rounds since a guess of it was tested
        self.silent = 0  # those of them in which it was asked
        self.gain = EXPECTED  # recent surplus: tokens beyond their price, per token of a reply

    @property
    def rate(self) -> float:
        """The source's acceptance, all depths together."""
        return self._right / self._tested

    @property
    def is_costly(self) -> bool:
        return bool(self._steps)

    @property
    def is_quiet(self) -> bool:
        """Whether the source was asked for long without a guess."""
        return self.silent >= QUIET

    def keep(self, sequences: Sequence[int]) -> None:
        """Forget all sequences but these; for a new one the gain moves halfway back to its prior."""
        if any(sequence not in self._own for sequence in sequences):
            self.gain = (self.gain + EXPECTED) / 2
        self._own = {sequence: self._own.get(sequence, (0.0, 0.0)) for sequence in sequences}

    def survivals(self, sequences: Sequence[int]) -> Probabilities:
        """Return float64 [B, depth]: how likely a chain of each sequence is still right at each depth.

        The rates by depth, their odds scaled by the odds of the sequence's own rate over those of the source's.
        """
        rates = self._at.rates(prior=[self.rate] * self._depth)
        if len(sequences) == 1:
            return np.cumprod(rates, dtype=np.float64)[None]
        own = [(right + WEIGHT * self.rate) / (tested + WEIGHT) for right, tested in map(self._counts, sequences)]
        ratios = np.array([odds(rate) / odds(self.rate) for rate in own])
        return np.cumprod(scaled(rates, ratios[:, None]), axis=1, dtype=np.float64)

    def observe(self, sequence: int, tested: Sequence[int], kept: Sequence[int], *, censored: bool) -> None:
        """Count a round's guesses by depth; of a censored round, only the accepted ones."""
        self._at.fade(FADE)
        self.silent = 0
        right, seen = self._counts(sequence)
        for depth, (was_tested, is_right) in enumerate(zip(tested, kept, strict=True)):
            if not was_tested or (censored and not is_right):
                continue
            self._right, self._tested = DECAY * self._right + is_right, DECAY * self._tested + 1
            right, seen = OWN_DECAY * right + is_right, OWN_DECAY * seen + 1
            self._at.observe(min(depth, self._depth - 1), kept=bool(is_right))
            self.tried += 1
            self.unheard = 0 if self.has_run else self.unheard
        self._own[sequence] = right, seen

    def earned(self, net: float, tokens: float) -> None:
        """Add a round's surplus of tokens, `net`, to the gain per token."""
        self.gain += (net / tokens - self.gain) / GAINED

    def doubt(self) -> None:
        """Scale the counts down to DOUBTED guesses, so that a few right guesses bring the source back."""
        if self._tested > DOUBTED:
            self._right, self._tested = self._right * DOUBTED / self._tested, DOUBTED
            self._at.bound(1.0)

    def pass_round(self, spent: Spent | None) -> None:
        """Age the counts by a round, and learn the seconds of a step; `None` if the source did not run."""
        self.unheard += 1
        self._own = {sequence: (FADE * right, FADE * tested) for sequence, (right, tested) in self._own.items()}
        if spent is None or spent.read or spent.steps < 1 or not (math.isfinite(spent.seconds) and spent.seconds > 0):
            return
        self.has_run = True
        seconds = spent.seconds / spent.steps
        if not self._is_warm:
            self._is_warm = True
        else:
            self._steps.append(seconds)
            self.step_seconds = lower_median(self._steps)

    def gained(self) -> Probabilities:
        """See `Record`."""
        return self._at.gained()

    def recall(self, counts: Probabilities, most: float) -> None:
        """See `Record`; all depths together are worth at most `most` guesses, so that a new text overrules them."""
        self._at.recall(counts, most)
        right, tested = bounded(counts.sum(axis=1)[:, None], most)[:, 0].tolist()
        self._right, self._tested, self.recalled = self._right + right, self._tested + tested, tested

    def _counts(self, sequence: int) -> tuple[float, float]:
        return self._own.get(sequence, (0.0, 0.0))
