"""Acceptance by depth, as every drafter of chains counts it, and the length of chain that pays.

A chain's length is settled before its tokens are drawn: a length that depended on them would change their
distributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import empty_draft
from paceline.draft.tree_ops import best_prefix
from paceline.estimate.acceptance import Acceptance

DEEPEST = 15  # guesses from here on are counted as one


class DepthRecord:
    """Acceptance by depth, given that the guess before was accepted."""

    def __init__(self) -> None:
        self._acceptance = Acceptance(np.full(DEEPEST + 1, 0.7))
        self.experience = {"by depth": self._acceptance}

    def rates(self, count: int) -> Floats:
        """Return float32 [count]: how likely each guess of a chain is right, given the one before."""
        return self._acceptance.rates()[np.minimum(np.arange(count), DEEPEST)].astype(np.float32)

    def length(self, budget: Budget, source: str) -> int:
        """Return how many tokens a chain should have, by its value less the prices of drafting and verifying it."""
        most = min(budget.nodes, budget.depth)
        if most <= 0:
            return 0
        price: Probabilities = np.zeros(most + 1) if budget.price is None else budget.price[: most + 1].copy()
        price += budget.step.get(source, 0.0) * np.arange(most + 1)
        return best_prefix(np.cumprod(self.rates(most).astype(np.float64)).tolist(), price)[0]

    def observe(self, draft: Draft, verified: Verified) -> None:
        """Count what was right of a chain."""
        for depth, (guess, token) in enumerate(zip(draft.tree.tokens[1:], verified.tokens, strict=False)):
            self._acceptance.observe(min(depth, DEEPEST), kept=bool(guess == token))
            if guess != token:
                break

    def drafts(
        self,
        views: Sequence[View],
        guesses: Mapping[int, list[int]],
        distributions: Mapping[int, list[Probabilities]] | None = None,
    ) -> list[Draft]:
        """Return the chain of each sequence by its place among `views`; see `chain`. Without guesses it is empty."""
        return [
            self.chain(int(view.tokens[-1]), guesses[i], None if distributions is None else distributions[i])
            if guesses.get(i)
            else empty_draft(view)
            for i, view in enumerate(views)
        ]

    def chain(self, root: int, guesses: list[int], distributions: list[Probabilities] | None = None) -> Draft:
        """Return the draft of a chain.

        Args:
            distributions: float64 [V] each guess was drawn from with noise of its own; `None` if it is a function of
                the text or shares the target's noise.
        """
        count = len(guesses)
        guess = np.concatenate([[1.0], self.rates(count)]).astype(np.float32)
        drawn = None
        if distributions is not None:
            drawn = np.ones(count + 1, np.bool_)
            drawn[0] = False
        return Draft(
            TokenTree.chain([root, *guesses]),
            guess,
            np.zeros(count + 1, np.int8),
            dict(enumerate(distributions or [])),
            drawn,
        )
