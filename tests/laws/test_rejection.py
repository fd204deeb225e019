"""Verifiers that toss coins keep the target's law: every outcome of draft and verdict, over several rounds, to 1e-12."""

import numpy as np
import pytest
from round_tools import World, drawn, error, greedy, likeliest, mixed

from paceline.types import SamplingParams
from paceline.verify.block import BlockVerifier
from paceline.verify.lossy import LenientVerifier
from paceline.verify.tree import RejectionVerifier

RULES = {
    "rejection": RejectionVerifier,  # tree and greedy_tree are the same rule for other drafts
    "block": BlockVerifier,
    "lenient:1": lambda chance: LenientVerifier(1.0, chance),
}


DRAFTS = {
    "chain": drawn(1, 1, 1),
    "two siblings": drawn(2),
    "tree": drawn(2, 1),
    "the whole vocabulary drawn": drawn(3),
    "likeliest sibling and one drawn": greedy(2, 2),
    "two sure siblings and one drawn": greedy(3, 1),
    "likeliest chain": likeliest(3),
    "the target's own likeliest": likeliest(3, "p"),
    "nothing": drawn(),
    "mixed": mixed(2, 1),
    "mixed otherwise": mixed(2, 2),
}
WORLDS = {
    "flat": World(3, 1, sharpness=0.3),
    "usual": World(3, 2),
    "sharp": World(3, 3, sharpness=5.0, alike=0.2),
    "drafter is the target": World(3, 4, alike=1.0),
    "strangers": World(3, 5, alike=0.0, zeros=0.8),
    "filtered": World(3, 6, params=SamplingParams(0.7, top_k=2, top_p=0.9), alike=0.0),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rule", RULES)
def test_the_law_of_the_first_tokens_is_the_targets(rule, world):
    for name, drafter in DRAFTS.items():
        off = error(WORLDS[world], RULES[rule], drafter)
        assert off < 1e-12, f"{name}: the law is off by {off}"
