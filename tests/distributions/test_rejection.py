"""Verifiers that toss coins keep the distribution: every outcome of draft and verdict, over several rounds, to
1e-12.
"""

import pytest
from round_tools import World, drawn, error, greedy, likeliest, mixed

from paceline.core.request import SamplingParams
from paceline.verify.block import BlockVerifier
from paceline.verify.tree import RejectionVerifier

RULES = {"rejection": RejectionVerifier, "block": BlockVerifier}  # tree and greedy_tree only want other drafts


DRAFTS = {
    "chain": drawn(1, 1, 1),
    "two siblings": drawn(2),
    "tree": drawn(2, 1),
    "the whole vocabulary drawn": drawn(3),
    "likeliest sibling and one drawn": greedy(2, 2),
    "two sure siblings and one drawn": greedy(3),
    "likeliest chain": likeliest(3),
    "the target's own likeliest": likeliest(3, "p"),
    "nothing": drawn(),
    "mixed": mixed(1, 2),
    "mixed otherwise": mixed(4, 1),
}
WORLDS = {
    "flat": {"sharpness": 0.3},
    "usual": {},
    "sharp": {"sharpness": 5.0, "alike": 0.2},
    "the drafter is the target": {"alike": 1.0},
    "strangers": {"alike": 0.0, "zeros": 0.8},
    "filtered": {"params": SamplingParams(0.7, top_k=2, top_p=0.9), "alike": 0.0},
}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("rule", RULES)
def test_the_distribution_of_the_first_tokens_is_the_targets(rule, draft):
    """Each draft in two of the worlds; all of them in the slow test below."""
    first = list(DRAFTS).index(draft)
    for i in (first, first + 1 + list(RULES).index(rule)):
        name = list(WORLDS)[i % len(WORLDS)]
        off = error(World(3, i, **WORLDS[name]), RULES[rule], DRAFTS[draft])
        assert off < 1e-12, f"{name}: the distribution is off by {off}"


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rule", RULES)
def test_the_distribution_is_the_targets_in_every_world(rule, world):
    for seed in range(3):
        for name, drafter in {**DRAFTS, "mixed and deep": mixed(7, 1, 1), "tall": greedy(3, 1)}.items():
            off = error(World(3 + seed % 2, 50 + seed, **WORLDS[world]), RULES[rule], drafter)
            assert off < 1e-12, f"{name}: the distribution is off by {off}"
