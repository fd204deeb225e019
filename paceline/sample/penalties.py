"""What a request changes about a row of logits before it becomes a distribution: penalties, bias, bans, its own
processors.

A function of the row and of the whole history, that of the drafted path included: nothing is counted along the way, so
nothing can go stale when a draft is refused (penalties that count one token per round).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core.aliases import Floats, Ints
from paceline.core.request import Edits, View
from paceline.errors import ProcessorError


def is_adjusted(view: View, path: Ints | Sequence[int]) -> bool:
    """Tell whether anything but a processor changes the logits behind this path."""
    edits = edits_of(view)
    return view.params.is_penalised or not edits.is_empty or (_is_early(view, path) and bool(view.ends))


def edits_of(view: View) -> Edits:
    """Return the request's edits; views made by hand may lack them."""
    return Edits.of(view.params) if view.edits is None else view.edits


def ends_banned(view: View, path: Ints | Sequence[int]) -> Ints:
    """Return int32 [e]: the tokens that would end the reply before it has its `min_tokens`."""
    return np.array(sorted(view.ends) if _is_early(view, path) else [], np.int32)


def _is_early(view: View, path: Ints | Sequence[int]) -> bool:
    return len(view.tokens) - view.prompt_length + len(path) < view.params.min_tokens


def adjust(logits: Floats, view: View, path: Ints | Sequence[int]) -> Floats:
    """Return the row a token is drawn from: `logits` float32 [V] itself if nothing changes it, else a copy.

    All arithmetic is in float32, in the order of the lines, as the native twin has it.

    Raises:
        ProcessorError: a logits processor raised, or returned anything but V numbers.
    """
    row = _adjusted(logits.copy(), view, np.asarray(path, np.int32)) if is_adjusted(view, path) else logits
    return process(row, view, path, logits)


def _adjusted(row: Floats, view: View, path: Ints) -> Floats:
    params, edits, vocab = view.params, edits_of(view), len(row)

    def known(ids: Ints) -> Ints:  # a hostile draft may hold anything
        return ids[(ids >= 0) & (ids < vocab)]

    history = np.concatenate([view.tokens, path])
    if params.repetition_penalty != 1:
        seen, penalty = np.unique(known(history)), np.float32(params.repetition_penalty)
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    if params.presence_penalty or params.frequency_penalty:
        seen, counts = np.unique(known(history[view.prompt_length :]), return_counts=True)
        row[seen] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
        row[seen] -= np.float32(params.presence_penalty)
    row[edits.bias_ids] += edits.bias
    if edits.allowed is not None:
        kept = row[edits.allowed]
        row[:] = -np.inf
        row[edits.allowed] = kept
    for start, end in zip(edits.ban_starts[:-1], edits.ban_starts[1:], strict=True):
        before, last = edits.banned[start : end - 1], edits.banned[end - 1]
        written = history[view.prompt_length :]
        if len(written) >= len(before) and np.array_equal(written[len(written) - len(before) :], before):
            row[last] = -np.inf
    row[ends_banned(view, path)] = -np.inf
    return row


def process(row: Floats, view: View, path: Ints | Sequence[int], logits: Floats) -> Floats:
    """Apply the request's own processors, each to a copy of its own, and then its grammar; see `adjust`.

    What the model itself rules out in `logits`, as the ids that no token has, no processor brings back.
    """
    if view.params.logits_processors:
        row = _processed(row, view, path, logits)
    if view.grammar is None:
        return row
    written = np.concatenate([view.tokens[view.prompt_length :], np.asarray(path, np.int32)])
    return np.where(view.grammar.allowed(written)[: len(row)], row, np.float32(-np.inf))


def _processed(row: Floats, view: View, path: Ints | Sequence[int], logits: Floats) -> Floats:
    history = np.concatenate([view.tokens, np.asarray(path, np.int32)])
    for index, processor in enumerate(view.params.logits_processors):
        name = f"logits_processors[{index}]"
        try:
            given = processor(history.copy(), row.copy())
        except Exception as error:
            raise ProcessorError(
                f"{name} failed behind {len(history)} tokens: {type(error).__name__}: {error}",
                hint="a processor is called with (token_ids, logits) and returns logits",
            ) from error
        row = _checked(given, name, len(row))
    lost = np.asarray(logits) == -np.inf
    return np.where(lost, np.float32(-np.inf), row) if lost.any() else row  # a processor may keep what it returns


def _checked(given: object, name: str, vocab: int) -> Floats:
    hint = "return the logits, also when they were changed in place"
    try:
        row = np.ascontiguousarray(given, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProcessorError(f"{name} must return {vocab} logits, got `{given!r:.80}`", hint=hint) from error
    if given is None or row.shape != (vocab,):
        got = "None" if given is None else f"an array of shape {row.shape}"
        raise ProcessorError(f"{name} must return logits of shape ({vocab},), got {got}", hint=hint)
    if np.isnan(row).any() or np.isposinf(row).any():
        raise ProcessorError(f"{name} must return finite logits or -inf, got {'NaN' if np.isnan(row).any() else 'inf'}")
    return row
