"""The recycling table holds each token's last likely successors, whichever row they came from."""

from time import perf_counter

import numpy as np
import pytest
from test_suffix import same, setting

from paceline.choices import DRAFTERS
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import TokenTree, Verified
from paceline.draft.lookup.recycle import KEPT, ROWS, RecycleDrafter
from paceline.draft.tree_ops import prune
from paceline.kernels.native import native

VOCAB = 40


def view(tokens, name=0):
    return View(name, np.asarray(tokens, np.int32), SamplingParams())


def plain_top(row, k):
    order = [i for i in np.argsort(-np.nan_to_num(row, nan=-np.inf), kind="stable")[:k] if row[i] > -np.inf]
    return order + [-1] * (k - len(order))


@pytest.mark.parametrize("vocab", [1, 3, 8, 63, 64, 65, 640, 5003])
def test_the_native_top_is_a_stable_sort(vocab):
    chance = np.random.default_rng(vocab)
    logits = chance.standard_normal((9, vocab)).astype(np.float32)
    logits[1] = np.round(logits[1])  # ties
    logits[2, chance.random(vocab) < 0.6] = -np.inf
    logits[3] = -np.inf
    logits[4, chance.random(vocab) < 0.3] = np.nan
    logits[5] = 0
    logits[6] = -np.abs(logits[6]) * np.float32(1e37)
    rows = np.array([6, 0, 1, 2, 3, 4, 5, 7, 8, 0], np.int32)
    for k in (1, 2, 8, 64):
        got = native.top(logits, rows, k)
        assert got.tolist() == [plain_top(logits[row], k) for row in rows]
    for wrong in (-1, 9):
        with pytest.raises(ValueError, match="row"):
            native.top(logits, np.array([wrong], np.int32), 1)
    for wrong in (0, 65):
        with pytest.raises(ValueError, match="k must"):
            native.top(logits, rows, wrong)


def rounds(chance, count):
    """Trees and verdicts at random, as an engine might play them."""
    for _ in range(count):
        n = int(chance.integers(1, 14))
        parents = np.array([-1, *(int(chance.integers(i)) for i in range(1, n))], np.int32)
        tree = TokenTree(chance.integers(VOCAB, size=n).astype(np.int32), parents)
        nodes = tuple(tree.path(int(chance.integers(n))))
        tokens = np.array([*tree.tokens[list(nodes)], chance.integers(VOCAB)], np.int32)
        yield Verified(tree, nodes, tokens, chance.standard_normal((n, VOCAB)).astype(np.float32))


def test_every_row_read_is_remembered_under_its_own_token():
    drafter, table = RecycleDrafter(VOCAB), {}
    for verified in rounds(np.random.default_rng(0), 60):
        drafter.observe(view([1, 2]), drafter.propose([view([1, 2])], [Budget(0, 0)])[0], verified)
        path = [0, *verified.nodes]
        read = [*path, *(i for i in range(len(verified.tree)) if i not in path)][:ROWS]
        for node in reversed(read):
            table[int(verified.tree.tokens[node])] = plain_top(verified.logits[node], KEPT)
    assert any(len(verified.tree) > ROWS for verified in rounds(np.random.default_rng(0), 60))
    for token in range(VOCAB):
        assert drafter.successors(token).tolist() == table.get(token, [-1] * KEPT)


def filled(seed=0, *, is_chain=False):
    drafter = RecycleDrafter(VOCAB, is_chain=is_chain)
    for verified in rounds(np.random.default_rng(seed), 60):
        drafter.observe(view([0]), drafter.propose([view([0])], [Budget(0, 0)])[0], verified)
    return drafter


def test_the_tree_holds_successors_best_first_within_budget():
    drafter = filled()
    for nodes, depth in ((1, 1), (5, 2), (24, 3), (60, 60)):
        (draft,) = drafter.propose([view([3, 7])], [Budget(nodes, depth)])
        assert draft.drafted == min(nodes, draft.drafted)
        assert max(draft.tree.depths()) <= depth
        for node in range(1, len(draft.tree)):
            assert draft.tree.tokens[node] in drafter.successors(int(draft.tree.tokens[draft.tree.parents[node]]))
        value = np.ones(len(draft.tree))
        for node in range(1, len(value)):
            value[node] = value[draft.tree.parents[node]] * draft.acceptance_prob[node]
        assert (np.diff(value) <= 1e-6).all()
    whole = drafter.propose([view([3, 7])], [Budget(24, 4)])[0]
    for price in (0.043, 0.11, 0.31):  # no ties
        budget = Budget(24, 4, price * np.arange(25))
        same(drafter.propose([view([3, 7])], [budget])[0], prune(whole, budget))
    (draft,) = filled(is_chain=True).propose([view([3])], [Budget(9, 5)])
    assert draft.tree.parents.tolist() == list(range(-1, draft.drafted))


def test_confidence_follows_rank_and_depth():
    drafter = filled()
    for _ in range(60):  # always the second
        (draft,) = drafter.propose([view([3])], [Budget(12, 2)])
        second = drafter.successors(3)[1]
        drafter.observe(
            view([3]),
            draft,
            Verified(TokenTree.chain([VOCAB - 1]), (), np.array([second]), np.zeros((1, VOCAB), np.float32)),
        )
    (draft,) = drafter.propose([view([3])], [Budget(2, 1)])
    assert draft.tree.tokens[1] == drafter.successors(3)[1]
    assert draft.acceptance_prob[1] > 0.8 > 0.1 > draft.acceptance_prob[2]


def test_silent_without_successors_and_known_by_name():
    drafter = DRAFTERS["recycle"].make(setting(), "")
    assert drafter.propose([view([3])], [Budget(9, 9)])[0].drafted == 0
    assert isinstance(drafter, RecycleDrafter)
    drafter.release(5)


def test_a_row_of_150_000_is_read_in_microseconds():
    """Some 40 us on an idle machine."""
    logits = np.random.default_rng(0).standard_normal((8, 152_000)).astype(np.float32)
    rows, seconds = np.arange(8, dtype=np.int32), []
    for _ in range(10):
        started = perf_counter()
        native.top(logits, rows, KEPT)
        seconds.append((perf_counter() - started) / 8)
    assert np.median(seconds) < 600e-6, np.median(seconds)
