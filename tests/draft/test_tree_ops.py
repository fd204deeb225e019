"""The best tree of n nodes is the n most valuable ones, and the best n weighs them against their price."""

import itertools

import numpy as np
import pytest

from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree
from paceline.draft.tree_ops import best_prefix, discount_siblings, merge, prune, subtree, values


def random_draft(seed, nodes=8, vocab=4, source=0):
    chance = np.random.default_rng(seed)
    parents = [-1, *(int(chance.integers(i)) for i in range(1, nodes))]
    tokens = chance.integers(vocab, size=nodes).astype(np.int32)
    tokens[0] = 0
    guess = chance.random(nodes).astype(np.float32)
    return Draft(TokenTree(tokens, np.array(parents, np.int32)), guess, np.full(nodes, source, np.int8))


def connected(draft):
    """Every set of nodes that holds its members' parents, the root left out."""
    for size in range(len(draft.tree)):
        for chosen in itertools.combinations(range(1, len(draft.tree)), size):
            if all(int(draft.tree.parents[node]) in (0, *chosen) for node in chosen):
                yield chosen


@pytest.mark.parametrize("seed", range(6))
def test_pruning_finds_the_best_of_all_subtrees(seed):
    draft = random_draft(seed)
    value = values(draft)
    chance = np.random.default_rng(seed)
    for price in (np.arange(9) * 0.1, np.array([0, 1, 1, 1, 1, 1, 1.1, 1.2, 2]), np.cumsum(chance.random(9)) * 0.3):
        price = price - price[0]
        for limit in (2, 5, 8):
            kept = prune(draft, Budget(limit, 8, price))
            gained = values(kept)[1:].sum() - price[kept.drafted]
            best = max(value[list(s)].sum() - price[len(s)] for s in connected(draft) if len(s) <= limit)
            assert gained == pytest.approx(best, abs=1e-6)


def test_a_cliff_is_crossed_only_by_enough_nodes():
    """Verifying any node costs 0.9, the ones after it nothing: one sure node is not worth it, four are."""
    price = np.array([0, 0.9, 0.9, 0.9, 0.9])
    assert best_prefix(np.array([0.8]), price) == (0, 0.0)
    assert best_prefix(np.array([0.8, 0.7, 0.6, 0.5]), price)[0] == 4


def test_depth_and_nodes_are_limits():
    draft = random_draft(3)
    for nodes, depth in itertools.product((0, 1, 3), (0, 1, 2)):
        kept = prune(draft, Budget(nodes, depth))
        assert kept.drafted <= nodes
        assert max(kept.tree.depths()) <= depth


def paths(draft):
    return {tuple(int(draft.tree.tokens[i]) for i in draft.tree.path(node)): node for node in range(len(draft.tree))}


@pytest.mark.parametrize("seed", range(8))
def test_a_union_has_each_path_once_under_the_likelier_source(seed):
    drafts = [random_draft(seed), random_draft(seed + 100, source=1)]
    union = merge(drafts, [0, 2])
    assert set(paths(union)) == set().union(*(paths(draft) for draft in drafts))
    assert len(paths(union)) == len(union.tree)
    for path, node in list(paths(union).items()):
        if not path:
            continue
        beliefs = [
            (float(draft.acceptance_prob[i]), int(draft.source[i]) + offset)
            for draft, offset in zip(drafts, (0, 2), strict=True)
            for i in range(1, len(draft.tree))
            if tuple(int(draft.tree.tokens[j]) for j in draft.tree.path(i)) == path
        ]
        strongest = max(believed for believed, _ in beliefs)
        assert union.acceptance_prob[node] == np.float32(strongest)
        assert int(union.source[node]) in [source for believed, source in beliefs if believed == strongest]


def test_drawn_nodes_stay_apart_and_stay():
    """Merging or dropping a drawn node by its value would change the distribution it was drawn from."""
    tree = TokenTree(np.array([0, 1, 2, 3], np.int32), np.array([-1, 0, 1, 0], np.int32))
    distribution = np.array([0.1, 0.2, 0.3, 0.4])
    drawn = Draft(
        tree,
        np.full(4, 0.01, np.float32),
        np.zeros(4, np.int8),
        {0: distribution, 1: distribution},
        np.array([0, 1, 1, 0]) > 0,
    )
    copied = Draft(TokenTree.chain([0, 1, 2]), np.full(3, 0.9, np.float32), np.zeros(3, np.int8))
    union = merge([copied, drawn], [0, 1])
    assert union.drafted == 5
    assert union.drawn.tolist() == [False, False, False, True, True, False]
    assert set(union.distributions) == {0, 3}
    kept = prune(union, Budget(8, 8, np.arange(9) * 0.5))
    assert kept.drawn.sum() == 2, "the drawn chain stays whatever it is worth"
    assert kept.drafted == 4, "the copied one pays, the stray one does not"
    np.testing.assert_array_equal(kept.distributions[next(n for n in kept.distributions if n)], distribution)


def test_a_subtree_keeps_distributions_and_flags_of_its_nodes():
    draft = random_draft(1)
    kept = subtree(draft, [1, 2] if draft.tree.parents[2] in (0, 1) else [1])
    assert kept.tree.tokens[1] == draft.tree.tokens[1]
    assert kept.distributions == {}


def test_a_less_likely_rival_counts_only_where_others_fail():
    tree = TokenTree(np.array([0, 1, 2, 3, 4], np.int32), np.array([-1, 0, 0, 0, 1], np.int32))
    guess, source = np.array([1, 0.9, 0.5, 0.3, 0.8], np.float32), np.array([0, 0, 1, 1, 0], np.int8)
    found = discount_siblings(Draft(tree, guess, source))
    assert found == pytest.approx([1, 0.9, 0.05, 0.03, 0.8]), "siblings of one source are told apart already"
    assert found[1:4].sum() <= 1
    np.testing.assert_array_equal(guess, np.array([1, 0.9, 0.5, 0.3, 0.8], np.float32))
    alone = Draft(tree, guess, np.zeros(5, np.int8))
    np.testing.assert_array_equal(discount_siblings(alone), guess)
