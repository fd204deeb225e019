"""What a round is likely to bring if a drafter that takes time makes some steps beside what others have guessed.

A table of prospects is float64 [steps + 1, nodes + 1]: expected tokens beyond the target's own. Knows no drafters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.draft.grow import values
from paceline.types import Budget, Draft, Probabilities


def prospects(drafts: Sequence[Draft], rates: Probabilities, nodes: int) -> Probabilities:
    """Return the table of the drafts at hand and a chain of as many steps as there are rates.

    Args:
        rates: float64 [steps], how often the chain is right at each depth, given that it was so far.
    """
    steps, chain = len(rates), np.cumprod(rates)
    by_depth, said = np.zeros(steps), [np.zeros(0)]
    for draft in drafts:
        value, depths = values(draft)[1:], np.array(draft.tree.depths()[1:], np.int32)
        said.append(value)
        near = depths <= steps
        np.maximum.at(by_depth, depths[near] - 1, value[near])
    free = np.sort(np.concatenate(said))[::-1]
    # The better one at each depth counts; beside it stay the others' siblings, which a chain does not replace.
    is_made = np.arange(steps) < np.arange(steps + 1)[:, None]
    at_depth = np.where(is_made, np.maximum(chain, by_depth), by_depth)
    spare = free[np.count_nonzero(by_depth) :]
    found = np.hstack([at_depth, np.broadcast_to(spare, (steps + 1, len(spare)))])
    found[0] = 0.0
    found[0, : len(free)] = free
    best = -np.sort(-found, axis=1)[:, :nodes]
    return np.hstack([np.zeros((steps + 1, 1)), np.cumsum(best, axis=1)])


def best_pace(table: Probabilities, step: float, budget: Budget) -> float:
    """Return the most tokens that any choice of steps and nodes promises for each one that its time is worth.

    Args:
        step: what one costs, in tokens like the budget's prices.
    """
    return float(((1 + table) / (budget.plain + _cost(table, step, budget))).max())


def pays(table: Probabilities, step: float, budget: Budget) -> bool:
    """Whether some number of steps is likely to gain more than none."""
    without, *others = (table - _cost(table, step, budget)).max(axis=1)
    return any(gain > without for gain in others)


def _cost(table: Probabilities, step: float, budget: Budget) -> Probabilities:
    assert budget.price is not None
    steps, nodes = table.shape
    return np.asarray(budget.price[:nodes] + step * np.arange(steps)[:, None])
