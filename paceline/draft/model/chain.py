"""How sure a guess is, and whether another one pays.

Acceptance is counted by the probability that the draft gave a guess, and by its depth
(calibrated confidence: SVIP 2411.18462, AdaEDL 2410.18351; the stopping rule: Dinkelbach's for the long-run rate,
SpecDec++ 2405.19715). `Rates` holds these counts as tables, which native/draft.cpp reads as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.core.aliases import Probabilities
from paceline.estimate.acceptance import Acceptance, odds, scaled

EDGES = (0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97)  # between the bins of confidence
MIDDLES = (0.1, 0.3, 0.5, 0.675, 0.8, 0.885, 0.945, 0.985)
BINS, DEPTHS = len(MIDDLES), 8  # guesses from the last depth on are counted as one
ALIKE = 8.0  # observations of one depth that those of all of them are worth there
FADE = 0.97  # of a depth's weight with each chain
FIRST, AFTER = 0.7, tuple(0.45 + 0.45 * middle for middle in MIDDLES)  # priors: of a first guess, of later ones by bin
USUAL = 8.0  # observations that a rate inferred from first guesses counts as
RANKS = 2  # runners-up beside a guess
RUNNERS_UP = (0.45, 0.2)  # prior: the share of a guess's misses that each catches


def bin_of(confidence: float) -> int:
    """Return the bin of a probability."""
    return bisect_right(EDGES, confidence)


@dataclass(frozen=True, slots=True)
class Rates:
    """Acceptance given that the parent was accepted, every table float64.

    `kept` [DEPTHS, BINS] of a guess; `ahead` [DEPTHS, BINS + 1] of a guess not yet drawn, by the bin of the one before
    it, the last column for a chain's first; `beside` [RANKS, BINS] of the runners-up of a guess.
    """

    kept: Probabilities
    ahead: Probabilities
    beside: Probabilities

    def pays(self, count: int, survival: float, bin: int, price: Probabilities | None, step: float, limit: int) -> bool:
        """Tell whether a chain of `count` guesses should go on, to any length up to `limit`.

        Args:
            survival: how likely all of them are accepted.
            bin: that of the last guess, BINS before the first.
            price: of so many nodes, in tokens; `None` is nothing. `step` is that of one more step.
        """
        if price is None:
            return count < limit
        gain = 0.0
        for following in range(count, limit):
            survival *= float(self.ahead[min(following, DEPTHS - 1), bin])
            gain += survival - step
            if gain > float(price[following + 1]) - float(price[count]):
                return True
        return False


@dataclass(slots=True)
class Guesses:
    """A chain of one sequence: tokens, how likely the draft found each, and the runners-up beside each."""

    tokens: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    beside: list[list[int]] = field(default_factory=list)
    steps: int = 0  # forwards it took: one more than tokens if the last could not be drawn, or was dropped

    def drop(self) -> None:
        """Take the last guess back."""
        for each in (self.tokens, self.confidences, self.beside):
            each.pop()


class Confidence:
    """Counts the outcomes of guesses, by depth and confidence."""

    def __init__(self) -> None:
        middles = np.array(MIDDLES)
        # Acceptance over all depths, and beside it what each depth adds.
        self._kept, self._kept_at = Acceptance(0.97 * middles), Acceptance(np.zeros(DEPTHS * BINS), weight=ALIKE)
        # A chain that stops after a guess shows nothing of deeper ones; first guesses are always made and stand in.
        self._first, self._ahead = Acceptance([FIRST]), Acceptance(np.array(AFTER), weight=USUAL)
        self._ahead_at = Acceptance(np.zeros(DEPTHS * (BINS + 1)), weight=ALIKE)
        self._beside = Acceptance(np.concatenate([(1 - middles) * share for share in RUNNERS_UP]))
        self._rates: Rates | None = None
        whole = {"kept": self._kept, "first": self._first, "ahead": self._ahead, "beside": self._beside}
        self.experience = {**whole, "kept at": self._kept_at, "ahead at": self._ahead_at}

    def rates(self) -> Rates:
        """Return the current rates."""
        if self._rates is None:
            kept, first = self._kept.rates().tolist(), float(self._first.rates()[0])
            ahead = [
                *self._ahead.rates(prior=scaled(np.array(AFTER), odds(first) / odds(FIRST)).tolist()).tolist(),
                first,
            ]
            self._rates = Rates(
                self._kept_at.rates(prior=kept * DEPTHS).reshape(DEPTHS, BINS),
                self._ahead_at.rates(prior=ahead * DEPTHS).reshape(DEPTHS, BINS + 1),
                self._beside.rates().reshape(RANKS, BINS),
            )
        return self._rates

    def observe(self, guesses: Guesses, tokens: Sequence[int]) -> None:
        """Count a chain against the tokens that were committed, up to the first that differs."""
        self._rates, last = None, BINS
        self._ahead.fade(FADE)
        self._kept_at.fade(FADE)  # a depth no longer drafted returns to the common rate
        self._ahead_at.fade(FADE)
        for depth, (guess, confidence, others, token) in enumerate(
            zip(guesses.tokens, guesses.confidences, guesses.beside, tokens, strict=False)
        ):
            row, bin, is_kept = min(depth, DEPTHS - 1), bin_of(confidence), guess == token
            self._kept.observe(bin, kept=is_kept)
            self._kept_at.observe(row * BINS + bin, kept=is_kept)
            (self._ahead if depth else self._first).observe(last if depth else 0, kept=is_kept)
            self._ahead_at.observe(row * (BINS + 1) + last, kept=is_kept)
            for rank, other in enumerate(others):
                self._beside.observe(rank * BINS + bin, kept=other == token)
            if not is_kept:
                return
            last = bin
