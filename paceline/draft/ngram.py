"""Prompt lookup: guess that what followed the last few tokens before will follow them again.

A hash from each n-gram to the position after its latest occurrence makes a round O(1) in the history's length; the
longest match wins, then the most recent. (Saxena 2023, prompt lookup decoding; LLMA, Yang et al. 2304.04487.)
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np

from paceline.draft.base import empty_draft, register
from paceline.types import Budget, Draft, TokenTree, Verdict, View

LONGEST, SHORTEST = 5, 2
PREFETCHED = 64  # a copy may run over the end of the text into what it has just guessed, this far


@dataclass(slots=True)
class _Index:
    """Where each n-gram of one sequence was last followed by something."""

    tokens: list[int] = field(default_factory=list)
    after: list[dict[tuple[int, ...], int]] = field(
        default_factory=lambda: [{} for _ in range(LONGEST - SHORTEST + 1)]
    )

    def extend(self, new: Seq[int]) -> None:
        """Add tokens. An n-gram is entered when its successor is known, so the text's own end never matches itself."""
        for token in new:
            end = len(self.tokens)
            for n, table in enumerate(self.after, SHORTEST):
                if end >= n:
                    table[tuple(self.tokens[end - n : end])] = end
            self.tokens.append(token)

    def find(self) -> tuple[int, int]:
        """Return (match length, position of the token that followed); length 0 when nothing matches."""
        end = len(self.tokens)
        for n in range(min(LONGEST, end), SHORTEST - 1, -1):
            position = self.after[n - SHORTEST].get(tuple(self.tokens[end - n :]))
            if position is not None:
                return n, position
        return 0, 0


class NgramDrafter:
    """Needs no model; strong wherever output repeats its context, silent elsewhere."""

    sources = ("ngram",)

    def __init__(self) -> None:
        self._indexes: dict[int, _Index] = {}
        # By match length: drafted tokens kept and tested, discounted, with a uniform prior.
        self._kept = dict.fromkeys(range(SHORTEST, LONGEST + 1), 1.0)
        self._tested = dict.fromkeys(range(SHORTEST, LONGEST + 1), 2.0)
        self._matched: dict[int, int] = {}

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Copy up to `budget.depth` tokens from after the best match."""
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verdict: Verdict) -> None:
        """Count what was kept, by match length."""
        n = self._matched.pop(view.id, 0)
        if n:
            kept, tested = len(verdict.nodes), min(len(verdict.nodes) + 1, draft.drafted)
            self._kept[n] = 0.95 * self._kept[n] + kept
            self._tested[n] = 0.95 * self._tested[n] + tested

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._indexes.pop(sequence_id, None)
        self._matched.pop(sequence_id, None)

    def _propose(self, view: View, budget: Budget) -> Draft:
        index = self._indexes.setdefault(view.id, _Index())
        if len(view.tokens) < len(index.tokens):
            index = self._indexes[view.id] = _Index()
        index.extend(view.tokens[len(index.tokens) :].tolist())
        count = min(budget.nodes, budget.depth, PREFETCHED)
        n, position = index.find() if count > 0 else (0, 0)
        if n == 0:
            return empty_draft(view)
        self._matched[view.id] = n
        copied = index.tokens[position : position + count]
        period = len(copied)
        while len(copied) < count:  # the match overlaps the end: the text repeats with this period
            copied.append(copied[len(copied) - period])
        guess = np.full(count + 1, self._kept[n] / self._tested[n], np.float32)
        return Draft(TokenTree.chain([index.tokens[-1], *copied]), guess, np.zeros(count + 1, np.int8))


register("ngram", NgramDrafter)
register("auto", NgramDrafter)
