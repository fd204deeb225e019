"""What is believed of one source of guesses: how often it is right, depth by depth, and what a step of it takes.

Knows counts and seconds only. A depth that was hardly tried is believed to be like the others of its source, and a
source that was never tried to be good: a few cheap rounds tell.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from paceline.control.acceptance import Acceptance, bounded
from paceline.control.numbers import lower_median
from paceline.types import Probabilities, Spent

PRIOR, PRIOR_WEIGHT = 0.7, 2.0  # right so often, as if seen so often, before anything was
DECAY = 0.98  # of an observation's weight with each that follows it
FADE = 0.997  # of a depth's weight with each round, so that one given up is tried again some day
SHRINK = 3.0  # observations that the source's own average is worth at each depth
DOUBTED = 6.0  # what a refused source's past may weigh at most, so that a few right guesses bring it back
YOUNG = 8  # guesses put to the test until which a source may hope
REMEMBERED = 16  # rounds that the share of rounds with a guess is the mean of, more or less
SILENT = 0.1  # share of rounds: about 25 in a row without a guess
WINDOW = 9  # rounds that a step's seconds are the median of; what was calibrated counts as one of them


class Belief:
    """One source.

    Args:
        depth: the deepest guess that is told apart.
        step_seconds: of one step, as calibrated; `None` while nothing says that it takes time.
    """

    def __init__(self, name: str, depth: int, *, step_seconds: float | None = None) -> None:
        self.name = name
        self._right, self._tested = PRIOR * PRIOR_WEIGHT, PRIOR_WEIGHT
        self._depth, self._at = depth, Acceptance(np.full(depth, PRIOR), weight=SHRINK, decay=DECAY)
        self._steps = deque[float]([step_seconds] if step_seconds else [], maxlen=WINDOW)
        self._is_warm = bool(self._steps)  # a first round that nothing was known of reads the whole text as well
        self.step_seconds = step_seconds or 0.0  # 0 if it takes no time
        self.share = 1.0 if step_seconds else 0.5  # of rounds in which it has anything to guess
        self._kept_ever = 0
        self.recalled = 0.0  # observations that earlier runs are worth
        self._ran = False
        self.has_run = False  # and its seconds were seen, not just calibrated
        self.is_on = True
        self.tried = 0

    @property
    def rate(self) -> float:
        """How often it is right, all depths together."""
        return self._right / self._tested

    @property
    def is_costly(self) -> bool:
        return bool(self._steps)

    @property
    def is_silent(self) -> bool:
        """Whether it takes no time and hardly ever has anything to guess: then it is not waited for."""
        return not self.is_costly and self.share < SILENT

    @property
    def start(self) -> int:
        """How deep it may go so far: slowly until it was right a few times."""
        return 1 + 2 * self._kept_ever

    def rates(self, *, hope: float = 0.0) -> Probabilities:
        """Return float64 [depth]: how often a guess at each depth is right, given the ones before.

        Args:
            hope: how many standard errors to add to each.
        """
        return self._at.rates(hope=hope, prior=[self.rate] * self._depth)

    def survival(self, *, hope: float = 0.0) -> Probabilities:
        """Return float64 [depth]: how likely a chain is still right at each depth; see `rates`."""
        return np.cumprod(self.rates(hope=hope), dtype=np.float64)

    def observe(self, tested: Sequence[int], kept: Sequence[int], *, censored: bool) -> None:
        """Count a round's guesses by depth; of one that was cut, only those kept."""
        self._at.fade(FADE)
        for depth, (was_tested, right) in enumerate(zip(tested, kept, strict=True)):
            if not was_tested or (censored and not right):
                continue
            self._right, self._tested = DECAY * self._right + right, DECAY * self._tested + 1
            self._at.observe(min(depth, self._depth - 1), kept=bool(right))
            self._kept_ever += right
            self.tried += 1

    def gained(self) -> Probabilities:
        """See `Record`."""
        return self._at.gained()

    def recall(self, counts: Probabilities, most: float) -> None:
        """See `Record`; all depths together are worth no more than one at most, for a new text to overrule."""
        self._at.recall(counts, most)
        together = bounded(counts.sum(axis=1)[:, None], most)[:, 0].tolist()
        self._right, self._tested = self._right + together[0], self._tested + together[1]
        self._kept_ever, self.recalled = int(together[0]), together[1]

    def had(self, share: float) -> None:
        """Count for which share of the sequences of a round it had anything to guess."""
        self.share += (share - self.share) / REMEMBERED

    def took(self, spent: Spent | None) -> None:
        """Learn what a step takes; `None` if it did not run.

        After a pause a source reads what it missed as well, so then only good news is believed.
        """
        ran_before, self._ran = self._ran, spent is not None
        if spent is None or spent.read or spent.steps < 1 or not (math.isfinite(spent.seconds) and spent.seconds > 0):
            return
        seconds = spent.seconds / spent.steps
        if not self._is_warm:
            self._is_warm = True
        elif not self._steps or ran_before or seconds < self.step_seconds:
            self._steps.append(seconds)
            self.step_seconds = lower_median(self._steps)
            self.has_run = True

    def turn(self, *, on: bool) -> None:
        """Use it or not; what spoke against it counts for less from then on."""
        self.is_on = on
        if not on and self._tested > DOUBTED:
            self._right, self._tested = self._right * DOUBTED / self._tested, DOUBTED
            self._at.bound(1.0)
