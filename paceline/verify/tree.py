"""Accept guesses in proportion to how much likelier the target finds them than their drafter did, walking down a tree.

At each node the target's distribution p is offered to its children. One drawn from q is accepted with probability
p/q, at most 1; when it is refused, the rest norm((p - q)+) goes to the next, whose q leaves the refused one out.
What is left in the end is the distribution of the round's own token; if that is a child that was not left to chance,
the walk goes on there. This is exact for any mixture of drawn and sure children: a sure child's subtree does not
depend on how the walk came to it.

Chains: Leviathan et al. 2211.17192, Chen et al. 2302.01318. Siblings without replacement: Sequoia 2402.12374, RSD
2402.14160. The likeliest and one drawn from the rest: Hu et al. 2502.18779.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import View
from paceline.core.tree import Draft, Draws, Verdict
from paceline.errors import NumericalError
from paceline.sample.coupled import distribution_fast
from paceline.sample.rng import KeyedRng, Rng
from paceline.verify.base import before_failure
from paceline.verify.coupled import CoupledVerifier

Chance = Callable[[View], Rng]


class RejectionVerifier:
    """For chains drawn from the drafter's distribution. Accepts the most that deciding token by token can.

    Args:
        chance: makes the rng of a round.
    """

    lossless, reproducible = True, False
    draws: Draws = "chain"
    lenience = 1.0

    def __init__(self, chance: Chance = KeyedRng) -> None:
        self._chance = chance

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """Walk down while a child is accepted or drawn; see `Verifier.verify`."""
        if view.params.is_greedy:
            return CoupledVerifier().verify(draft, logits, view)
        rng, tokens, node, kept = self._chance(view), draft.tree.tokens, 0, list[int]()
        while True:
            try:
                p = distribution_fast(logits[node], view, tokens[kept]).probabilities(logits.shape[1])
            except NumericalError:
                if not kept:
                    raise
                return before_failure(tokens, kept)
            child, token = self._next(draft, node, p, rng, len(kept))
            if child is None:
                return Verdict(tuple(kept), token)
            kept.append(child)
            node = child

    def _next(self, draft: Draft, node: int, p: Probabilities, rng: Rng, depth: int) -> tuple[int | None, int]:
        """Return the child to go on with, or `None`, and the token that comes."""
        for child, q in drawn_children(draft, node):
            token = int(draft.tree.tokens[child])
            if rng.accept(min(1.0, float(p[token] / (self.lenience * q[token])))):
                return child, token
            p = residual(p, q if self.lenience == 1 else self.lenience * q)
        sure = sure_children(draft, node)
        token = rng.draw(favour(p, list(sure), self.lenience), depth)
        return sure.get(token), token


class TreeVerifier(RejectionVerifier):
    """For trees whose siblings were drawn without replacement."""

    draws: Draws = "tree"


class GreedyTreeVerifier(RejectionVerifier):
    """For trees of the likeliest siblings and one drawn from the rest: near the most that any rule can accept."""

    draws: Draws = "greedy_tree"


def drawn_children(draft: Draft, node: int) -> Iterator[tuple[int, Probabilities]]:
    """Yield each drawn child with the distribution it was drawn from, float64 [V], those drawn before it left out."""
    if draft.drawn is None:
        return
    q: Probabilities | None = None
    refused = 0
    for child in draft.tree.children(node):
        if not draft.drawn[child]:
            continue
        token = int(draft.tree.tokens[child])
        if q is None:
            assert node in draft.distributions, (
                f"node {child} was drawn, but the draft has no distribution for its parent {node}"
            )
            q = draft.distributions[node]
            assert abs(q.sum() - 1) < 1e-6, f"the draft distribution of node {node} must sum to 1, got {q.sum()}"
        else:
            q = q.copy()
            q[refused] = 0
            q /= max(q.sum(), np.finfo(float).tiny)
        assert q[token] > 0, f"token {token} of node {child} was drawn, but its draft distribution gives it {q[token]}"
        yield child, q
        refused = token


def sure_children(draft: Draft, node: int) -> dict[int, int]:
    """Return {token: child} of the children that are functions of the text, the first of each token."""
    drawn = draft.drawn
    children = [child for child in draft.tree.children(node) if drawn is None or not drawn[child]]
    return {int(draft.tree.tokens[child]): child for child in reversed(children)}


def residual(p: Probabilities, q: Probabilities) -> Probabilities:
    """Return norm((p - q)+), float64 [V]; p itself where nothing is left, since then p is q to the last bit."""
    rest = np.subtract(p, q)
    np.maximum(rest, 0, out=rest)
    mass = rest.sum()
    if mass <= 0:
        return p
    rest /= mass
    return rest


def favour(p: Probabilities, tokens: list[int], lenience: float) -> Probabilities:
    """Return the distribution of what comes when sure guesses are accepted, one after the other, with up to p /
    lenience.
    """
    if lenience == 1:
        return p
    out, left = np.zeros_like(p), 1.0
    for token in tokens:
        accepted = min(1.0, float(p[token]) / lenience)
        out[token] += left * accepted
        left *= 1 - accepted
        if left <= 0:
            return out
        sure = np.zeros_like(p)
        sure[token] = lenience
        p = residual(p, sure)
    return np.asarray(out + left * p)
