"""Coupled verification: the target draws its own token at every node, and a draft is right if it drew the same.

Exact for any drafter and tree, greedy or sampled, because what is emitted is always the target's own draw, whose
noise depends on nothing but (seed, position, token). Target-sample matching with shared Gumbel noise; Daliri et al.
2408.07978, and for lists of candidates 2506.05632.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.sample.draw import draw
from paceline.types import Floats, TokenTree, Verdict, View


class CoupledVerifier:
    """Draws lazily, on the accepted path only."""

    name = "coupled"

    def verify(self, tree: TokenTree, logits: Floats, view: View) -> Verdict:
        """Walk down while the drawn token is a child; see `Verifier.verify`."""
        first = len(view.tokens)  # absolute position of the token drawn at the root
        return walk(tree, lambda node, depth: draw(logits[node], view.params, first + depth))


def walk(tree: TokenTree, target: Callable[[int, int], int]) -> Verdict:
    """Follow the target's own tokens down the tree.

    Args:
        target: maps (node, depth) to the token the target draws after that node.

    Returns:
        The nodes followed and the target's token where no child had it.
    """
    node, kept = 0, list[int]()
    while True:
        token = target(node, len(kept))
        child = next((c for c in tree.children(node) if tree.tokens[c] == token), None)
        if child is None:
            return Verdict(tuple(kept), token)
        kept.append(child)
        node = child
