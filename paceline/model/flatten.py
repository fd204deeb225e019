"""Lay trees of several sequences flat into one batch."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from paceline.model.cache import PagedCache
from paceline.types import Batch, TokenTree

CHUNK = 256  # prompt tokens per forward: enough to read each weight once for many, small enough to stay in cache
SLACK = 128  # tokens of cache room a sequence needs beyond its text, for the tree in flight and a page begun for it


def flatten(cache: PagedCache, sequences: Seq[int], trees: Seq[TokenTree], wanted: Seq[int]) -> Batch:
    """Make room for each tree behind its sequence's committed tokens and describe them as one batch.

    Args:
        sequences: the cache's handles, one per tree.
        wanted: how many rows from the end of each tree need logits.
    """
    for sequence, tree in zip(sequences, trees, strict=True):
        cache.extend(sequence, len(tree))
    lengths = [cache.length(sequence) for sequence in sequences]
    starts = np.cumsum([0, *(len(tree) for tree in trees)]).astype(np.int32)
    positions = [tree.depths() + length for tree, length in zip(trees, lengths, strict=True)]
    rows = [np.arange(end - count, end) for end, count in zip(starts[1:], wanted, strict=True)]
    return Batch(
        tokens=np.concatenate([tree.tokens for tree in trees]).astype(np.int32, copy=False),
        positions=np.concatenate(positions).astype(np.int32, copy=False),
        parents=np.concatenate([tree.parents for tree in trees]).astype(np.int32, copy=False),
        starts=starts,
        wanted=np.concatenate(rows).astype(np.int32, copy=False),
        tables=cache.table(sequences),
        lengths=np.asarray(lengths, np.int32),
    )
