"""Forward tokens of a text and keep them: how a component with a cache of its own reads on."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.aliases import Floats, Ints
from paceline.core.tree import TokenTree
from paceline.model.base import Model
from paceline.model.cache import PagedCache
from paceline.model.flatten import CHUNK, flatten


def extend(
    model: Model, cache: PagedCache, sequences: Sequence[int], feeds: Sequence[list[int]], *, wanted: int
) -> Floats:
    """Forward and commit tokens of several sequences; return the last `wanted` rows of each."""
    trees = [TokenTree.chain(feed) for feed in feeds]
    batch = flatten(cache, sequences, trees, [wanted] * len(trees))
    logits = model.forward(batch, cache).logits
    for sequence, feed in zip(sequences, feeds, strict=True):
        cache.commit(sequence, range(len(feed)), feed)
    return logits


def read_on(model: Model, cache: PagedCache, sequence: int, text: Ints, *, left: int = 1) -> int:
    """Read what the cache lacks of a text, until at most `left` >= 1 tokens remain; return how many were read.

    The last token stays out of the cache whatever `left` is.
    """
    before = cache.length(sequence)
    while len(text) - (start := cache.length(sequence)) > left:
        part = text[start : min(start + CHUNK, len(text) - 1)].tolist()
        extend(model, cache, [sequence], [part], wanted=0)
    return cache.length(sequence) - before
