"""The coupled draw: argmax over the distribution of score + Gumbel noise keyed by (seed, absolute position, token).

It is a sample of the distribution (Gumbel-max), and a function of the logits, the history and the key alone: that is
what makes sampled output the same with speculation on or off (Daliri et al. 2408.07978).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core.aliases import Floats, Ints
from paceline.core.request import View
from paceline.errors import NumericalError
from paceline.kernels.native import native
from paceline.sample.distribution import Distribution, distribution
from paceline.sample.penalties import edits_of, ends_banned, is_adjusted, process
from paceline.sample.rng import Stream, gumbel, words


def draw(logits: Floats, view: View, path: Ints | Sequence[int] = (), *, peaks: Ints | None = None) -> int:
    """Return the token of a row of logits, float32 [V], that follows a sequence and the drafted `path` behind it.

    Args:
        peaks: those of the row, where known; see `Logits`.

    Raises:
        NumericalError: a logit is NaN or +inf, or all are -inf, as when every token is banned.
        ProcessorError: one of the request's logits processors failed.
    """
    p, position = view.params, len(view.tokens) + len(path)
    row = adjust_fast(logits, view, path)
    known = peaks if row is logits else None
    settings = (p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p)
    try:
        return int(native.draw(row, *settings, p.seed, position, known))
    except ValueError as error:
        raise _undrawn(error, position, is_adjusted=row is not logits) from error


def distribution_fast(logits: Floats, view: View, path: Ints | Sequence[int] = ()) -> Distribution:
    """Do what `distribution` does, in the native code, but for the order of the ids; raises what `draw` raises."""
    p, row = view.params, adjust_fast(logits, view, path)
    is_cut = p.top_k > 0 or p.top_p < 1 or p.typical_p < 1 or p.min_p > 0
    temperature = p.temperature if is_cut else 0.0  # then the best logit alone shows that the row is sound
    try:
        ids = native.kept(row, temperature, p.top_k, p.top_p, p.typical_p, p.min_p)
    except ValueError as error:
        raise _undrawn(error, len(view.tokens) + len(path), is_adjusted=row is not logits) from error
    if p.is_greedy:
        return Distribution(ids, np.zeros(1))
    if not is_cut:
        ids = np.arange(len(row), dtype=np.int32)
    scores = row[ids].astype(np.float64) if is_cut else row.astype(np.float64)
    scores /= p.temperature
    return Distribution(ids, scores)


def _undrawn(error: ValueError, position: int, *, is_adjusted: bool) -> NumericalError:
    """Return the error for a row that nothing can be drawn from; it names the token's position."""
    return NumericalError(
        f"token {position} cannot be drawn: {error}",
        hint="allow more tokens: see allowed_tokens, bad_words, logit_bias, min_tokens, grammar and logits_processors"
        if is_adjusted
        else "the model file may be damaged; try another quantisation of it",
    )


def adjust_fast(logits: Floats, view: View, path: Ints | Sequence[int]) -> Floats:
    """Do what `adjust` does, in the native code; raises what it raises."""
    params, row = view.params, logits
    if is_adjusted(view, path):
        edits, row = edits_of(view), np.empty_like(logits)
        native.adjust(
            logits,
            row,
            view.tokens,
            np.asarray(path, np.int32),
            view.prompt_length,
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
            edits.bias_ids,
            edits.bias,
            edits.allowed,
            edits.banned,
            edits.ban_starts,
            ends_banned(view, path),
        )
    return process(row, view, path, logits)


def draw_plain(logits: Floats, view: View, path: Ints | Sequence[int] = ()) -> int:
    """Do the same without shortcuts, in numpy."""
    params, position = view.params, len(view.tokens) + len(path)
    chosen = distribution(logits, view, path)
    scores = chosen.scores + gumbel(words(params.seed, Stream.GUMBEL, position, chosen.ids))
    if params.is_greedy:
        return int(chosen.ids[0])
    return int(chosen.ids[np.lexsort((chosen.ids, -scores))[0]])
