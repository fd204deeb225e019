"""A drafter of one's own: three methods. It guesses that a list of numbers goes on as it did.

python examples/own_drafter.py [MODEL]
"""

import sys

import numpy as np

import paceline
from paceline.core.tree import Draft, TokenTree


class Again:
    """Guesses that the last `period` tokens come once more."""

    def __init__(self, period):
        self.period, self.right = period, 0

    def propose(self, views, budgets):
        """Return a draft for each text: a tree of tokens below its last one, with the odds of each."""
        drafts = []
        for view, budget in zip(views, budgets, strict=True):
            count = min(budget.nodes, budget.depth)
            guesses = np.resize(view.tokens[-self.period :], count)
            tree = TokenTree.chain([int(view.tokens[-1]), *guesses.tolist()])
            drafts.append(Draft(tree, np.full(count + 1, 0.5, np.float32), np.zeros(count + 1, np.int8)))
        return drafts

    def observe(self, view, draft, verified):
        """Learn from what the model said to the guesses."""
        self.right += len(verified.nodes)

    def release(self, sequence_id):
        """Forget a text that has ended; nothing is held of it."""


paceline.register_drafter("again", lambda setting, period: Again(int(period or 4)), how="the last tokens once more")

with paceline.load(*sys.argv[1:2], draft="again:3") as llm:
    plain = llm.generate("1, 2, 3, 1, 2, 3, 1,", max_tokens=30)
    print(plain.text, plain.metrics.by_source)
