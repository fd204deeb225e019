"""Coupled verification: the target draws its own token at every node, and a draft is right if it drew the same.

Exact for any drafter and tree, greedy or sampled, because what is emitted is always the target's own draw, whose
noise depends on nothing but (seed, position, token). Target-sample matching with shared Gumbel noise; Daliri et al.
2408.07978, and for lists of candidates 2506.05632.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.aliases import Floats
from paceline.core.request import View
from paceline.core.tree import Draft, Draws, TokenTree, Verdict
from paceline.errors import NumericalError
from paceline.sample.coupled import draw
from paceline.verify.base import before_failure


class CoupledVerifier:
    """Draws lazily, on the accepted path only."""

    lossless, reproducible = True, True
    draws: Draws = "shared"

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """Walk down while the drawn token is a child; see `Verifier.verify`."""
        tokens, peaks = draft.tree.tokens, getattr(logits, "peaks", None)

        def target(node: int, path: list[int]) -> int:
            return draw(logits[node], view, tokens[path], peaks=None if peaks is None else peaks[node])

        return walk(draft.tree, target)


def walk(tree: TokenTree, target: Callable[[int, list[int]], int]) -> Verdict:
    """Follow the target's own tokens down the tree.

    Args:
        target: maps (node, nodes from below the root down to it) to the token the target draws after that node.

    Returns:
        The nodes followed and the target's token where no child had it.
    """
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    node, kept = 0, list[int]()
    while True:
        try:
            token = target(node, kept)
        except NumericalError:
            if not kept:
                raise
            return before_failure(tree.tokens, kept)
        below = range(node + 1, len(tokens))
        child = next((c for c in below if parents[c] == node and tokens[c] == token), None)
        if child is None:
            return Verdict(tuple(kept), token)
        kept.append(child)
        node = child
