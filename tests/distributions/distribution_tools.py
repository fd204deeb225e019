"""Exact distributions by enumeration, chi-square by its bound, and verifiers broken on purpose."""

import math
from collections import defaultdict

import numpy as np
from views import draw_at

from paceline.core.tree import TokenTree, Verdict
from paceline.testing import EveryOutcome
from paceline.verify.coupled import CoupledVerifier, walk

ALPHA = 1e-6  # false-alarm odds of one chi-square test; seeds are fixed, so a test that passed once does not flake
_Z = 4.7534  # normal quantile of 1 - ALPHA


# ---- enumeration


class Table:
    """A distribution for every context: float64 [V], random, as sharp as asked, the same for the same context."""

    def __init__(self, vocab, seed, sharpness=1.5):
        self.vocab, self.seed, self.sharpness, self._known = vocab, seed, sharpness, {}

    def __call__(self, context):
        key = tuple(int(token) for token in context)
        if key not in self._known:
            chance = np.random.default_rng((self.seed, len(key), *key))
            weights = np.exp(self.sharpness * chance.standard_normal(self.vocab))
            if chance.random() < 0.3:
                weights[chance.integers(self.vocab)] = 0  # forbidden
            self._known[key] = weights / weights.sum()
        return self._known[key]


def distribution_of(play, length):
    """Return {first `length` tokens: probability} of rounds played until there are enough.

    `play` maps (tokens so far, rng) to the tokens a round commits.
    """
    distribution = defaultdict(float)

    def go(tokens, weight):
        if len(tokens) >= length:
            distribution[tokens[:length]] += weight
            return
        for rng in EveryOutcome():
            committed = tuple(int(token) for token in play(tokens, rng))
            assert committed, "a round must commit a token"
            go(tokens + committed, weight * rng.weight)

    go((), 1.0)
    return distribution


def plain_distribution(table, length):
    return distribution_of(lambda tokens, rng: [rng.draw(table(tokens))], length)


def distance(one, other):
    """Total variation between two distributions."""
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2


def speculate(table, tree_of, rule):
    """Return a round: draft by `tree_of(tokens)`, verify by `rule(tree, distribution of each node, rng)`."""

    def play(tokens, rng):
        tree = tree_of(tokens)

        def distribution_after(node):
            return table((*tokens, *(tree.tokens[i] for i in tree.path(node))))

        verdict = rule(tree, distribution_after, rng)
        return [*(tree.tokens[node] for node in verdict.nodes), verdict.bonus]

    return play


def coupled(tree, distribution_after, rng):
    """The rule under test: the target draws, the walk follows."""
    return walk(tree, lambda node, path: rng.draw(distribution_after(node)))


# ---- trees


def chain_of(table, length):
    """Draft what the table finds likeliest."""

    def tree_of(tokens):
        guesses = []
        for _ in range(length):
            guesses.append(int(np.argmax(table((*tokens, *guesses)))))
        return TokenTree.chain([0, *guesses])

    return tree_of


def worst_chain(table, length):
    """Draft what the table finds least likely, forbidden tokens first."""

    def tree_of(tokens):
        guesses = []
        for _ in range(length):
            guesses.append(int(np.argmin(table((*tokens, *guesses)))))
        return TokenTree.chain([0, *guesses])

    return tree_of


def random_tree(vocab, nodes, seed):
    """Any tree, twins among siblings included, another for every context."""

    def tree_of(tokens):
        chance = np.random.default_rng((seed, len(tokens), *(int(token) for token in tokens)))
        count = int(chance.integers(nodes + 1))
        parents = [-1, *(int(chance.integers(i)) for i in range(1, count + 1))]
        return TokenTree(chance.integers(vocab, size=count + 1).astype(np.int32), np.array(parents, np.int32))

    return tree_of


# ---- rules broken on purpose, over rng


def emit_the_draft(tree, distribution_after, rng):
    """Mutant: at the first mismatch the drafted token goes out instead of the target's."""
    verdict = coupled(tree, distribution_after, rng)
    children = tree.children(verdict.nodes[-1] if verdict.nodes else 0)
    return Verdict(verdict.nodes, int(tree.tokens[children[0]])) if children else verdict


def next_row(tree, distribution_after, rng):
    """Mutant: node i is judged by row i + 1."""
    return walk(tree, lambda node, path: rng.draw(distribution_after(min(node + 1, len(tree) - 1))))


def fresh_after_refusal(tree, distribution_after, rng):
    """Mutant: when no child was drawn, the target draws once more."""
    verdict = coupled(tree, distribution_after, rng)
    node = verdict.nodes[-1] if verdict.nodes else 0
    return Verdict(verdict.nodes, rng.draw(distribution_after(node))) if tree.children(node) else verdict


def residual_from_p(tree, distribution_after, rng):
    """Mutant: the first draft is accepted with its probability, a refused one is redrawn from all of p."""

    def target(node, path):
        distribution, children = distribution_after(node), tree.children(node)
        drafted = int(tree.tokens[children[0]]) if children else -1
        return drafted if children and rng.accept(float(distribution[drafted])) else rng.draw(distribution)

    return walk(tree, target)


def parent_row(tree, distribution_after, rng):
    """Mutant: a node is judged by the row before it."""
    return walk(tree, lambda node, path: rng.draw(distribution_after(max(int(tree.parents[node]), 0))))


MUTANTS = [emit_the_draft, next_row, fresh_after_refusal, residual_from_p, parent_row]


# ---- verifiers broken on purpose, over keyed noise


class _Broken(CoupledVerifier):
    def verify(self, draft, logits, view):
        tree = draft.tree
        return walk(tree, lambda node, path: self.target(tree, logits, view, node, len(path)))


class NoiseByDepth(_Broken):
    """Mutant: noise keyed by the depth in the round, not the absolute position."""

    def target(self, tree, logits, view, node, depth):
        return draw_at(logits[node], view.params, depth)


class NoiseReused(_Broken):
    """Mutant: the same noise at every position."""

    def target(self, tree, logits, view, node, depth):
        return draw_at(logits[node], view.params, 0)


class NextRow(_Broken):
    """Mutant: node i judged by row i + 1."""

    def target(self, tree, logits, view, node, depth):
        return draw_at(logits[min(node + 1, len(tree) - 1)], view.params, len(view.tokens) + depth)


class OneOff(_Broken):
    """Mutant: positions one too late below the root, so that rounds share noise."""

    def target(self, tree, logits, view, node, depth):
        return draw_at(logits[node], view.params, len(view.tokens) + depth + (depth > 0))


class FreshNoise(CoupledVerifier):
    """Mutant: after a refusal the target draws again, with other noise."""

    def verify(self, draft, logits, view):
        tree, verdict = draft.tree, super().verify(draft, logits, view)
        node = verdict.nodes[-1] if verdict.nodes else 0
        if not tree.children(node):
            return verdict
        position = len(view.tokens) + len(verdict.nodes)
        return Verdict(verdict.nodes, draw_at(logits[node], view.params, position + 10**9))


class EmitsTheDraft(CoupledVerifier):
    """Mutant: the refused draft goes out."""

    def verify(self, draft, logits, view):
        tree, verdict = draft.tree, super().verify(draft, logits, view)
        children = tree.children(verdict.nodes[-1] if verdict.nodes else 0)
        return Verdict(verdict.nodes, int(tree.tokens[children[0]])) if children else verdict


BROKEN = [NoiseByDepth, NoiseReused, NextRow, OneOff, FreshNoise, EmitsTheDraft]


# ---- chi-square


def critical(freedom):
    """Return the value that chi-square of `freedom` degrees exceeds with odds of at most ALPHA (Wilson-Hilferty, which
    is 7 % above the exact value at 3 degrees, 3 % at 7, less beyond)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + _Z * math.sqrt(part)) ** 3


def chi_square(counts, distribution):
    """Return (statistic, degrees of freedom) of counts [n] against a distribution [n]; cells that expect < 5 are
    pooled.
    """
    counts, expected = np.asarray(counts, float), np.asarray(distribution, float) * np.sum(counts)
    assert counts[expected == 0].sum() == 0, f"impossible outcomes were drawn: {counts[expected == 0]}"
    few = expected < 5
    if few.any():
        counts = np.append(counts[~few], counts[few].sum())
        expected = np.append(expected[~few], expected[few].sum())
    keep = expected > 0
    counts, expected = counts[keep], expected[keep]
    return float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1


def fits(counts, distributions):
    """Whether rows of counts [m, n] fit rows of distributions [m, n], as one test; returns (verdict, message)."""
    statistic, freedom = 0.0, 0
    for row, distribution in zip(np.atleast_2d(counts), np.atleast_2d(distributions), strict=True):
        if np.sum(row) >= 20:
            one, degrees = chi_square(row, distribution)
            statistic, freedom = statistic + one, freedom + degrees
    assert freedom > 0, counts
    limit = critical(freedom)
    return statistic <= limit, f"chi2 {statistic:.1f}, {freedom} degrees, limit {limit:.1f}, n {np.sum(counts)}"
