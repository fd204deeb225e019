"""Keyed chance: every number is a function of (seed, stream, position, token), whatever the order of asking.

Philox4x32-10 (Salmon et al., SC 2011): key = the 64-bit seed; counter = (token // 4, position low, position high,
stream); the word of a token is lane `token % 4` of its block. Streams never share a counter.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]


class Stream(IntEnum):
    """What a number is used for; coupled verification shares `GUMBEL` between drafter and target on purpose."""

    GUMBEL = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def philox(key: tuple[int, int], counter: npt.NDArray[np.uint64]) -> Words:
    """Return uint32 [n, 4] for uint64 [n, 4] counters (each below 2^32)."""
    a, b, c, d = (counter[:, i].astype(np.uint64) for i in range(4))
    low = np.uint64(0xFFFFFFFF)
    key0, key1 = key
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            (q >> np.uint64(32)) ^ b ^ np.uint64(key0),
            q & low,
            (p >> np.uint64(32)) ^ d ^ np.uint64(key1),
            p & low,
        )
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([a, b, c, d], 1).astype(np.uint32)


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
