"""Forward tokens of a text and keep them: how whoever has a cache of his own reads on."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from paceline.model.base import Model
from paceline.model.cache import PagedCache
from paceline.model.flatten import CHUNK, flatten
from paceline.types import Floats, Ints, TokenTree


def extend(
    model: Model, cache: PagedCache, sequences: Sequence[int], feeds: Sequence[list[int]], *, wanted: int
) -> tuple[Floats, float]:
    """Forward and commit tokens of several sequences; return the last `wanted` rows of each and the seconds it took."""
    trees = [TokenTree.chain(feed) for feed in feeds]
    batch = flatten(cache, sequences, trees, [wanted] * len(trees))
    started = perf_counter()
    logits = model.forward(batch, cache).logits
    seconds = perf_counter() - started
    for sequence, feed in zip(sequences, feeds, strict=True):
        cache.commit(sequence, range(len(feed)), feed)
    return logits, seconds


def read_on(model: Model, cache: PagedCache, sequence: int, text: Ints, *, left: int = 1) -> float:
    """Read what the cache lacks of a text, until at most `left` >= 1 tokens remain; return the seconds it took.

    The last token stays out of the cache whatever `left` is.
    """
    seconds = 0.0
    while len(text) - (start := cache.length(sequence)) > left:
        part = text[start : min(start + CHUNK, len(text) - 1)].tolist()
        seconds += extend(model, cache, [sequence], [part], wanted=0)[1]
    return seconds
