"""Penalties under speculation keep the distribution: every outcome of several rounds, added up, to 1e-12.

The penalised distribution depends on the drafted path, so verifiers that adjust by anything else are planted and found.
"""

import functools
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from distribution_tools import chain_of, distance, distribution_of, random_tree, worst_chain

from paceline.core.request import Edits, SamplingParams, View
from paceline.sample.distribution import distribution
from paceline.testing import EveryOutcome
from paceline.verify.coupled import walk

VOCAB, LENGTH = 3, 3
ANY = SamplingParams(1.0)
SETTINGS = {
    "repetition": replace(ANY, repetition_penalty=1.7),
    "presence": replace(ANY, presence_penalty=1.2),
    "frequency": replace(ANY, frequency_penalty=0.8),
    "frequency rewarded": replace(ANY, frequency_penalty=-1.5),
    "bias and top-p": replace(ANY, logit_bias={1: 1.0}, top_p=0.9, frequency_penalty=0.3),
    "typical": replace(ANY, typical_p=0.7, presence_penalty=0.5),
    "min tokens": replace(ANY, min_tokens=2),
    "processor": replace(
        ANY, logits_processors=(lambda tokens, logits: logits - 0.7 * (np.arange(VOCAB) == tokens[-1]),)
    ),
    "bad words": ANY,
}
BANNED = {"bad words": [[1, 2], [0, 0, 0], [2, 2]]}
ENDS = {"min tokens": frozenset([0])}
PROMPT = (0, 2)


class Rows:
    """Logits float32 [V] for every context, and the distributions made of them."""

    def __init__(self, seed):
        self.seed = seed
        self.distribution = functools.cache(self._distribution)

    def _distribution(self, name, context, known, path=()):
        return distribution(self(context), view_of(name, known), path).probabilities(VOCAB)

    def __call__(self, context):
        chance = np.random.default_rng((self.seed, len(context), *(int(token) for token in context)))
        return (1.5 * chance.standard_normal(VOCAB)).astype(np.float32)


def view_of(name, tokens):
    params = SETTINGS.get(name, ANY)
    edits = Edits.of(params, BANNED.get(name, ()))
    return View(0, np.array(tokens, np.int32), params, len(PROMPT), ENDS.get(name, frozenset()), None, edits)


def plain(rows, name):
    return distribution_of(
        lambda tokens, rng: [rng.draw(rows.distribution(name, tokens, (*PROMPT, *tokens)))],
        LENGTH,
    )


def trees(rows, seed):
    def softmax(context):
        return np.exp(rows(context)) / np.exp(rows(context)).sum()

    return {
        "likely chain": chain_of(softmax, 3),
        "unlikely chain": worst_chain(softmax, 2),
        "tree": random_tree(VOCAB, 7, seed),
    }


# ---- which history a node is adjusted by: (committed, of them drawn by the target last in their rounds, path) -> both


def the_path(committed, bonuses, path):
    return committed, path


def committed_only(committed, bonuses, path):
    """Mutant: the path is left out."""
    return committed, ()


def one_a_round(committed, bonuses, path):
    """Mutant: counts grow by the last token of each round."""
    return bonuses, ()


def path_twice(committed, bonuses, path):
    """Mutant: the path was counted already."""
    return (*committed, *path), path


def stale(committed, bonuses, path):
    """Mutant: a step behind."""
    return committed, path[:-1]


def speculative_distribution(rows, name, tree_of, history):
    """Return the distribution of the first tokens of rounds that verify trees with the production distribution and
    walk.
    """
    found = defaultdict(float)

    def go(tokens, bonuses, weight):
        if len(tokens) >= LENGTH:
            found[tokens[:LENGTH]] += weight
            return
        tree = tree_of(tokens)

        def target(node, path, rng):
            drafted = tuple(int(token) for token in tree.tokens[path])
            known, beyond = history((*PROMPT, *tokens), (*PROMPT, *bonuses), drafted)
            return rng.draw(rows.distribution(name, (*tokens, *drafted), known, beyond))

        for rng in EveryOutcome():
            verdict = walk(tree, lambda node, path, rng=rng: target(node, path, rng))
            committed = [int(tree.tokens[node]) for node in verdict.nodes]
            go((*tokens, *committed, verdict.bonus), (*bonuses, verdict.bonus), weight * rng.weight)

    go((), (), 1.0)
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_the_adjusted_distribution_is_kept_over_rounds(name):
    for seed in range(2):
        rows = Rows(seed)
        wanted = plain(rows, name)
        assert abs(sum(wanted.values()) - 1) < 1e-12
        for kind, tree_of in trees(rows, seed).items():
            off = distance(speculative_distribution(rows, name, tree_of, the_path), wanted)
            assert off < 1e-12, f"{kind}: the distribution is off by {off}"


@pytest.mark.parametrize("history", [committed_only, one_a_round, path_twice, stale])
def test_another_history_is_another_distribution(history):
    seen = {}
    for name in ("repetition", "presence", "frequency", "processor", "bad words"):
        rows = Rows(1)
        wanted = plain(rows, name)
        seen[name] = max(
            distance(speculative_distribution(rows, name, tree_of, history), wanted)
            for tree_of in trees(rows, 1).values()
        )
    blind = {"path_twice": {"repetition", "presence", "processor"}}.get(history.__name__, set())  # once is as often
    assert min(off for name, off in seen.items() if name not in blind) > 0.01, seen


def test_settings_change_the_distribution():
    rows = Rows(1)
    free = plain(rows, "nothing")
    for name in SETTINGS:
        assert distance(plain(rows, name), free) > 0.01, name
