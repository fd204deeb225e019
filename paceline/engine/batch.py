"""Pack a round's sequences and drafts into one batch, and find each sequence's rows in the result."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from paceline.core.batch import Batch
from paceline.core.tree import Draft, TokenTree
from paceline.engine.sequence import Sequence
from paceline.model.cache import PagedCache
from paceline.model.flatten import flatten


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence's share of a batch: `pending` committed tokens its cache lacked, then its draft's nodes.

    `rows` are its wanted logits, one per node of the draft's tree, root first; empty while more tokens are pending.
    `flat` are the same nodes among all rows of the batch.
    """

    sequence: Sequence
    draft: Draft
    pending: int
    rows: slice
    flat: slice

    @property
    def is_complete(self) -> bool:
        return bool(self.rows.stop > self.rows.start)


def pack(turns: Seq[tuple[Sequence, int]], drafts: Seq[Draft], cache: PagedCache) -> tuple[Batch, list[Part]]:
    """Extend every sequence by what its cache lacks, at most so many tokens, and then by its drafted tree."""
    trees, parts, wanted, end, start = [], [], [], 0, 0
    for (sequence, rows), draft in zip(turns, drafts, strict=True):
        lacking = sequence.tokens[cache.length(sequence.cache) :]
        pending = lacking[:rows]
        complete = len(pending) == len(lacking)
        trees.append(graft(pending, draft.tree) if complete else TokenTree.chain(pending))
        count = len(draft.tree) if complete else 0
        root = start + len(pending) - 1
        parts.append(Part(sequence, draft, len(pending), slice(end, end + count), slice(root, root + count)))
        wanted.append(count)
        end += count
        start += len(trees[-1])
    return flatten(cache, [sequence.cache for sequence, _ in turns], trees, wanted), parts


def trunk(draft: Draft) -> Draft:
    """Return one path of a draft, for models that read chains only: down by drawn nodes first, then the surest."""
    path, node = [0], 0
    while children := draft.tree.children(node):
        drawn = [] if draft.drawn is None else [child for child in children if draft.drawn[child]]
        node = drawn[0] if drawn else max(children, key=lambda child: float(draft.acceptance_prob[child]))
        path.append(node)
    if len(path) == len(draft.tree):
        return draft
    distributions = {place: draft.distributions[node] for place, node in enumerate(path) if node in draft.distributions}
    kept = None if draft.drawn is None else draft.drawn[path]
    return Draft(
        TokenTree.chain(draft.tree.tokens[path]), draft.acceptance_prob[path], draft.source[path], distributions, kept
    )


def graft(pending: np.ndarray, tree: TokenTree) -> TokenTree:
    """Append a tree, rooted at the last pending token, to the chain of pending tokens."""
    if len(pending) == 1:
        return tree
    shift = len(pending) - 1
    return TokenTree(
        np.concatenate([pending, tree.tokens[1:]]).astype(np.int32, copy=False),
        np.concatenate([np.arange(-1, shift), tree.parents[1:] + shift]).astype(np.int32, copy=False),
    )
