"""What may come of asking a drafter that takes time is counted depth by depth, and weighed at the round's prices."""

import numpy as np
import pytest

from paceline.draft.grow import values
from paceline.draft.prospects import best_pace, pays, prospects
from paceline.types import Budget, Draft, TokenTree


def tree_of(chance):
    """A random tree of up to 13 nodes with random odds."""
    count = int(chance.integers(1, 14))
    parents = [-1, *(int(chance.integers(node)) for node in range(1, count))]
    guess = np.concatenate([[1.0], chance.random(count - 1)]).astype(np.float32)
    tree = TokenTree(np.arange(count, dtype=np.int32), np.array(parents, np.int32))
    return Draft(tree, guess, np.zeros(count, np.int8))


def counted(drafts, rates, nodes, steps):
    """One row, one node at a time: a chain takes the place of the best guess at each depth that it reaches."""
    said = [(float(v), int(d)) for one in drafts for v, d in zip(values(one)[1:], one.tree.depths()[1:], strict=True)]
    free = sorted((value for value, _ in said), reverse=True)
    if steps:
        best = [max((v for v, d in said if d == depth), default=0.0) for depth in range(1, len(rates) + 1)]
        made = [max(best[d], float(np.prod(rates[: d + 1]))) if d < steps else best[d] for d in range(len(rates))]
        free = sorted([*(v for v in made if v > 0), *free[np.count_nonzero(best) :]], reverse=True)
    return [sum(free[:count]) for count in range(min(nodes, len(free)) + 1)]


@pytest.mark.parametrize("seed", range(30))
def test_table_pace_and_worth_equal_plain_counting(seed):
    chance = np.random.default_rng(seed)
    drafts, rates, nodes = [tree_of(chance) for _ in range(seed % 3)], chance.random(seed % 7), 1 + seed % 11
    step, budget = float(chance.random()), Budget(nodes, 16, 0.2 * np.arange(17.0), plain=0.5)
    table = prospects(drafts, rates, nodes)
    rows = [counted(drafts, rates, nodes, steps) for steps in range(len(rates) + 1)]
    gains, paces = [], []
    for steps, (row, wanted) in enumerate(zip(table, rows, strict=True)):
        np.testing.assert_allclose(row[: len(wanted)], wanted, rtol=1e-12)
        assert (row[len(wanted) :] == row[len(wanted) - 1]).all(), "nothing comes of nodes that no draft has"
        gains.append(max(brought - 0.2 * n for n, brought in enumerate(wanted)) - steps * step)
        paces += [(1 + brought) / (0.5 + 0.2 * n + steps * step) for n, brought in enumerate(wanted)]
    assert best_pace(table, step, budget) == pytest.approx(max(paces))
    assert pays(table, step, budget) == (max(gains[1:], default=-1.0) > gains[0])
