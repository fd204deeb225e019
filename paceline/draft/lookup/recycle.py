"""Guess that tokens which were likely after a token will be likely again.

The likeliest successors in every verified row of logits, refused guesses included, are kept under the row's token. The
draft is the tree of successors' successors (token recycling, Luo et al. 2408.08696). One token of context is little:
this is right less often than a longer match, but it always has a guess. Acceptance is counted by rank and depth, and
the tree is grown best first by it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence as Seq

import numpy as np

from paceline.core.aliases import Ints
from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, Setting, empty_draft
from paceline.draft.tree_ops import best_prefix, tested_nodes
from paceline.estimate.acceptance import Acceptance
from paceline.kernels.native import native

KEPT = 8  # successors of a token
ROWS = 8  # of logits read after a round, those of the accepted path first: some 40 us each for 150 000 tokens
DEPTHS = 4  # depths from here on are counted as one
PRIOR = (0.45, 0.14, 0.08, 0.05, 0.04, 0.03, 0.02, 0.02)  # by rank, before anything was seen


class RecycleDrafter(Drafter):
    """One table for all sequences: int32 [V, KEPT], 5 MB for 150 000 tokens.

    Args:
        is_chain: never guess two tokens for one place.
    """

    sources: tuple[str, ...] = ("recycle",)
    weighs = frozenset(sources)

    def __init__(self, vocab: int, *, is_chain: bool = False) -> None:
        self._successors = np.full((vocab, KEPT), -1, np.int32)
        self._width = 1 if is_chain else KEPT
        self._acceptance = Acceptance(np.tile(PRIOR, DEPTHS), decay=0.98)
        self.experience = {"recycle": self._acceptance}
        self._proposed: dict[int, tuple[TokenTree, list[int]]] = {}

    @staticmethod
    def of(setting: Setting, argument: str) -> RecycleDrafter:
        return RecycleDrafter(setting.target.model.spec.vocab, is_chain=setting.draws == "chain")

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Grow the tree of likely successors of each sequence's last token."""
        rates = self._acceptance.rates().reshape(DEPTHS, KEPT)[:, : self._width]
        order = np.argsort(-rates, axis=1, kind="stable")
        ranked = [[(rank, float(row[rank])) for rank in best] for row, best in zip(rates, order.tolist(), strict=True)]
        return [self._propose(view, budget, ranked) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by rank and depth, and keep each row's likeliest tokens."""
        committed = verified.tokens.tolist()
        tree, kinds = self._proposed.pop(view.id, (None, list[int]()))
        if tree is not None:
            for node, is_right in tested_nodes(tree, committed):
                self._acceptance.observe(kinds[node], kept=is_right)
        path = (0, *verified.nodes)
        others = [node for node in range(len(verified.tree)) if node not in path]
        rows = np.array([*path, *others][:ROWS][::-1], np.int32)  # the path's rows are last and win
        peaks = getattr(verified.logits, "peaks", None)
        self._successors[verified.tree.tokens[rows]] = native.top(verified.logits, rows, KEPT, peaks)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; its entries in the table stay."""
        self._proposed.pop(sequence_id, None)

    def forget(self) -> None:
        """See `Drafter.forget`."""
        self._successors.fill(-1)

    def successors(self, token: int) -> Ints:
        """Return int32 [KEPT]: what was likely after a token when it was last verified, best first; -1 is nothing."""
        row: Ints = self._successors[token]
        return row

    def _propose(self, view: View, budget: Budget, ranked: list[list[tuple[int, float]]]) -> Draft:
        self._proposed.pop(view.id, None)
        if min(budget.nodes, budget.depth) <= 0:
            return empty_draft(view)
        tokens, parents, depths, kinds = [int(view.tokens[-1])], [-1], [0], [0]
        guess, values = [1.0], [1.0]
        # A node's successors enter one by one, each when the one before it has been taken.
        heap: list[tuple[float, int, int]] = []  # minus value, parent, place in the parent's order of ranks
        rows = [self._successors[tokens[0]].tolist()]
        _push(heap, rows[0], ranked[0], 1.0, 0, 0)
        while heap and len(tokens) <= budget.nodes:
            value, parent, place = heapq.heappop(heap)
            level = min(depths[parent], DEPTHS - 1)
            rank, rate = ranked[level][place]
            _push(heap, rows[parent], ranked[level], values[parent], parent, place + 1)
            node = len(tokens)
            tokens.append(rows[parent][rank])
            parents.append(parent)
            depths.append(depths[parent] + 1)
            kinds.append(level * KEPT + rank)
            guess.append(rate)
            values.append(-value)
            rows.append(self._successors[tokens[node]].tolist() if depths[node] < budget.depth else [])
            _push(heap, rows[node], ranked[min(depths[node], DEPTHS - 1)], -value, node, 0)
        self._proposed[view.id] = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32)), kinds
        count = 1 + best_prefix(values[1:], budget.price)[0]
        tree = TokenTree(np.array(tokens[:count], np.int32), np.array(parents[:count], np.int32))
        return Draft(tree, np.array(guess[:count], np.float32), np.zeros(count, np.int8))


def _push(
    heap: list[tuple[float, int, int]],
    row: list[int],
    ranked: list[tuple[int, float]],
    value: float,
    parent: int,
    place: int,
) -> None:
    """Push the next valid successor of a node."""
    if row:
        for at in range(place, len(ranked)):
            rank, rate = ranked[at]
            if row[rank] >= 0:
                heapq.heappush(heap, (-value * rate, parent, at))
                return
