"""Ways of accepting more than the target's distribution allows: on request only, and labelled in every result."""

from __future__ import annotations

import math

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import View
from paceline.core.tree import Draft, Draws, Verdict
from paceline.errors import UsageError
from paceline.sample.coupled import distribution_fast, draw
from paceline.sample.rng import KeyedRng
from paceline.verify.coupled import CoupledVerifier
from paceline.verify.tree import Chance, RejectionVerifier

EPSILON, DELTA = 0.09, 0.3


class LenientVerifier(RejectionVerifier):
    """Rejection that counts the drafter's distribution for less: no token comes oftener than p / lenience (Leviathan
    et al. 2211.17192).

    Args:
        lenience: above 0 and at most 1, which is exact.
        chance: makes the rng of a round.
    """

    def __init__(self, lenience: float, chance: Chance = KeyedRng) -> None:
        assert 0 < lenience <= 1, lenience
        super().__init__(chance)
        self.lenience, self.lossless = lenience, lenience == 1

    @staticmethod
    def of(argument: str) -> LenientVerifier:
        """Read the lenience.

        Raises:
            UsageError: it is not above 0 and at most 1.
        """
        try:
            lenience = float(argument)
        except ValueError:
            lenience = 0.0
        if not 0 < lenience <= 1:
            raise UsageError(
                f"verify lenient:L needs a lenience above 0 and at most 1, got `lenient:{argument}`",
                hint="lenient:0.8 lets a token come at most 1/0.8 times as often as the model alone would; 1 is exact",
            )
        return LenientVerifier(lenience)


class TypicalVerifier:
    """Keep the longest path of guesses the target finds not unusual, p > min(epsilon, delta exp(-entropy)), then draw.

    The token that ends a round, so the first of a reply too, is always the target's own draw. (Medusa 2401.10774.)
    """

    lossless, reproducible = False, False
    draws: Draws = "shared"

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """Go to the deepest typical node, then on if the target's own draw is a child there; see `Verifier.verify`."""
        if view.params.is_greedy:
            return CoupledVerifier().verify(draft, logits, view)
        kept = list[int]()
        while True:
            kept = deepest(draft, logits, view, kept)
            node = kept[-1] if kept else 0
            token = draw(logits[node], view, draft.tree.tokens[kept])
            child = next((c for c in draft.tree.children(node) if draft.tree.tokens[c] == token), None)
            if child is None:
                return Verdict(tuple(kept), token)
            kept = [*kept, child]


def deepest(draft: Draft, logits: Floats, view: View, path: list[int]) -> list[int]:
    """Return the longest path of typical nodes that begins with `path`, the likelier child first among equals."""
    tokens, node = draft.tree.tokens, path[-1] if path else 0
    children = draft.tree.children(node)
    if not children:
        return path
    p = distribution_fast(logits[node], view, tokens[path]).probabilities(logits.shape[1])
    typical = sorted((c for c in children if p[tokens[c]] > threshold(p)), key=lambda c: -p[tokens[c]])
    return max((path, *(deepest(draft, logits, view, [*path, child]) for child in typical)), key=len)


def threshold(p: Probabilities) -> float:
    """Return how likely a token must at least be to count as typical: the less, the more uncertain the distribution
    [V] is.
    """
    logs = np.maximum(p, np.finfo(float).tiny)
    np.log(logs, out=logs)
    entropy = -float(p @ logs)
    return min(EPSILON, DELTA * math.exp(-entropy))
