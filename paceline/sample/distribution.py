"""From logits to the distribution a token is drawn from.

In this order: penalties, bias, bans and processors (adjust.py), then temperature, top-k, top-p, typical-p, min-p.
Pure and plain: the reading copy of what the native draw does. Used for the target's distribution always, and by
drafters for theirs, so that every setting means the same on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats, Ints
from paceline.core.request import View
from paceline.errors import NumericalError
from paceline.sample.order import best_first
from paceline.sample.penalties import adjust
from paceline.sample.weights import depths, share, weigh


@dataclass(frozen=True, slots=True)
class Distribution:
    """The tokens that may be drawn: `ids` int32 [n], `scores` float64 [n] their logits over temperature."""

    ids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]

    def probabilities(self, vocab: int) -> npt.NDArray[np.float64]:
        """Return float64 [V], summing to one: the same bits however the ids are ordered."""
        out: npt.NDArray[np.float64] = np.exp(self.scores - self.scores.max())
        if len(out) < vocab:
            out, weights = np.zeros(vocab), out
            out[self.ids] = weights
        elif not np.array_equal(self.ids, np.arange(vocab)):
            out[self.ids] = out.copy()
        out /= out.sum()
        return out

    def best(self, count: int) -> npt.NDArray[np.int32]:
        """Return int32 [`count`]: the likeliest, best first, ties by lower id; fewer if there are no more."""
        count = min(count, len(self.ids))
        if count == 0:
            return self.ids[:0]
        near = np.flatnonzero(self.scores >= np.partition(self.scores, -count)[-count])
        return self.ids[near[np.lexsort((self.ids[near], -self.scores[near]))]][:count]


def distribution(logits: Floats, view: View, path: Ints | Sequence[int] = ()) -> Distribution:
    """Return the distribution of the token that follows a sequence and the drafted `path` behind it, from logits
    float32 [V].

    Its ids come best first, ties by lower id.

    Raises:
        NumericalError: a logit is NaN or +inf, or all are -inf.
        ProcessorError: one of the request's logits processors failed.
    """
    params = view.params
    logits = adjust(logits, view, path)
    check_logits(logits)
    order = best_first(logits)
    if params.is_greedy:
        return Distribution(order[:1], np.zeros(1))
    order = order[np.isfinite(logits[order])]
    if params.top_k > 0:
        order = order[: params.top_k]
    depth = depths(logits[order], logits[order[0]], params.temperature)
    if params.top_p < 1:
        sums = np.cumsum(weigh(depth)[0])
        order = order[: 1 + int(np.searchsorted(sums, share(int(sums[-1]), params.top_p)))]
    if params.typical_p < 1:
        order = order[typical(depth[: len(order)], params.typical_p)]
    if params.min_p > 0:
        order = order[
            logits[order].astype(np.float64) >= min_p_floor(logits[order[0]], params.temperature, params.min_p)
        ]
    return Distribution(order, logits[order].astype(np.float64) / params.temperature)


def typical(depth: Floats, part: float) -> npt.NDArray[np.bool_]:
    """Return bool [n]: the tokens whose surprise is nearest its mean, the entropy, until they hold `part` of the mass.

    All that are as near as the last one are in. (Locally typical sampling, Meister et al. 2202.00666.)
    """
    weights, moments = weigh(depth)
    distance = np.abs(depth.astype(np.float64) - float(moments.sum()) / float(weights.sum()))
    nearest = np.argsort(distance, kind="stable")
    sums = np.cumsum(weights[nearest])
    last = nearest[int(np.searchsorted(sums, share(int(sums[-1]), part)))]
    return np.asarray(distance <= distance[last])


def min_p_floor(top: np.float32, temperature: float, min_p: float) -> float:
    """Return the logit of a token `min_p` times as likely as one with logit `top`."""
    return float(top) + temperature * math.log(min_p)


def check_logits(logits: Floats) -> None:
    """Refuse rows nothing can be drawn from."""
    if np.isnan(logits).any():
        raise NumericalError("logits must be numbers, got NaN")
    if np.isposinf(logits).any():
        raise NumericalError("logits must be finite or -inf, got inf")
    if not np.isfinite(logits).any():
        raise NumericalError("every token is forbidden: all logits are -inf")
