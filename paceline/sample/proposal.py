"""Guesses drawn with chance of their own, and the distribution they were drawn from, for verifiers that weigh it.

The chance is the drafter's alone (`Stream.DRAFT`), and a function of the seed, the round and the path: no two nodes of
a tree share it, nor two rounds, because block verification looks at guesses that it then gives back.

A caller must not look ahead: whether a node's children are drawn, how many and whether they are verified may
depend on its path, never on what was drawn for them, nor on anything drawn later. Stop before drawing, or keep what
was drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Ints, Probabilities
from paceline.core.request import View
from paceline.core.tree import Draws
from paceline.sample.distribution import Distribution
from paceline.sample.rng import Stream, fraction, pick


@dataclass(frozen=True, slots=True)
class Children:
    """Guesses for one token: `tokens` int32 [k], `drawn` bool [k] those by chance, `distribution` float64 [V] theirs.

    `chances` float64 [k] is what the drafter's whole distribution gives each.
    """

    tokens: Ints
    drawn: npt.NDArray[np.bool_]
    distribution: Probabilities
    chances: Probabilities


def draw_children(
    distribution: Distribution, count: int, draws: Draws, view: View, path: Ints | Sequence[int] = (), *, vocab: int
) -> Children:
    """Guess the token that follows a sequence and the drafted `path` behind it.

    Args:
        distribution: the drafter's own, any: the target's distribution is kept whatever it is.
        count: how many guesses, fewer if the distribution has no more; a chain has one.
        draws: "chain" and "tree" draw all, without replacement (Sequoia 2402.12374); "greedy_tree" takes the likeliest
            `count - 1` and draws one from the rest, the tokens sure to be tried left out (Hu et al. 2502.18779).
        vocab: length of the distribution that is returned.
    """
    assert count > 0, count
    assert draws in ("chain", "tree", "greedy_tree"), f"`{draws}` guesses are not drawn independently"
    whole = weights = distribution.probabilities(vocab)
    sure = list[int]()
    if draws == "greedy_tree":
        sure, weights = distribution.best(min(count, len(distribution.ids)) - 1).tolist(), whole.copy()
        weights[sure] = 0
        if (rest := weights.sum()) > 0:  # a sharp distribution may leave nothing to draw from
            weights /= rest
    left, seed, found = weights.copy(), _seed(view, path), list[int]()
    while len(sure) + len(found) < (1 if draws == "chain" else count) and left.any():
        found.append(pick(left, fraction(seed, Stream.DRAFT, len(view.tokens), len(found))))
        left[found[-1]] = 0
    tokens = np.array([*sure, *found], np.int32)
    return Children(tokens, np.arange(len(tokens)) >= len(sure), weights, whole[tokens])


def _seed(view: View, path: Ints | Sequence[int]) -> int:
    digest = hashlib.blake2b(np.asarray(path, np.int32).tobytes(), digest_size=8).digest()
    return view.params.seed ^ int.from_bytes(digest, "little")
