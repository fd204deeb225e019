"""Which of a drafter's own guesses were right, whatever became of them between its proposal and the verification."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.types import TokenTree


def judged(tree: TokenTree, committed: Sequence[int]) -> list[tuple[int, bool]]:
    """Return (node, whether it was right) for every node whose parent was right and whose place was filled.

    Args:
        tree: what was proposed, before anything pruned it or merged others' guesses in.
        committed: the tokens that came, the first one after the root.
    """
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    right, found = {0: 0}, list[tuple[int, bool]]()  # node -> depth
    for node in range(1, len(tokens)):
        depth = right.get(parents[node], len(committed))
        if depth < len(committed):
            is_right = tokens[node] == committed[depth]
            found.append((node, is_right))
            if is_right:
                right[node] = depth + 1
    return found
