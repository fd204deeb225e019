"""Lookahead keeps the n-grams that the text and the target's window come up with, within a bound."""

import numpy as np
from test_suffix import setting

from paceline.choices import DRAFTERS
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import Verified
from paceline.draft.tree_ops import subtree
from paceline.lab import lookahead
from paceline.lab.lookahead import GRAMS, LEVELS, SIZE, WORTH, LookaheadDrafter


def view(tokens, name=0):
    return View(name, np.asarray(tokens, np.int32), SamplingParams())


def model(path):
    """A target that always adds the last two tokens."""
    logits = np.zeros(50, np.float32)
    logits[(path[-1] + path[-2]) % 50] = 1
    return logits


def play(drafter, text, rounds, nodes=16, depth=8, drop=lambda draft: draft, price=None):
    for _ in range(rounds):
        (draft,) = drafter.propose([view(text)], [Budget(nodes, depth, price)])
        assert draft.drafted <= nodes
        assert max(draft.tree.depths()) <= depth
        kept = drop(draft)
        rows = [model([*text, *kept.tree.tokens[kept.tree.path(i)].tolist()]) for i in range(len(kept.tree))]
        came, path = [], 0
        while True:
            token = int(rows[path].argmax())
            came.append(token)
            following = [c for c in kept.tree.children(path) if kept.tree.tokens[c] == token]
            if not following:
                break
            path = following[0]
        drafter.observe(view(text), draft, Verified(kept.tree, (), np.array(came, np.int32), np.array(rows)))
        text = [*text, *came]
    return text


def test_the_text_itself_fills_the_pool_latest_first():
    drafter = LookaheadDrafter()
    drafter.propose([view([1, 2, 3, 1, 2, 4, 1, 2])], [Budget(8, 4)])
    assert drafter.grams(1) == [(1, 2, 4), (1, 2, 3)]
    (draft,) = drafter.propose([view([1, 2, 3, 1, 2, 4, 1])], [Budget(4, 4)])
    assert draft.tree.tokens[1:3].tolist() == [2, 4]


def test_what_the_window_brings_is_what_the_target_says():
    """Every n-gram not of the text ends as the target goes on after the two tokens before it."""
    drafter, seen = LookaheadDrafter(), set()
    text = play(drafter, [1, 2, 3, 5], 25)
    for first in range(50):
        for gram in drafter.grams(first):
            assert len(gram) == SIZE
            assert gram[2] == (gram[0] + gram[1]) % 50, gram
            seen.add(gram)
    own = {tuple(text[i : i + SIZE]) for i in range(len(text))}
    assert len(seen - own) > 20, "the window found n-grams of its own"


def test_the_window_is_a_chain_with_columns_below_it():
    drafter = LookaheadDrafter()
    text = play(drafter, [1, 2, 3, 5], 6)
    (draft,) = drafter.propose([view(text)], [Budget(16, 8)])
    window = [node for node in range(1, len(draft.tree)) if draft.acceptance_prob[node] == 0]
    columns = 16 // (2 * LEVELS)
    assert columns * (LEVELS - 1) <= len(window) <= columns * LEVELS
    assert np.array(draft.tree.depths())[window].max() == columns + LEVELS - 1


def test_rows_are_found_in_a_tree_that_was_pruned():
    """Only the window is verified: its nodes stand elsewhere than in the proposal."""
    drafter, shifted = LookaheadDrafter(), []

    def window_only(draft):
        nodes = {0}
        for node in range(1, len(draft.tree)):
            if draft.acceptance_prob[node] == 0:
                nodes.update(draft.tree.path(node))
        shifted.append(len(nodes) < len(draft.tree))
        return subtree(draft, sorted(nodes - {0}))

    play(drafter, [1, 2, 3, 5], 25, drop=window_only)
    assert any(shifted)
    grams = [gram for first in range(50) for gram in drafter.grams(first)]
    assert len(grams) > 20
    assert all(gram[2] == (gram[0] + gram[1]) % 50 for gram in grams)


def test_a_window_cut_away_teaches_nothing_and_breaks_nothing():
    drafter = LookaheadDrafter()
    text = play(drafter, [1, 2, 3, 5], 25, drop=lambda draft: subtree(draft, []))
    assert {gram for first in range(50) for gram in drafter.grams(first)} <= {
        tuple(text[i : i + SIZE]) for i in range(len(text))
    }


def test_at_a_price_only_ngrams_that_pay_are_left():
    drafter = LookaheadDrafter()
    (draft,) = drafter.propose([view([1, 2, 3, 1])], [Budget(8, 4, 0.05 * np.arange(9))])
    assert draft.tree.tokens.tolist() == [1, 2, 3]
    chain = DRAFTERS["lookahead"].make(setting("chain"), "")
    (draft,) = chain.propose([view([1, 2, 3, 1, 2, 4, 1])], [Budget(8, 4)])
    assert draft.tree.tokens.tolist() == [1, 2, 4]


def test_the_window_is_verified_only_where_rows_are_cheap():
    found = {}
    for row in (0.0, WORTH / LEVELS - 1e-3, WORTH / LEVELS + 1e-3):
        drafter = LookaheadDrafter()
        text = play(drafter, [1, 2, 3, 5], 25, price=row * np.arange(17))
        (draft,) = drafter.propose([view(text)], [Budget(16, 8, row * np.arange(17))])
        own = {tuple(text[i : i + SIZE]) for i in range(len(text))}
        held = {gram for first in range(50) for gram in drafter.grams(first)}
        found[row] = (np.count_nonzero(draft.acceptance_prob == 0), len(held - own))
        assert draft.acceptance_prob[0] == 1
    free, cheap, dear = found.values()
    for nodes, learnt in (free, cheap):
        assert nodes >= 4, found
        assert learnt > 20, found
    assert dear == (0, 0), found


def test_the_pool_is_bounded(monkeypatch):
    monkeypatch.setattr(lookahead, "FIRST_TOKENS", 10)
    drafter = LookaheadDrafter()
    chance = np.random.default_rng(0)
    drafter.propose([view(chance.integers(50, size=2000))], [Budget(8, 4)])
    held = [drafter.grams(token) for token in range(50)]
    assert sum(bool(grams) for grams in held) == 10
    assert all(len(grams) <= GRAMS for grams in held)
    assert LEVELS == SIZE - 1


def test_a_text_cut_back_is_no_trouble():
    drafter = LookaheadDrafter()
    for text in ([1, 2, 3, 4, 5], [1, 2], [7], [7, 8, 9, 7]):
        (draft,) = drafter.propose([view(text)], [Budget(8, 4)])
        assert draft.tree.tokens[0] == text[-1]
    assert draft.tree.tokens[1:3].tolist() == [8, 9]
    drafter.release(0)
