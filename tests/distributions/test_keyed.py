"""Keyed chance: fair coins, draws that follow their distribution, and no number used for two things.

Every chi-square has a false-alarm probability of at most 1e-6 and a fixed seed.
"""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from distribution_tools import distance, fits
from round_tools import Growing, World, first_tokens, view_of

import paceline.sample.proposal
from paceline.core.request import SamplingParams, View
from paceline.sample.distribution import Distribution
from paceline.sample.proposal import draw_children
from paceline.sample.rng import KeyedRng, Stream, fraction, philox, pick, words
from paceline.testing import EveryOutcome
from paceline.verify.block import BlockVerifier
from paceline.verify.tree import RejectionVerifier


def view_with(seed, tokens=(0,)):
    return View(0, np.array(tokens, np.int32), SamplingParams(1.0, seed=seed))


def distribution_over(probabilities):
    order = np.argsort(-probabilities, kind="stable").astype(np.int32)
    order = order[probabilities[order] > 0]
    return Distribution(order, np.log(probabilities[order]))


# ---- one number


def test_a_fraction_is_two_words_of_the_same_noise():
    seed, position, trial = 0x1234_5678_9ABC_DEF0, (1 << 33) + 7, 3
    key, counter = (seed & 0xFFFFFFFF, seed >> 32), [[trial, position & 0xFFFFFFFF, position >> 32, Stream.ACCEPT]]
    high, low = (int(word) for word in philox(key, np.array(counter, np.uint64))[0, :2])
    assert fraction(seed, Stream.ACCEPT, position, trial) == (((high << 32 | low) >> 12) + 0.5) / 2**52


def test_fractions_are_even_and_strangers_to_each_other():
    """10 000 each by seed, position and trial: ten cells, and the products of neighbours."""
    for row in (
        [fraction(seed, Stream.ACCEPT, 5, 1) for seed in range(10_000)],
        [fraction(1, Stream.RESIDUAL, position) for position in range(10_000)],
        [fraction(1, Stream.DRAFT, 5, trial) for trial in range(10_000)],
    ):
        good, message = fits(np.bincount((np.array(row) * 10).astype(int), minlength=10), np.full(10, 0.1))
        assert good, message
        near = np.corrcoef(row[:-1], row[1:])[0, 1]
        assert abs(near) < 5 / 100, near


def test_no_two_uses_share_a_number():
    own = [stream for stream in Stream if stream != Stream.GUMBEL]
    seen = [fraction(3, stream, position, trial) for stream in own for position in range(20) for trial in range(20)]
    shared = ((words(3, Stream.GUMBEL, 5, np.arange(800)) + 0.5) / 2**32).tolist()
    assert len(set(seen)) == len(seen)
    assert min(abs(np.array(seen)[:, None] - shared).ravel()) > 2.0**-32


def test_a_pick_never_takes_what_is_impossible():
    distribution = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    eighths = [pick(distribution, (i + 0.5) / 8) for i in range(8)]
    assert eighths == [1, 1, 3, 3, 3, 3, 3, 3]
    assert pick(distribution, 2.0**-53) == 1
    assert pick(distribution, 1 - 2.0**-53) == 3
    assert pick(distribution * 0.3, 1 - 2.0**-53) == 3
    assert pick(np.array([0.1] * 10 + [0.0]), 1 - 2.0**-53) == 9
    with pytest.raises(AssertionError, match="sum to 0"):
        pick(np.zeros(3), 0.5)
    with pytest.raises(AssertionError, match="sum to nan"):
        pick(np.array([np.nan, 1.0]), 0.5)


def test_coins_know_never_and_always():
    rng = KeyedRng(view_with(1))
    assert not any(rng.accept(0.0) for _ in range(300))
    assert all(rng.accept(1.0) for _ in range(300))
    assert 0.2 < np.mean([rng.accept(0.3) for _ in range(1000)]) < 0.4


def test_the_rounds_own_token_is_keyed_by_its_position_alone():
    distribution = np.full(50, 0.02)
    one, other = KeyedRng(view_with(7, (0,) * 10)), KeyedRng(view_with(7, (0,) * 12))
    one.accept(0.5)
    assert [one.draw(distribution, depth) for depth in (2, 3, 4)] == [
        other.draw(distribution, depth) for depth in (0, 1, 2)
    ]


# ---- drawn guesses


def test_each_way_of_drawing_keeps_its_promise():
    q = np.array([0.1, 0.4, 0.0, 0.3, 0.2])
    for seed in range(30):
        chain, tree, wide, greedy = (
            draw_children(distribution_over(q), count, draws, view_with(seed), (1, 2), vocab=5)
            for count, draws in [(3, "chain"), (3, "tree"), (9, "tree"), (3, "greedy_tree")]
        )
        assert len(chain.tokens) == 1
        assert chain.drawn.all()
        assert len(set(tree.tokens.tolist())) == 3
        assert chain.tokens[0] == tree.tokens[0]
        assert sorted(wide.tokens.tolist()) == [0, 1, 3, 4]
        assert tree.drawn.all()
        np.testing.assert_allclose(tree.distribution, q, atol=1e-15)
        assert greedy.tokens[:2].tolist() == [1, 3]
        assert greedy.drawn.tolist() == [False, False, True]
        np.testing.assert_allclose(greedy.distribution, [1 / 3, 0, 0, 0, 2 / 3], atol=1e-15)
        assert greedy.distribution[greedy.tokens[2]] > 0
    single = draw_children(distribution_over(np.array([0.0, 1.0])), 4, "greedy_tree", view_with(1), vocab=2)
    assert (single.tokens.tolist(), single.drawn.tolist()) == ([1], [True])


def test_pairs_are_drawn_without_replacement_by_their_distribution():
    """4000 seeds, 12 cells."""
    q = np.array([0.5, 0.3, 0.15, 0.05])
    pairs = list(itertools.permutations(range(4), 2))
    counts = dict.fromkeys(pairs, 0)
    for seed in range(4000):
        counts[tuple(draw_children(distribution_over(q), 2, "tree", view_with(seed), vocab=4).tokens.tolist())] += 1
    good, message = fits([counts[pair] for pair in pairs], [q[a] * q[b] / (1 - q[a]) for a, b in pairs])
    assert good, message


def test_paths_and_rounds_draw_for_themselves():
    distribution = distribution_over(np.full(1000, 1e-3))
    found = {
        tuple(draw_children(distribution, 3, "tree", view_with(1, (0,) * n), path, vocab=1000).tokens.tolist())
        for n in range(1, 6)
        for path in [(), (1,), (2,), (1, 2), (2, 1)]
    }
    assert len(found) == 25


# ---- rounds


def joint(world, verifier, seeds, length=3, count=2):
    """Return (counts, distribution) of the first tokens over seeds, V^length cells, through draft and verdict as
    they are.
    """
    counts = np.zeros((world.vocab,) * length)
    for seed in range(seeds):
        tokens = (0,)
        while len(tokens) <= length:
            view = view_with(seed, tokens)
            growing = Growing(tokens)
            for node in range(count):
                path = growing.tokens[1:]
                q = world.q((*tokens, *path))
                children = draw_children(distribution_over(q), 1, "chain", view, path, vocab=world.vocab)
                growing.distributions[node] = children.distribution
                growing.add(node, children.tokens[0], drawn=True)
            draft = growing.draft()
            verdict = verifier.verify(draft, world.logits_of(draft.tree, tokens), view)
            tokens = (*tokens, *draft.tree.tokens[list(verdict.nodes)].tolist(), verdict.bonus)
        counts[tokens[1 : length + 1]] += 1
    plain = first_tokens(lambda key: {(t,): share for t, share in enumerate(world.p(key))}, length, 1)
    return counts.ravel(), [plain[key] for key in itertools.product(range(world.vocab), repeat=length)]


WORLD = World(2, 1, sharpness=1.0, alike=0.0, zeros=0)


@pytest.mark.parametrize("verifier", [RejectionVerifier(), BlockVerifier()], ids=lambda v: type(v).__name__)
def test_several_rounds_follow_the_distribution_together(verifier):
    good, message = fits(*joint(WORLD, verifier, 500))
    assert good, message


def test_guesses_that_share_the_residuals_noise_are_seen(monkeypatch):
    class Shared:
        DRAFT = Stream.RESIDUAL

    monkeypatch.setattr(paceline.sample.proposal, "Stream", Shared)
    monkeypatch.setattr(paceline.sample.proposal, "_seed", lambda view, path: view.params.seed)
    good, message = fits(*joint(WORLD, RejectionVerifier(), 500))
    assert not good, message


# ---- what a round may share with the next, by enumeration


def known_draw(distribution, key, known, rng):
    """Draw by a number that is asked for again and again; `known` is in which part of (0, 1) it must lie by now."""
    low, high = known.get(key, (0.0, 1.0))
    edges = np.concatenate([[0.0], np.cumsum(distribution)])
    parts = np.maximum(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0)
    found = rng.draw(parts / parts.sum())
    known[key] = max(edges[found], low), min(edges[found + 1], high)
    return found


class PositionCoins:
    """Mutant: the coin of a node follows its position. A block asks from the last node of a chain up."""

    def __init__(self, rng, known, last):
        self.rng, self.known, self.position, self.draw = rng, known, last, rng.draw

    def accept(self, probability):
        self.position -= 1
        if not 0 < probability < 1:
            return probability >= 1
        return known_draw([1 - probability, probability], ("coin", self.position), self.known, self.rng) == 1


def shared_error(world, make_verifier, share, *, length=4, count=2):
    """Return how far off the distribution is when rounds share their "drafts" or their "coins" by position."""
    found = defaultdict(float)

    def go(tokens, known, weight):
        if len(tokens) > length:
            found[tokens[1 : length + 1]] += weight
            return
        for rng in EveryOutcome():
            growing, path, mine = Growing(tokens), tokens, dict(known)
            for node in range(count):
                q = growing.distributions[node] = world.q(path)
                token = known_draw(q, len(path), mine, rng) if share == "drafts" else rng.draw(q)
                growing.add(node, token, drawn=True)
                path = (*path, token)
            draft = growing.draft()
            coins = PositionCoins(rng, mine, len(path)) if share == "coins" else rng
            verifier = make_verifier(lambda view, coins=coins: coins)
            verdict = verifier.verify(draft, world.logits_of(draft.tree, tokens), view_of(tokens, world.params))
            committed = (*draft.tree.tokens[list(verdict.nodes)].tolist(), verdict.bonus)
            go((*tokens, *committed), mine, weight * rng.weight)

    go((0,), {}, 1.0)
    plain = first_tokens(lambda key: {(t,): p for t, p in enumerate(world.p(key))}, length, 1)
    return distance(found, plain)


def test_a_block_shares_neither_guesses_nor_coins_between_rounds():
    """It looks at both before it gives them back. A total variation of 0.009 and 0.016: no statistics would see it."""
    world = World(2, 0, alike=0.0, zeros=0)
    assert shared_error(world, RejectionVerifier, "drafts") < 1e-12  # never looks behind a refusal
    assert shared_error(world, BlockVerifier, "nothing") < 1e-12
    assert shared_error(world, BlockVerifier, "drafts") > 0.005
    assert shared_error(world, BlockVerifier, "coins") > 0.01
