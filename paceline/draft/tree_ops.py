"""Operations on draft trees: value their nodes, keep those that pay, merge trees, tell which guesses were right.

The value of a node is the product of the guesses on its path: what it adds to the expected tokens of a round. A parent
is worth at least what its child is, so the best tree of n nodes is the n most valuable ones (Sequoia 2402.12374;
EAGLE-2 2406.16858), and the best n weighs their sum against the price of verifying so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats, Probabilities
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree


def values(draft: Draft) -> Probabilities:
    """Return float64 [N]: how likely each node is to be accepted, its ancestors included; 1 for the root."""
    found = [1.0]
    for parent, guess in zip(draft.tree.parents[1:].tolist(), draft.acceptance_prob[1:].tolist(), strict=True):
        found.append(found[parent] * guess)
    return np.array(found)


def discount_siblings(draft: Draft) -> Floats:
    """Return float32 [N]: the guesses, discounted for likelier siblings from other sources.

    Of siblings at most one is right. Each source states its odds as if alone, so a guess beside a likelier one of
    another source is right only where that one is wrong.
    """
    found = draft.acceptance_prob.copy()
    for parent in np.flatnonzero(np.bincount(draft.tree.parents[1:], minlength=1) > 1).tolist():
        children, best = draft.tree.children(parent), dict[int, float]()
        for child in sorted(children, key=lambda node: -float(draft.acceptance_prob[node])):
            guess, source = float(draft.acceptance_prob[child]), int(draft.source[child])
            for other, believed in best.items():
                found[child] *= 1.0 if other == source else 1.0 - believed
            best.setdefault(source, guess)
    return found


def best_prefix(values: Sequence[float] | Probabilities, price: Probabilities | None) -> tuple[int, float]:
    """Return how many of the most valuable nodes to keep, and the gain in expected tokens.

    Args:
        values: n of them, best first, the root left out.
        price: float64 [at least n + 1], that of verifying so many nodes; `None` keeps all.
    """
    sums = [0.0, *accumulate(map(float, values))]
    if price is None:
        return len(values), sums[-1]
    gains = [gain - cost for gain, cost in zip(sums, price.tolist(), strict=False)]
    best = gains.index(max(gains))
    return best, gains[best]


def prune(draft: Draft, budget: Budget) -> Draft:
    """Keep the nodes within a budget that pay.

    Drawn nodes always stay: to drop one by its value changes the distribution. They count as already paid for.
    """
    if draft.drawn is not None:
        return _prune_around(draft, budget, draft.drawn)
    value, depths = values(draft).tolist(), draft.tree.depths()
    within = [node for node in range(1, len(value)) if depths[node] <= budget.depth]
    best = sorted(within, key=lambda node: -value[node])[: budget.nodes]  # a parent before its equally valued child
    count, _ = best_prefix([value[node] for node in best], budget.price)
    return draft if count == draft.drafted else subtree(draft, sorted(best[:count]))


def _prune_around(draft: Draft, budget: Budget, drawn: npt.NDArray[np.bool_]) -> Draft:
    """Prune the nodes that are functions of the text and have no drawn descendant."""
    stays = drawn.copy()
    for node in range(len(stays) - 1, 0, -1):
        stays[draft.tree.parents[node]] |= stays[node]
    stays[0] = False
    value, depths, count = values(draft), np.array(draft.tree.depths()), int(stays.sum())
    order = np.argsort(-value[1:], kind="stable") + 1
    order = order[~stays[order] & (depths[order] <= budget.depth)][: max(budget.nodes - count, 0)]
    price = budget.price
    if price is not None:
        price = price[min(count, len(price) - 1) :]
        price = price - price[0]
    kept, _ = best_prefix(value[order], price)
    return subtree(draft, sorted([*np.flatnonzero(stays).tolist(), *order[:kept].tolist()]))


def subtree(draft: Draft, nodes: Sequence[int]) -> Draft:
    """Return the draft of the root and `nodes`, ascending, every one with its parent."""
    kept = [0, *nodes]
    place = {node: i for i, node in enumerate(kept)}
    parents = draft.tree.parents.tolist()
    tree = TokenTree(draft.tree.tokens[kept], np.array([-1, *(place[parents[node]] for node in nodes)], np.int32))
    distributions = {place[node]: distribution for node, distribution in draft.distributions.items() if node in place}
    drawn = None if draft.drawn is None else draft.drawn[kept]
    return Draft(tree, draft.acceptance_prob[kept], draft.source[kept], distributions, drawn)


def merge(drafts: Sequence[Draft], first_source: Sequence[int]) -> Draft:
    """Merge trees of one root; return the union.

    Equal paths become one, credited to the source that gave it the highest odds. Drawn nodes stay apart: merging them
    would change the distribution they were drawn from.

    Args:
        first_source: the offset of each draft's sources in the union.
    """
    tokens, parents, guess, source = [int(drafts[0].tree.tokens[0])], [-1], [1.0], [0]
    drawn, distributions = [False], dict[int, Probabilities]()
    place: dict[tuple[int, int], int] = {}
    for draft, offset in zip(drafts, first_source, strict=True):
        at = [0] * len(draft.tree)
        for node in range(1, len(draft.tree)):
            parent, token = at[draft.tree.parents[node]], int(draft.tree.tokens[node])
            believed, origin = float(draft.acceptance_prob[node]), int(draft.source[node]) + offset
            is_drawn = draft.drawn is not None and bool(draft.drawn[node])
            known = None if is_drawn else place.get((parent, token))
            if known is None:
                known = len(tokens)
                tokens.append(token)
                parents.append(parent)
                guess.append(believed)
                source.append(origin)
                drawn.append(is_drawn)
                if not is_drawn:
                    place[parent, token] = known
            elif believed > guess[known]:
                guess[known], source[known] = believed, origin
            at[node] = known
        for node, distribution in draft.distributions.items():
            assert at[node] not in distributions, "one node's children were drawn from two distributions"
            distributions[at[node]] = distribution
    tree = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))
    flags = np.array(drawn) if any(drawn) else None
    return Draft(tree, np.array(guess, np.float32), np.array(source, np.int8), distributions, flags)


def tested_nodes(tree: TokenTree, committed: Sequence[int]) -> list[tuple[int, bool]]:
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
