"""Which of a drafter's own guesses pay, and which were right, pruned ones included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.types import Floats, Probabilities, TokenTree


def paying(values: Floats | Probabilities, price: Probabilities | None) -> int:
    """Return how many nodes of a tree that was grown best first are worth their price, the root included.

    Equals what `grow.prune` keeps of that tree, without sorting.

    Args:
        values: float [n], the root's 1 first, never rising.
        price: float64 [at least n], that of verifying 0, 1, … nodes below the root; `None` keeps all.
    """
    if price is None:
        return len(values)
    best, most, total = 1, -np.inf, 0.0
    for count, (value, cost) in enumerate(zip(values.tolist(), price.tolist(), strict=False), 1):  # faster than arrays
        total += value
        if total - cost > most:
            best, most = count, total - cost
    return best


def judged(tree: TokenTree, committed: Sequence[int]) -> list[tuple[int, bool]]:
    """Return (node, whether it was right) for every node that has a right parent and a committed token at its depth.

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
