"""What was put to the test in a round, by source and depth."""

import numpy as np

from paceline.core.round import Round
from paceline.core.tree import Draft, TokenTree, Verdict
from paceline.engine.metrics import SpeculationMetrics, outcomes


def told(parents, sources, nodes):
    tree = TokenTree(np.arange(len(parents), dtype=np.int32), np.array(parents, np.int32))
    draft = Draft(tree, np.ones(len(parents), np.float32), np.array(sources, np.int8))
    return outcomes(draft, Verdict(tuple(nodes), 0), ("a", "b"))


def test_a_chain_is_tested_down_to_its_first_miss():
    assert told([-1, 0, 1, 2, 3], [0] * 5, [1, 2]) == {"a": ([1, 1, 1], [1, 1, 0])}
    assert told([-1, 0, 1], [0] * 3, [1, 2]) == {"a": ([1, 1, 0], [1, 1, 0])}, "nothing was guessed after the last"
    assert told([-1, 0], [0] * 2, []) == {"a": ([1], [0])}
    assert told([-1], [0], []) == {}


def test_in_a_tree_only_guesses_below_what_was_kept_count():
    # a: 1 and 3 below it; b: 2, its sibling, and 4 below that.
    parents, sources = [-1, 0, 0, 1, 2], [0, 0, 1, 0, 1]
    assert told(parents, sources, [1]) == {"a": ([1, 1], [1, 0]), "b": ([1, 0], [0, 0])}
    assert told(parents, sources, [2, 4]) == {"a": ([1, 0, 0], [0, 0, 0]), "b": ([1, 1, 0], [1, 1, 0])}


def test_a_tally_keeps_the_time_of_forwards_of_one_row():
    metrics, none = SpeculationMetrics(), np.zeros(0, np.int32)
    for rows, seconds in ((1, 0.25), (3, 0.5), (1, 0.125)):
        metrics.add_seconds(Round(none, none, {}, 1, False, rows, {}, 0.0, seconds, 0.0))
    assert metrics.single_seconds == [0.25, 0.125]
    assert metrics.verify_seconds == 0.875
