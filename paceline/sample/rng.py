"""Keyed chance: every number is a function of (seed, stream, position, token), whatever the order of asking.

Philox4x32-10 (Salmon et al., SC 2011): key = the 64-bit seed; counter = (token // 4, position low, position high,
stream); the word of a token is lane `token % 4` of its block. Streams never share a counter.

Verifiers that toss coins of their own ask a `Rng`. Its coins belong to the round, told apart by the position its
first token takes: block verification weighs coins and drafts of positions it then gives back, so a number that
followed the token's position would be used twice, and the distribution would be off
(tests/distributions/test_keyed.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Probabilities
from paceline.core.request import View

Words = npt.NDArray[np.uint32]

PART = 512  # weights summed up at once where one is picked


class Stream(IntEnum):
    """What a number is used for; coupled verification shares `GUMBEL` between drafter and target on purpose."""

    GUMBEL = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def philox(key: tuple[int, int], counter: npt.NDArray[np.uint64]) -> Words:
    """Return uint32 [n, 4] for uint64 [n, 4] counters (each below 2^32)."""
    return np.stack(_rounds(key, *(counter[:, i].astype(np.uint64) for i in range(4))), 1).astype(np.uint32)


def _rounds(key: tuple[int, int], a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    """Mix four words below 2^32, arrays of uint64 or plain integers."""
    key0, key1 = key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ key0, q & 0xFFFFFFFF, (p >> 32) ^ d ^ key1, p & 0xFFFFFFFF
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def words(seed: int, stream: Stream, position: int, tokens: npt.NDArray[np.integer]) -> Words:
    """Return uint32 [n]: the word of each token at an absolute position."""
    counter = np.empty((len(tokens), 4), np.uint64)
    counter[:, 0] = tokens // 4
    counter[:, 1], counter[:, 2], counter[:, 3] = position & 0xFFFFFFFF, position >> 32, stream
    return np.asarray(philox((seed & 0xFFFFFFFF, seed >> 32), counter)[np.arange(len(tokens)), tokens % 4])


def uniform(word: Words) -> npt.NDArray[np.float64]:
    """Map words to the middle of 2^32 equal parts of (0, 1): never 0, never 1, full 32 bits."""
    return (word.astype(np.float64) + 0.5) * 2.0**-32


def gumbel(word: Words) -> npt.NDArray[np.float64]:
    """Return standard Gumbel noise, -log(-log u)."""
    return np.asarray(-np.log(-np.log(uniform(word))))


class Rng(Protocol):
    """The only source of chance of a verdict, so that a test can play every outcome."""

    def accept(self, probability: float) -> bool:
        """Return True with this probability; 0 is never and 1 always."""

    def draw(self, distribution: Probabilities, depth: int = 0) -> int:
        """Return an index drawn by float64 [n]: the round's own token, `depth` places behind its first."""


class KeyedRng:
    """Answers of one round, keyed by the seed, the position of its first token and the order of asking.

    The round's own token is keyed by the position it will take instead: each is drawn once, so where no guess was
    drawn the same tokens come whatever was guessed.
    """

    def __init__(self, view: View) -> None:
        self._seed, self._position, self._asked = view.params.seed, len(view.tokens), 0

    def accept(self, probability: float) -> bool:
        """See `Rng.accept`."""
        self._asked += 1
        return fraction(self._seed, Stream.ACCEPT, self._position, self._asked) < probability

    def draw(self, distribution: Probabilities, depth: int = 0) -> int:
        """See `Rng.draw`."""
        return pick(distribution, fraction(self._seed, Stream.RESIDUAL, self._position + depth))


def fraction(seed: int, stream: Stream, position: int, trial: int = 0) -> float:
    """Return the middle of one of 2^52 equal parts of (0, 1)."""
    key, counter = (seed & 0xFFFFFFFF, seed >> 32), (trial, position & 0xFFFFFFFF, position >> 32, int(stream))
    high, low, _, _ = _rounds(key, *counter)
    return float(((high << 20) | (low >> 12)) + 0.5) * 2.0**-52


def pick(distribution: Probabilities, fraction: float) -> int:
    """Return the index at which the running sum of weights, float64 [n], first exceeds this fraction of the whole."""
    parts = np.cumsum(np.add.reduceat(distribution, np.arange(0, len(distribution), PART)))
    assert parts[-1] > 0, f"nothing can be drawn from weights that sum to {parts[-1]}"
    wanted = fraction * parts[-1]
    part = min(int(np.searchsorted(parts, wanted, side="right")), int(np.searchsorted(parts, parts[-1])))
    inside = distribution[part * PART : (part + 1) * PART]
    running = np.cumsum(inside)
    found = int(np.searchsorted(running, wanted - (parts[part - 1] if part else 0.0), side="right"))
    # Sums may round up, the product too: then it is the last one that is possible.
    return part * PART + (found if found < len(inside) else int(np.flatnonzero(inside)[-1]))
