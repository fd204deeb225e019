"""Accept a whole block of guesses at once, so that a lucky later guess makes up for an unlucky earlier one.

A node's share is how much of its drawn path the target still owes: it is multiplied by p/q on the way down, at most to
1. On the way back from a refused subtree, what the child used up is taken from the node's distribution, as
`rejection` does, and from its share. A node is kept with what is then left of its share. On a chain this is block
verification (Sun et al. 2403.10444), which accepts at least what `rejection` does; on a tree, traversal verification
(2505.12398). Children that are functions of the text count as drawn from a distribution that holds no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import View
from paceline.core.tree import Draft, Draws, Verdict
from paceline.errors import NumericalError
from paceline.sample.coupled import distribution_fast
from paceline.sample.rng import KeyedRng, Rng
from paceline.verify.base import before_failure
from paceline.verify.coupled import CoupledVerifier
from paceline.verify.tree import Chance, drawn_children, sure_children


class BlockVerifier:
    """For chains drawn from the drafter's distribution; any tree is exact.

    Args:
        chance: makes the rng of a round.
    """

    lossless, reproducible = True, False
    draws: Draws = "chain"

    def __init__(self, chance: Chance = KeyedRng) -> None:
        self._chance = chance

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """Decide from the leaves up; see `Verifier.verify`."""
        if view.params.is_greedy:
            return CoupledVerifier().verify(draft, logits, view)
        verdict = _Visit(draft, logits, view, self._chance(view)).decide(0, (), 1.0)
        assert verdict is not None, "the root keeps its whole share"
        return verdict


@dataclass(frozen=True, slots=True)
class _Visit:
    draft: Draft
    logits: Floats
    view: View
    rng: Rng

    def decide(self, node: int, path: tuple[int, ...], share: float) -> Verdict | None:
        """Return what is kept of the subtree below `node`, or `None` if not even that."""
        tokens = self.draft.tree.tokens
        try:
            p = distribution_fast(self.logits[node], self.view, tokens[list(path)]).probabilities(self.logits.shape[1])
        except NumericalError:
            if not path:
                raise
            return before_failure(tokens, path) if self.rng.accept(share) else None
        for child, q in self._children(node):
            token = tokens[child]
            reached = min(1.0, share * float(p[token] / q[token]))
            if reached > 0 and (verdict := self.decide(child, (*path, child), reached)) is not None:
                return verdict
            rest = share * p
            rest -= q
            np.maximum(rest, 0, out=rest)
            mass = float(rest.sum())
            if mass > 0:
                rest /= mass
                share, p = mass / (mass + (1 - share)), rest
            elif share < 1:
                return None
        return Verdict(path, self.rng.draw(p, len(path))) if self.rng.accept(share) else None

    def _children(self, node: int) -> Iterator[tuple[int, Probabilities]]:
        yield from drawn_children(self.draft, node)
        for token, child in sure_children(self.draft, node).items():
            sure = np.zeros(self.logits.shape[1])
            sure[token] = 1
            yield child, sure
