"""The performance model against hand-worked rounds, published tables and brute force."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from paceline.estimate.throughput import Clock, best_rate, gains
from paceline.estimate.throughput import break_even as controllers_break_even
from paceline.plan.performance import (
    Costs,
    best_chain,
    best_tree,
    break_even,
    ceiling,
    chain,
    expected_tokens,
    measured_curve,
    naive_speedup,
    rank_acceptance,
)
from paceline.plan.shapes import SHAPES


def flat(rows):
    return 1.0


# Best length and speed-up for v = 1 and no overhead, by acceptance and cost of a draft step.
TABLE = {
    (0.5, 0.02): (4, 1.79), (0.5, 0.1): (2, 1.46), (0.5, 0.3): (1, 1.15), (0.6, 0.05): (4, 1.92),
    (0.7, 0.1): (4, 1.98), (0.7, 0.2): (3, 1.58), (0.8, 0.02): (11, 3.82), (0.8, 0.1): (6, 2.47),
    (0.8, 0.3): (3, 1.55), (0.85, 0.1): (7, 2.85), (0.85, 0.3): (4, 1.69), (0.9, 0.15): (8, 2.78),
    (0.9, 0.5): (3, 1.38), (0.95, 0.02): (31, 9.95), (0.95, 0.3): (8, 2.18),
}  # fmt: skip


@pytest.mark.parametrize(("acceptance", "step"), TABLE)
def test_best_lengths_are_those_of_the_table(acceptance, step):
    best = best_chain(acceptance, Costs(step, flat))
    assert (best.nodes, round(best.speedup, 2)) == TABLE[acceptance, step]


def test_a_chain_is_a_truncated_geometric():
    assert expected_tokens(0.85, 4) == pytest.approx((1 - 0.85**5) / 0.15)
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.0, 4) == 1
    assert expected_tokens([0.9, 0.5], 4) == pytest.approx(1 + 0.9 + 0.45 + 0.225 + 0.1125)


def test_a_worked_round_comes_out():
    """Draft 10 ms, target 50 ms: a round of four drafts takes 90 ms, one of two 70 ms."""
    costs = Costs(0.2, flat)
    assert chain(0.5, 4, costs).time * 50 == pytest.approx(90)
    assert chain(0.5, 2, costs).time * 50 == pytest.approx(70)


def test_the_quoted_formula_is_too_kind():
    assert naive_speedup(0.85, 4, 0.1) == pytest.approx(3.09, abs=0.01)
    assert chain(0.85, 4, Costs(0.1, flat)).speedup == pytest.approx(2.65, abs=0.01)
    assert chain(0.85, 4, Costs(0.3, flat)).speedup == pytest.approx(1.69, abs=0.01)


@pytest.mark.parametrize("step", [0.05, 0.3, 0.8])
def test_break_even_is_a_steps_cost_when_verifying_is_free(step):
    assert break_even(Costs(step, flat)) == pytest.approx(step, abs=1e-6)


def test_break_even_counts_verification_and_overhead():
    """One guess: a > c + v(2) - 1 + o."""
    dear = Costs(0.2, lambda rows: 1 + 10 * (rows - 1) * (rows > 2) + 0.1 * (rows > 1), 0.05)
    assert break_even(dear) == pytest.approx(0.35, abs=1e-6)
    assert break_even(Costs(1.5, flat)) is None
    assert best_chain(0.99, Costs(1.5, flat)).nodes == 0


def test_no_speedup_passes_the_ceiling():
    for acceptance, step in itertools.product((0.1, 0.5, 0.9), (0.0, 0.1)):
        assert best_chain(acceptance, Costs(step, flat)).speedup <= ceiling(acceptance)
    assert ceiling(1.0) == float("inf")


def shapes(nodes):
    """Every tree of `nodes` nodes below the root, as parents; a node's children have distinct ranks in order."""
    for parents in itertools.product(*(range(i + 1) for i in range(nodes))):
        yield (-1, *parents)


@pytest.mark.parametrize("first", [0.3, 0.6, 0.85])
def test_the_best_tree_is_the_best_of_all(first):
    ranks = rank_acceptance(first, 3)
    for step, slope in ((0.02, 0.05), (0.1, 0.02), (0.0, 0.2)):
        costs = Costs(step, lambda rows, slope=slope: 1 + slope * (rows - 1))
        best = 1.0
        for count in range(1, 6):
            for parents in shapes(count):
                children, value, depth = [0] * (count + 1), [1.0], [0]
                for node in range(1, count + 1):
                    parent = parents[node]
                    rank = children[parent]
                    children[parent] += 1
                    value.append(value[parent] * (ranks[rank] if rank < 3 else 0))
                    depth.append(depth[parent] + 1)
                best = max(best, sum(value) / (max(depth) * step + costs.curve(count + 1)))
        assert best_tree(ranks, costs, nodes=5).speedup == pytest.approx(best)


def test_ranks_are_disjoint_events():
    for first in (0.0, 0.5, 1.0):
        odds = rank_acceptance(first, 5)
        assert sum(odds) <= 1
        assert list(odds[1:]) == sorted(odds[1:], reverse=True)


def test_a_measured_curve_goes_through_its_points_and_on():
    curve = measured_curve([(8, 3.0), (1, 1.0), (4, 1.2)])
    assert [curve(1), curve(4), curve(8)] == [1.0, 1.2, 3.0]
    assert curve(6) == pytest.approx(2.1)
    assert curve(12) == pytest.approx(4.8)
    assert measured_curve([(1, 2.0)])(9) == 1.0
    with pytest.raises(ValueError, match="one token"):
        measured_curve([(2, 1.0)])


def test_a_cliff_makes_short_drafts_pointless():
    """t(2) costs as much as t(9): either nothing is drafted or at least seven."""
    cliff = Costs(0.0, lambda rows: 1.0 if rows == 1 else 2.6 + max(rows - 9, 0) * 0.5)
    assert best_chain(0.5, cliff).nodes == 0
    assert best_chain(0.85, cliff).nodes >= 7


@pytest.mark.parametrize("overhead", [0.0, 0.15])
@pytest.mark.parametrize("step", [0.0, 0.05, 0.22, 0.4])
@pytest.mark.parametrize("v", [flat, lambda rows: 1 + 0.08 * (rows - 1), lambda rows: 1.0 if rows < 5 else 0.4 * rows])
def test_a_plan_promises_what_the_controller_reckons_with(v, step, overhead):
    """Two models, one for planning without a machine, one for batches while it runs: same lengths, same speed."""
    forward = np.array([v(rows) for rows in range(1, 17)])
    clock, costs = Clock(1, forward, extra=overhead), Costs(step, v, overhead)
    for acceptance in (0.0, 0.3, 0.6, 0.85, 0.97, 1.0):
        survival = np.power(acceptance, np.arange(1, 16))
        best = best_chain(acceptance, costs, 15)
        assert best_rate(survival, step, clock) == pytest.approx(best.speedup)
        gain = gains(survival, step, clock, best.speedup)
        assert gain[best.nodes] == pytest.approx(gain.max(), abs=1e-9)
    least = break_even(costs, 15)
    assert controllers_break_even(step, clock, 1.0) == pytest.approx(2.0 if least is None else least, abs=1e-5)


def test_the_error_pages_numbers_are_the_models():
    """docs/concepts/common-errors.md quotes them."""
    page = (Path(__file__).parents[2] / "docs/concepts/common-errors.md").read_text()
    round_ = chain(0.85, 4, Costs(0.1, flat))
    copies = [best_chain(0.95, Costs(step, flat)).speedup for step in (0.3, 0.4)]
    context = SHAPES["llama-2-7b"].kv_bytes(8192) / 2**30
    quoted = [
        f"E = {round_.tokens:.2f} and the speed-up {round_.speedup:.2f}×",
        "gives {:.2f}× to {:.2f}×".format(*copies),
        f"{2560 / 60:.1f} minutes",
        f"{8448 / 3:.0f} s and {8448 / 10:.0f} s",
        f"{context:.0f} GiB at 8K",
        f"{SHAPES['tinyllama-1.1b'].parameters * 2 / 1e9:.1f} GB at 16 bits",
    ]
    assert [text for text in quoted if text not in page] == []
