"""How often guesses of one kind were right, recent rounds counting most.

A bucket groups guesses by what is known of them before they are checked: a match length, a confidence, a rank, a
depth. Rates are conditional: a guess counts only once its parent was accepted (depth-wise acceptance:
Leviathan et al. 2211.17192; discounting: 2406.14066).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Protocol

import numpy as np

from paceline.core.aliases import Probabilities

TILTED = 2.0  # prior of a text: guesses right, and as many wrong
CERTAIN = 0.02  # a rate that moves others stays this far from 0 and 1
TILT_DECAY = 0.97  # of a guess's weight in its text with each later guess


class Record(Protocol):
    """Counts that are worth keeping from one run to the next. Both are float64 [2, n]: right, and put to the test."""

    def gained(self) -> Probabilities:
        """Return the counts since the last call."""

    def recall(self, counts: Probabilities, most: float) -> None:
        """Begin with the counts of earlier runs, each scaled down to `most` observations.

        Raises:
            ValueError: the counts have another shape, or are none.
        """


def bounded(counts: Probabilities, most: float) -> Probabilities:
    """Return counts float64 [2, n], none worth more than so many observations; the rates stay."""
    return np.asarray(counts * (most / np.maximum(counts[1], most)))


class Acceptance:
    """Discounted counts by bucket.

    Args:
        prior: the rate of each bucket before anything was seen.
        weight: how many observations the prior is worth.
        decay: what an observation is worth after one more of its bucket.
    """

    def __init__(self, prior: Sequence[float] | Probabilities, *, weight: float = 2.0, decay: float = 0.97) -> None:
        self._prior = list(map(float, prior))
        self._weight, self._decay = weight, decay
        self._kept, self._tested = [0.0] * len(prior), [0.0] * len(prior)
        self._new = [[0.0] * len(prior), [0.0] * len(prior)]

    def rates(self, *, hope: float = 0.0, prior: Sequence[float] | None = None) -> Probabilities:
        """Return float64 [buckets], between 0 and 1.

        Args:
            hope: how many standard errors to add, so that a few wrong guesses do not silence a good source.
            prior: replaces the prior rates of the buckets.
        """
        weight, believed = self._weight, self._prior if prior is None else prior
        each = zip(self._kept, self._tested, believed, strict=True)
        rates = np.array([(kept + weight * before) / (tested + weight) for kept, tested, before in each], np.float64)
        if hope:
            rates += hope * np.sqrt(rates * (1 - rates) / (np.array(self._tested) + weight))
        return np.minimum(rates, 1.0)

    def observe(self, bucket: int, *, kept: bool) -> None:
        """Count one guess whose parent was accepted."""
        self._tested[bucket] = self._decay * self._tested[bucket] + 1
        self._kept[bucket] = self._decay * self._kept[bucket] + kept
        self._new[0][bucket] += kept
        self._new[1][bucket] += 1

    def fade(self, factor: float) -> None:
        """Scale down all counts: a bucket that is no longer tested returns to its prior."""
        self._tested = [factor * tested for tested in self._tested]
        self._kept = [factor * kept for kept in self._kept]

    def bound(self, most: float) -> None:
        """Scale each bucket's counts down to `most` observations; the rates stay."""
        self._kept, self._tested = bounded(np.stack([self._kept, self._tested]), most)

    def gained(self) -> Probabilities:
        """See `Record`."""
        new = np.array(self._new)
        self._new = [[0.0] * len(self._prior), [0.0] * len(self._prior)]
        return new

    def recall(self, counts: Probabilities, most: float) -> None:
        """See `Record`."""
        if counts.shape != (2, len(self._prior)):
            raise ValueError(f"{len(self._prior)} buckets have other counts than {counts.shape}")
        right, tested = bounded(counts, most).tolist()
        self._kept = list(map(add, self._kept, right))
        self._tested = list(map(add, self._tested, tested))


class Tilt:
    """One text's acceptance against the usual acceptance of the same kinds of guesses, as a ratio of odds.

    The rate of a kind rests on many texts and moves slowly. The guesses of one text, all kinds together, show within a
    few whether it is copied.
    """

    def __init__(self) -> None:
        self._right = self._expected = self._tested = 0.0

    def observe(self, expected: float, *, kept: bool) -> None:
        """Count a guess whose parent was accepted; `expected` is how often its kind is right."""
        self._right = TILT_DECAY * self._right + kept
        self._expected = TILT_DECAY * self._expected + expected
        self._tested = TILT_DECAY * self._tested + 1

    def moved(self, rates: Probabilities) -> Probabilities:
        """Return float64 [n]: rates of kinds as they are in this text, between 0 and 1."""
        odds = (self._right + TILTED) / (self._tested - self._right + TILTED)
        usual = (self._expected + TILTED) / (self._tested - self._expected + TILTED)
        return scaled(rates, odds / usual)


def scaled(rates: Probabilities, ratio: float | Probabilities) -> Probabilities:
    """Return rates, their odds multiplied by `ratio`: how one text or kind moves what is known of others."""
    right = rates * ratio
    return np.asarray(right / (right + 1 - rates))


def odds(rate: float) -> float:
    """Return rate / (1 - rate), the rate kept CERTAIN away from 0 and 1."""
    rate = min(max(rate, CERTAIN), 1 - CERTAIN)
    return rate / (1 - rate)
