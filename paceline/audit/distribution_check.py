"""Chi-square of what the whole engine draws, over many seeds, against the distribution the target alone says.

On a restricted vocabulary, so that a few hundred short replies fill every cell: the joint distribution of their
first two tokens. Statistics cannot prove; they say how large a fault they would have seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.core.aliases import Json, Probabilities
from paceline.core.request import SamplingParams, View
from paceline.core.tree import TokenTree
from paceline.model.base import Model
from paceline.model.flatten import SLACK, flatten
from paceline.sample.distribution import distribution

ALPHA = 1e-6  # odds that a sound engine fails
_Z = 4.7534  # normal quantile of 1 - ALPHA
CELLS = 6  # tokens allowed


@dataclass(frozen=True, slots=True)
class DistributionCheck:
    """`statistic` over `limit` is a fault. `visible` is the total variation this many draws would have seen.

    `drafted` counts the guesses behind the draws: with none, a pass says nothing of speculation.
    """

    draws: int
    statistic: float
    freedom: int
    limit: float
    visible: float
    drafted: int = 0

    @property
    def passed(self) -> bool:
        return self.statistic <= self.limit

    def to_json(self) -> Json:
        return {
            "draws": self.draws,
            "drafted": self.drafted,
            "speculated": self.drafted > 0,
            "chi_square": self.statistic,
            "freedom": self.freedom,
            "limit": self.limit,
            "visible_total_variation": self.visible,
            "passed": self.passed,
        }


def likeliest(model: Model, view: View, ends: frozenset[int]) -> list[int]:
    """Return the tokens the check allows: the likeliest that do not end the reply."""
    (row,) = _rows(model, view.tokens.tolist(), [[]])
    order = [int(token) for token in np.argsort(-row, kind="stable") if int(token) not in ends]
    return order[:CELLS]


def joint_distribution(model: Model, view: View, allowed: Sequence[int]) -> Probabilities:
    """Return float64 [n, n]: how likely the target draws each pair of allowed tokens next."""
    rows = _rows(model, view.tokens.tolist(), [[], *([token] for token in allowed)])
    vocab = len(rows[0])
    first = distribution(rows[0], view).probabilities(vocab)[list(allowed)]
    seconds = [
        distribution(row, view, [token]).probabilities(vocab)[list(allowed)]
        for token, row in zip(allowed, rows[1:], strict=True)
    ]
    return np.asarray(first[:, None] * np.array(seconds))


def check(
    draw_pairs: Callable[[SamplingParams, Sequence[int]], Sequence[Sequence[int]]],
    model: Model,
    view: View,
    *,
    is_late: Callable[[], bool],
    most: int = 4000,
) -> DistributionCheck:
    """Draw pairs of tokens over ever new seeds until the time is up, and compare their counts with the distribution.

    Args:
        draw_pairs: maps (settings, seeds) to a reply for each seed, by the whole engine; two tokens of it count.
    """
    allowed = likeliest(model, view, view.ends)
    params = replace(
        view.params, temperature=1.0, allowed_tokens=tuple(allowed), max_tokens=3, ignore_eos=True, top_k=0, top_p=1.0
    )
    wanted = joint_distribution(model, replace(view, params=params), allowed)
    place = {token: i for i, token in enumerate(allowed)}
    counts = np.zeros((len(allowed), len(allowed)))
    seed = 0
    while seed < most and not (seed and is_late()):
        for first, second, *_ in draw_pairs(params, range(seed, seed + 16)):
            counts[place[first], place[second]] += 1
        seed += 16
    return _compare(counts.ravel(), wanted.ravel())


def _compare(counts: Probabilities, wanted: Probabilities) -> DistributionCheck:
    draws = counts.sum()
    expected = wanted * draws
    few = expected < 5
    pooled = [counts[~few], [counts[few].sum()]], [expected[~few], [expected[few].sum()]]
    seen, due = (np.concatenate(parts) for parts in pooled)
    seen, due = seen[due > 0], due[due > 0]
    statistic, freedom = float(((seen - due) ** 2 / due).sum()), max(len(due) - 1, 1)
    part = 2 / (9 * freedom)
    limit = freedom * (1 - part + _Z * math.sqrt(part)) ** 3  # Wilson and Hilferty
    # A fault of this size in total variation shifts the statistic to the limit and three deviations beyond.
    shift = limit - freedom + 3 * math.sqrt(2 * (freedom + 2 * limit))
    return DistributionCheck(int(draws), statistic, freedom, limit, min(math.sqrt(shift / (4 * draws)), 1.0))


def _rows(model: Model, text: list[int], branches: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Return the logits after the text and each branch of at most one token, in one forward of a tree."""
    cache = model.new_cache(len(text) + SLACK + len(branches))
    sequence = cache.open()
    tokens, parents = list(text), list(range(-1, len(text) - 1))
    rows = []
    for branch in branches:
        rows.append(len(text) - 1 if not branch else len(tokens))
        tokens += branch
        parents += [len(text) - 1] * len(branch)
    tree = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))
    logits = model.forward(flatten(cache, [sequence], [tree], [len(tokens)]), cache).logits
    found = [logits[row].copy() for row in rows]
    cache.release(sequence)
    return found
