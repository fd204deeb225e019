"""Prompt lookup: guess that what followed the last few tokens before will follow them again.

A hash from each n-gram to the position after its latest occurrence (native/ngram.cpp) makes a round O(1) in the
history's length; the longest match wins, then the most recent. (Saxena 2023, prompt lookup decoding; LLMA, Yang et al.
2304.04487.)
A match of one token is drafted only while such matches prove right, which is counted without drafting them.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, Setting, empty_draft
from paceline.draft.tree_ops import best_prefix
from paceline.estimate.acceptance import Acceptance
from paceline.kernels.native import native

LONGEST, SHORTEST = 5, 2
PREFETCHED = 64  # tokens by which a copy may run over the end of the text into its own guesses
SINGLE = 0.5  # a one-token match is drafted while at least this share of them is right
SURE = 12  # match lengths from here on are counted as one
PRIOR = (0.0, 0.25, 0.45, 0.6, 0.7, 0.75)  # share kept before anything was seen, by match length; then 0.8


class NgramDrafter(Drafter):
    """Needs no model; strong wherever output repeats its context, silent elsewhere."""

    sources: tuple[str, ...] = ("ngram",)
    weighs = frozenset(sources)

    def __init__(self) -> None:
        self._indexes: dict[int, native.NgramIndex] = {}
        # By match length: a kept token makes its successor's match one longer.
        self._acceptance = Acceptance([*PRIOR, *[0.8] * (SURE + 1 - len(PRIOR))], decay=0.95)
        self.experience = {"ngram": self._acceptance}
        self._matched: dict[int, tuple[int, int]] = {}  # of each sequence's last round: match length, first guess

    @staticmethod
    def of(setting: Setting, argument: str) -> NgramDrafter:
        return NgramDrafter()

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Copy up to `budget.depth` tokens from after the best match."""
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by match length."""
        n, first = self._matched.pop(view.id, (0, 0))
        if not n:
            return
        # Too short a match to draft, or pruned: would it have been right?
        guesses = draft.tree.tokens[1:].tolist() or [first]
        for depth, (guess, token) in enumerate(zip(guesses, verified.tokens.tolist(), strict=False)):
            self._acceptance.observe(min(n + depth, SURE), kept=guess == token)
            if guess != token:
                break

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._indexes.pop(sequence_id, None)
        self._matched.pop(sequence_id, None)

    def _propose(self, view: View, budget: Budget) -> Draft:
        index = self._indexes.get(view.id)
        if index is None:
            index = self._indexes[view.id] = native.NgramIndex(LONGEST)
        index.follow(view.tokens)
        self._matched.pop(view.id, None)
        count = min(budget.nodes, budget.depth, PREFETCHED)
        n, position = index.find() if count > 0 else (0, 0)
        if n == 0:
            return empty_draft(view)
        copied = index.copy(position, count)
        self._matched[view.id] = n, copied[0]
        share = self._acceptance.rates()
        if n < SHORTEST and share[n] < SINGLE:
            return empty_draft(view)
        guess = share[np.minimum(np.arange(n - 1, n + count), SURE)].astype(np.float32)
        guess[0] = 1.0
        if budget.price is not None:
            count, _ = best_prefix(guess[1:].cumprod(dtype=np.float64).tolist(), budget.price)
        tree = TokenTree.chain([int(view.tokens[-1]), *copied[:count]])
        return Draft(tree, guess[: count + 1], np.zeros(count + 1, np.int8))
