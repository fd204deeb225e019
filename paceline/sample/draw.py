"""The coupled draw: argmax over the law of score + Gumbel noise keyed by (seed, absolute position, token).

It is a sample of the law (Gumbel-max), and a function of the logits and the key alone: that is what makes sampled
output the same with speculation on or off (Daliri et al. 2408.07978).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.errors import NumericalError
from paceline.kernels.native import native
from paceline.sample.dice import Stream, gumbel, words
from paceline.sample.law import law
from paceline.types import Floats, Ints, View


def draw(logits: Floats, view: View, path: Ints | Sequence[int] = ()) -> int:
    """Return the token of a row of logits, float32 [V], that follows a sequence and the drafted `path` behind it.

    Raises:
        NumericalError: a logit is NaN or +inf, or all are -inf.
    """
    params, position = view.params, len(view.tokens) + len(path)
    try:
        return int(
            native().draw(logits, params.temperature, params.top_k, params.top_p, params.min_p, params.seed, position)
        )
    except ValueError as error:
        raise NumericalError(
            f"token {position} cannot be drawn: {error}",
            hint="the model file may be damaged; try another quantisation of it",
        ) from error


def draw_plain(logits: Floats, view: View, path: Ints | Sequence[int] = ()) -> int:
    """Do the same without shortcuts, in numpy."""
    params, position = view.params, len(view.tokens) + len(path)
    chosen = law(logits, view, path)
    scores = chosen.scores + gumbel(words(params.seed, Stream.GUMBEL, position, chosen.ids))
    if params.is_greedy:
        return int(chosen.ids[0])
    return int(chosen.ids[np.lexsort((chosen.ids, -scores))[0]])
