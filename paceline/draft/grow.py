"""Value the nodes of a draft and keep those that pay.

The value of a node is the product of the guesses on its path: what it adds to the expected tokens of a round. A parent
is worth at least what its child is, so the best tree of n nodes is the n most valuable ones (Sequoia 2402.12374;
EAGLE-2 2406.16858), and the best n weighs their sum against the price of verifying so many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.types import Budget, Draft, Probabilities, TokenTree


def values(draft: Draft) -> Probabilities:
    """Return float64 [N]: how likely each node is to be accepted, its ancestors included; 1 for the root."""
    found = np.ones(len(draft.tree))
    for node in range(1, len(found)):
        found[node] = found[draft.tree.parents[node]] * float(draft.guess[node])
    return found


def worth(sorted_values: Probabilities, price: Probabilities | None) -> tuple[int, float]:
    """Return how many of the most valuable nodes to keep, and what that gains in expected tokens.

    Args:
        sorted_values: float64 [n], best first.
        price: float64 [at least n + 1], that of verifying so many nodes; `None` keeps all.
    """
    gains = np.concatenate([[0.0], np.cumsum(sorted_values)])
    if price is None:
        return len(sorted_values), float(gains[-1])
    gains = gains[: len(price)] - price[: len(gains)]
    best = int(gains.argmax())
    return best, float(gains[best])


def prune(draft: Draft, budget: Budget) -> Draft:
    """Keep the nodes within a budget that pay.

    Only for guesses that are functions of the text (or coupled): to drop a drawn one by its value changes the law.
    """
    depths = draft.tree.depths()
    value = values(draft)
    order = np.argsort(-value[1:], kind="stable") + 1  # stable: a parent comes before its equally valued child
    order = order[depths[order] <= budget.depth][: budget.nodes]
    count, _ = worth(value[order], budget.price)
    if count == draft.drafted:
        return draft
    return subtree(draft, np.sort(order[:count]))


def subtree(draft: Draft, nodes: np.ndarray) -> Draft:
    """Return the draft of the root and `nodes`, ascending, every one with its parent."""
    kept = np.concatenate([[0], nodes]).astype(np.int64)
    new = np.full(len(draft.tree), -1, np.int32)
    new[kept] = np.arange(len(kept), dtype=np.int32)
    parents = draft.tree.parents[kept]
    parents = np.where(parents >= 0, new[parents], -1).astype(np.int32)
    return Draft(TokenTree(draft.tree.tokens[kept], parents), draft.guess[kept], draft.source[kept])


def merge(drafts: Sequence[Draft], first_source: Sequence[int]) -> Draft:
    """Lay trees with one root over each other: equal paths become one, credited to who believed in it most.

    Args:
        first_source: what to add to each draft's sources, to tell them apart in the union.
    """
    tokens, parents, guess, source = [int(drafts[0].tree.tokens[0])], [-1], [1.0], [0]
    place: dict[tuple[int, int], int] = {}
    for draft, offset in zip(drafts, first_source, strict=True):
        at = [0] * len(draft.tree)
        for node in range(1, len(draft.tree)):
            parent, token = at[draft.tree.parents[node]], int(draft.tree.tokens[node])
            believed, who = float(draft.guess[node]), int(draft.source[node]) + offset
            known = place.get((parent, token))
            if known is None:
                known = place[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                guess.append(believed)
                source.append(who)
            elif believed > guess[known]:
                guess[known], source[known] = believed, who
            at[node] = known
    tree = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))
    return Draft(tree, np.array(guess, np.float32), np.array(source, np.int8))
