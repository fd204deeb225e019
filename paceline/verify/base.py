"""What every way of verifying promises: keep the target's law, walking the tree from its root."""

from __future__ import annotations

from typing import Protocol

from paceline.types import Floats, TokenTree, Verdict, View


class Verifier(Protocol):
    """Pure: the verdict follows from the tree, the target's logits and the sequence's key."""

    name: str

    def verify(self, tree: TokenTree, logits: Floats, view: View) -> Verdict:
        """Decide which nodes to keep.

        Args:
            tree: N nodes, the last committed token at its root.
            logits: float32 [N, V], the target's after each node.
            view: the sequence as it was before this round.
        """
