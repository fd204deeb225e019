"""Keep the branch the target finds likeliest. Not lossless: the reply has neither model's distribution.

Known as "candidate scoring": n continuations drawn from a draft model, the best by the target's likelihood taken whole.
With two of them at random distributions of eight tokens the distribution moves by .18 in total variation.
"""

from __future__ import annotations

import numpy as np

from paceline.core.aliases import Floats
from paceline.core.request import View
from paceline.core.tree import Draft, Draws, Verdict
from paceline.sample.coupled import draw
from paceline.sample.distribution import check_logits


class BestOfVerifier:
    """Takes a whole branch; the target draws only what follows it."""

    lossless, reproducible = False, False
    draws: Draws = "chain"

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """Score every branch by its mean log-likelihood per token; the first of equals wins. See `Verifier.verify`."""
        tree = draft.tree
        total = np.zeros(len(tree))
        for node in range(1, len(tree)):
            total[node] = total[tree.parents[node]] + _log_chance(logits[tree.parents[node]], int(tree.tokens[node]))
        leaves = [node for node in range(1, len(tree)) if not tree.children(node)]
        depths = tree.depths()
        best = max(leaves, key=lambda node: total[node] / depths[node], default=0)
        path = tree.path(best)
        return Verdict(tuple(path), draw(logits[best], view, tree.tokens[path]))


def _log_chance(logits: Floats, token: int) -> float:
    check_logits(logits)
    scores = logits.astype(np.float64)
    top = scores.max()
    return float(scores[token] - top - np.log(np.exp(scores - top).sum()))
