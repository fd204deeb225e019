"""From logits to the law a token is drawn from: temperature, then top-k, top-p, min-p.

Pure and plain: the reading copy of what the native draw does. Used for the target's law always, and by drafters for
theirs, so that both sides mean the same by every setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import NumericalError
from paceline.sample.order import best_first
from paceline.types import Floats, Ints, View


@dataclass(frozen=True, slots=True)
class Law:
    """The tokens that may be drawn: `ids` int32 [n] best first (ties by lower id), `scores` float64 [n] their
    logits over temperature."""

    ids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]

    def probabilities(self, vocab: int) -> npt.NDArray[np.float64]:
        """Return float64 [V], summing to one."""
        weights = np.exp(self.scores - self.scores.max())
        out = np.zeros(vocab)
        out[self.ids] = weights / weights.sum()
        return out


def law(logits: Floats, view: View, path: Ints | Sequence[int] = ()) -> Law:
    """Return the law of the token that follows a sequence and the drafted `path` behind it, from logits float32 [V].

    Raises:
        NumericalError: a logit is NaN or +inf, or all are -inf.
    """
    params = view.params
    check_logits(logits)
    order = best_first(logits)
    if params.is_greedy:
        return Law(order[:1], np.zeros(1))
    order = order[np.isfinite(logits[order])]
    if params.top_k > 0:
        order = order[: params.top_k]
    weights = np.exp((logits[order].astype(np.float64) - float(logits[order[0]])) / params.temperature)
    if params.top_p < 1:
        order = order[: 1 + int(np.searchsorted(np.cumsum(weights), params.top_p * weights.sum()))]
    if params.min_p > 0:
        order = order[weights[: len(order)] >= params.min_p]
    return Law(order, logits[order].astype(np.float64) / params.temperature)


def check_logits(logits: Floats) -> None:
    """Refuse rows nothing can be drawn from."""
    if np.isnan(logits).any():
        raise NumericalError("logits must be numbers, got NaN")
    if np.isposinf(logits).any():
        raise NumericalError("logits must be finite or -inf, got inf")
    if not np.isfinite(logits).any():
        raise NumericalError("every token is forbidden: all logits are -inf")
