"""The walk keeps the target's distribution: every outcome of several rounds, added up, to 1e-12; and bugs do not."""

import numpy as np
import pytest
from distribution_tools import (
    MUTANTS,
    Table,
    chain_of,
    coupled,
    distance,
    distribution_of,
    plain_distribution,
    random_tree,
    speculate,
    worst_chain,
)
from sweep import sweep

from paceline.core.tree import TokenTree
from paceline.testing import EveryOutcome

LENGTH = 4


def drafts(vocab, table, seed):
    return {
        "likeliest chain": chain_of(table, 3),
        "another model's chain": chain_of(Table(vocab, seed + 1000), 2),
        "unlikeliest chain": worst_chain(table, 2),
        "random tree": random_tree(vocab, 6, seed),
        "bushier than it can be right": random_tree(vocab, 9, seed + 1),
        "nothing": lambda tokens: TokenTree.chain([0]),
        "the whole vocabulary": lambda tokens: TokenTree(
            np.array([0, *range(vocab)], np.int32), np.array([-1] + [0] * vocab, np.int32)
        ),
        "twins with other heirs": lambda tokens: TokenTree(
            np.array([0, 1, 1, 0, 2], np.int32), np.array([-1, 0, 0, 1, 2], np.int32)
        ),
    }


@pytest.mark.parametrize("seed", sweep(range(4), fast=(1, 2)))
@pytest.mark.parametrize("vocab", [3, 4])
def test_the_walk_keeps_the_distribution_of_the_first_tokens(vocab, seed):
    table = Table(vocab, seed, sharpness=[0.3, 1.5, 4.0][seed % 3])
    plain = plain_distribution(table, LENGTH)
    assert abs(sum(plain.values()) - 1) < 1e-12
    for name, tree_of in drafts(vocab, table, seed).items():
        off = distance(distribution_of(speculate(table, tree_of, coupled), LENGTH), plain)
        assert off < 1e-12, f"{name}: the distribution is off by {off}"


def test_drafts_that_change_with_chance_keep_the_distribution():
    """A drafter may be random itself, as long as it does not see the target's noise."""
    table = Table(3, 5)
    drafter = Table(3, 77)

    def play(tokens, rng):
        guesses = []
        for _ in range(2):
            guesses.append(rng.draw(drafter((*tokens, *guesses))))
        return speculate(table, lambda _: TokenTree.chain([0, *guesses]), coupled)(tokens, rng)

    assert distance(distribution_of(play, 3), plain_distribution(table, 3)) < 1e-12


def test_a_drafter_with_the_targets_own_noise_keeps_the_distribution():
    """Coupled drafting: the guess is a function of the very noise the target draws with, here all of it."""
    table = Table(3, 6)

    def play(tokens, rng):
        foreseen = []
        for _ in range(2):
            foreseen.append(rng.draw(table((*tokens, *foreseen))))
        noise = iter([*foreseen, None])
        tree = TokenTree.chain([0, foreseen[0], (foreseen[1] + tokens.count(0)) % 3])

        def target(tree, distribution_after, rng):
            return coupled(tree, distribution_after, _Replay(noise, rng))

        return speculate(table, lambda _: tree, target)(tokens, rng)

    assert distance(distribution_of(play, 3), plain_distribution(table, 3)) < 1e-12


class _Replay:
    """Rng that give out noise known beforehand, then go on with fresh ones."""

    def __init__(self, known, rng):
        self.known, self.rng = known, rng

    def draw(self, distribution):
        token = next(self.known)
        return self.rng.draw(distribution) if token is None else token


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda rule: rule.__name__)
def test_enumeration_finds_a_planted_bug(mutant):
    found = []
    for seed in range(3):
        table = Table(3, seed)
        plain = plain_distribution(table, 3)
        trees = drafts(3, table, seed)
        del trees["nothing"]
        found.append(max(distance(distribution_of(speculate(table, t, mutant), 3), plain) for t in trees.values()))
    assert min(found) > 0.01, found  # the smallest is far above 1e-12


def test_every_outcome_weighs_one_together():
    total, seen = 0.0, []
    for rng in EveryOutcome():
        first = rng.draw(np.array([0.2, 0.0, 0.5, 0.3]))
        second = rng.accept(0.25) if first == 2 else None
        total += rng.weight
        seen.append((first, second))
    assert seen == [(0, None), (2, False), (2, True), (3, None)]
    assert abs(total - 1) < 1e-15


def test_outcomes_that_ask_nothing_play_once():
    assert [rng.weight for rng in EveryOutcome()] == [1.0]
