"""Lay trees of several sequences flat into one batch."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import accumulate, chain

import numpy as np

from paceline.core.aliases import Ints
from paceline.core.batch import Batch
from paceline.core.tree import TokenTree
from paceline.model.cache import PagedCache

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
    ends = list(accumulate(map(len, trees)))
    return Batch(
        tokens=_ints(tree.tokens.tolist() for tree in trees),
        positions=_ints([length + d for d in tree.depths()] for tree, length in zip(trees, lengths, strict=True)),
        parents=_ints(tree.parents.tolist() for tree in trees),
        starts=_ints([[0], ends]),
        wanted=_ints(range(end - count, end) for end, count in zip(ends, wanted, strict=True)),
        tables=cache.table(sequences),
        lengths=_ints([lengths]),
    )


def _ints(parts: Iterable[Iterable[int]]) -> Ints:
    return np.array([*chain.from_iterable(parts)], np.int32)
