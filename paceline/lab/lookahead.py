"""Lookahead decoding: the target fills several places at once, and the n-grams that result are kept.

Below the last token hang, beside n-grams from the pool that begin with it, `columns` places that the target fills in
side by side (a Jacobi iteration, a level per round): level 0 is a chain of guesses, and column i of level l follows
column i of level l - 1. The target's choice after the deepest level completes an n-gram for the pool, and the
levels move up by one. Where rows have a price, the window is laid only if they cost next to nothing; a mix
cuts it. (Fu et al. 2402.02057; the n-grams of the text itself enter too.)

The window costs a row of the target for each of its nodes and is almost never accepted itself. That is cheap on
processors with arithmetic to spare and dear on a CPU: expect less speed than with `--draft ngram`. It is a baseline.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, Setting, empty_draft
from paceline.draft.tree_ops import prune, tested_nodes
from paceline.estimate.acceptance import Acceptance

SIZE = 3  # tokens of an n-gram
LEVELS = SIZE - 1  # of the window
WORTH = 0.04  # tokens a round that the n-grams of one column bring, as measured (docs/guides/speculation.md)
GRAMS = 4  # kept for each first token, the latest
FIRST_TOKENS = 1 << 14  # of the pool; the longest unused is forgotten
PRIOR = [*[0.35, 0.2, 0.15, 0.1], *[0.5] * GRAMS]  # by how late the n-gram was seen; first guesses, then second ones

Gram = tuple[int, ...]


@dataclass(slots=True)
class _Window:
    """One sequence's places, `levels[l][i]`, and the part of them proposed last."""

    levels: list[list[int]] = field(default_factory=list)
    tree: TokenTree | None = None
    kinds: list[int] = field(default_factory=list)
    deepest: list[int] = field(default_factory=list)  # nodes of the last level, in the proposal
    read: int = 0  # tokens whose n-grams are in the pool


class LookaheadDrafter(Drafter):
    """One pool for all sequences, of at most FIRST_TOKENS x GRAMS n-grams.

    Args:
        is_chain: guess one n-gram and no window, for verifiers that take no trees.
    """

    sources: tuple[str, ...] = ("lookahead",)
    weighs = frozenset(sources)

    def __init__(self, *, is_chain: bool = False) -> None:
        self._is_chain = is_chain
        self._pool: OrderedDict[int, list[Gram]] = OrderedDict()  # latest first
        self._windows: dict[int, _Window] = {}
        self._acceptance = Acceptance(PRIOR, decay=0.98)
        self.experience = {"lookahead": self._acceptance}

    @staticmethod
    def of(setting: Setting, argument: str) -> LookaheadDrafter:
        return LookaheadDrafter(is_chain=setting.draws == "chain")

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Lay out n-grams that begin with each sequence's last token, and its window."""
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Read the target's choices for the window, and count which n-grams were right."""
        window = self._windows.get(view.id)
        if window is None or window.tree is None:
            return
        for node, is_right in tested_nodes(window.tree, verified.tokens.tolist()):
            if window.kinds[node] >= 0:
                self._acceptance.observe(window.kinds[node], kept=is_right)
        at = _places(window.tree, verified.tree)
        fresh = []
        for column, place in enumerate(window.deepest):
            row = at.get(place)
            if row is None:
                break  # pruned before verification
            fresh.append(int(verified.logits[row].argmax()))
            if len(window.levels) == LEVELS:
                self._learn((*(level[column] for level in window.levels), fresh[-1]))
        if fresh:
            window.levels = [*window.levels, fresh][-LEVELS:]
            width = min(len(level) for level in window.levels)
            window.levels = [level[:width] for level in window.levels]
        window.tree = None

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; its n-grams stay in the pool."""
        self._windows.pop(sequence_id, None)

    def forget(self) -> None:
        """See `Drafter.forget`."""
        self._pool.clear()

    def grams(self, token: int) -> list[Gram]:
        """Return the n-grams kept that begin with a token, the latest first."""
        return list(self._pool.get(token, []))

    def _learn(self, gram: Gram) -> None:
        grams = self._pool.setdefault(gram[0], [])
        if gram in grams:
            grams.remove(gram)
        grams.insert(0, gram)
        del grams[GRAMS:]
        self._pool.move_to_end(gram[0])
        if len(self._pool) > FIRST_TOKENS:
            self._pool.popitem(last=False)

    def _read(self, window: _Window, view: View) -> None:
        """Add the n-grams of the text since the last round."""
        start = max(min(window.read, len(view.tokens)) - SIZE + 1, 0)
        tokens = view.tokens[start:].tolist()
        for end in range(SIZE, len(tokens) + 1):
            self._learn(tuple(tokens[end - SIZE : end]))
        window.read = len(view.tokens)

    def _propose(self, view: View, budget: Budget) -> Draft:
        window = self._windows.setdefault(view.id, _Window())
        window.tree = None
        self._read(window, view)
        if min(budget.nodes, budget.depth) <= 0:
            return empty_draft(view)
        tokens, parents, kinds = [int(view.tokens[-1])], [-1], [-1]
        places: dict[tuple[int, int], int] = {}

        def node(parent: int, token: int, kind: int) -> int:
            if (parent, token) not in places:
                places[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                kinds.append(kind)
            return places[parent, token]

        columns = 0 if self._is_chain else _columns(budget)
        for age, gram in enumerate(self.grams(tokens[0])[: 1 if self._is_chain else GRAMS]):
            tip = 0
            for depth, token in enumerate(gram[1 : budget.depth + 1]):
                if len(tokens) <= budget.nodes - columns * LEVELS:
                    tip = node(tip, token, age + GRAMS * (depth > 0))
        levels = [level[:columns] for level in window.levels]
        if not levels or len(levels[0]) < columns:
            levels = [view.tokens[-columns:].tolist() if columns else []]  # any tokens will do at first
        window.levels, window.deepest = levels, []
        above = 0
        for column in range(len(levels[0])):
            tip = above
            for level, held in enumerate(levels):
                tip = node(tip, held[column], -1)
                above = tip if level == 0 else above
            window.deepest.append(tip)
        tree = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))
        window.tree, window.kinds = tree, kinds
        rates = self._acceptance.rates()
        guess = np.array([rates[kind] if kind >= 0 else 1.0 for kind in kinds], np.float32)
        # The window pays by the n-grams it finds, so it stays, at odds of 0.
        kept = prune(Draft(tree, guess, np.zeros(len(tokens), np.int8)), budget)
        guess = np.where(kept.acceptance_prob < 1, kept.acceptance_prob, np.float32(0))
        guess[0] = 1.0
        return replace(kept, acceptance_prob=guess)


def _columns(budget: Budget) -> int:
    """Return the width of a window that is worth its rows: as wide as there is room for, or 0."""
    most = max(min(budget.nodes // (2 * LEVELS), budget.depth - LEVELS + 1), 0)
    if budget.price is None or not most:
        return most
    price = float(budget.price[budget.nodes] - budget.price[budget.nodes - most * LEVELS])
    return most if price <= WORTH * most else 0


def _places(own: TokenTree, whole: TokenTree) -> dict[int, int]:
    """Return where each node of a proposal is in the tree that was verified, as far as it is there."""
    children: dict[tuple[int, int], int] = {}
    for node, (parent, token) in enumerate(zip(whole.parents.tolist(), whole.tokens.tolist(), strict=True)):
        children.setdefault((parent, token), node)
    at = {0: 0}
    for node, (parent, token) in enumerate(zip(own.parents.tolist(), own.tokens.tolist(), strict=True)):
        if node and parent in at and (at[parent], token) in children:
            at[node] = children[at[parent], token]
    return at
