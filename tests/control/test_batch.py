"""Sequences of one batch get budgets by the odds of their own guesses, which bring more than equal budgets."""

import itertools
import math

import numpy as np
import pytest
from simulated import PLAIN, Simulated, Source, best_fixed, flat, linear

from paceline.control.fixed import FixedController
from paceline.control.guard import Guard
from paceline.control.optimal import OptimalController
from paceline.core.request import SamplingParams, View
from paceline.core.round import Load, Round
from paceline.estimate.cost import CostTable
from paceline.estimate.throughput import Clock, admit, best_rate

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
GOOD, POOR = 0.9, 0.1


def controller_of(source, v, *, most=16):
    table = CostTable({rows: PLAIN * v(rows) for rows in ROWS})
    steps = {source.name: source.step * PLAIN} if source.step else {}
    return OptimalController(table, [source.name], most=most, step_seconds=steps)


def mixed(sequences, step):
    """A source that is right for even sequences."""
    return Source("m", flat(GOOD), step, others={i: flat(POOR) for i in range(1, sequences, 2)})


def views_of(lengths, *, token=0):
    return [View(i, np.full(n, token, np.int32), SamplingParams()) for i, n in enumerate(lengths)]


# ---- the arithmetic


@pytest.mark.parametrize("seed", range(12))
def test_the_admitted_guesses_are_the_best_of_all_allocations(seed):
    chance = np.random.default_rng(seed)
    most = 3
    survival = np.cumprod(chance.random((3, most)), axis=1)
    steps_up = chance.random(3 * most) * (chance.random(3 * most) < 0.5)  # zero in some places, large in others
    clock = Clock(3, np.cumsum([1.0, *steps_up]), 0.02, 0.03)
    step = 0.1 * (seed % 2)

    def worth(lengths):
        brought = sum(survival[i, :n].sum() for i, n in enumerate(lengths))
        seconds = clock.forward[sum(lengths)] - clock.forward[0] + step * max(lengths) + clock.extra * any(lengths)
        return brought, seconds

    ways = [worth(lengths) for lengths in itertools.product(range(most + 1), repeat=3)]
    best = max((3 + brought) / (clock.plain + seconds) for brought, seconds in ways)
    assert best_rate(survival, step, clock) == pytest.approx(best, abs=1e-12)
    for rate in (best, 0.7 * best):
        lengths, gain = admit(survival, step, clock, rate)
        assert gain == pytest.approx(max(brought - rate * seconds for brought, seconds in ways), abs=1e-12)
        brought, seconds = worth(lengths)
        assert gain == pytest.approx(brought - rate * seconds, abs=1e-12)
        capped, _ = admit(survival, step, clock, rate, deepest=1)
        assert max(capped) <= 1


def test_nothing_is_admitted_where_nothing_pays():
    dear = Clock(2, np.arange(1.0, 10.0))
    assert admit(np.full(4, 0.5), 0.0, dear, 2.0) == ([0, 0], 0.0)
    assert best_rate(np.full(4, 0.5), 0.0, dear) == 2.0
    assert admit(np.ones((2, 0)), 0.0, Clock(2, np.ones(1)), 1.0) == ([0, 0], 0.0)


# ---- two kinds of sequences


@pytest.mark.parametrize(("v", "sequences", "step"), [
    (linear(0.03), 2, 0.0), (linear(0.03), 4, 0.2), (linear(0.1), 4, 0.0), (linear(0.1), 4, 0.2), (linear(0.1), 8, 0.0),
])  # fmt: skip
def test_budgets_of_their_own_bring_more_than_the_best_equal_ones(v, sequences, step):
    source = mixed(sequences, step)
    engine, controller = Simulated([source], v, noise=0.05), controller_of(source, v)
    engine.play(controller, 100, sequences=sequences)
    engine.counts.clear()
    gained = engine.play(controller, 250, sequences=sequences)
    equal = [Simulated([source], v, seed=1).play(FixedController(n), 250, sequences=sequences) for n in range(9)]
    assert gained > 1.03 * max(equal), (gained, equal)
    drafted = np.mean(engine.counts, axis=0)
    assert drafted[::2].min() > 5 * drafted[1::2].max(), drafted
    assert drafted[::2].min() > 2
    assert "by sequence: m is right " in controller.reason
    assert "would at best add 0." in controller.reason or "no more were asked for" in controller.reason


def test_sequences_never_right_cost_their_neighbours_nothing():
    """One sequence of four has right guesses: it drafts as deep, and gains as much, as if the others had no drafter."""
    v = linear(0.05)
    source = Source("m", flat(0.9), 0.1, others={i: flat(0.0) for i in (1, 2, 3)})
    engine, controller = Simulated([source], v), controller_of(source, v)
    engine.play(controller, 100, sequences=4)
    engine.counts.clear()
    gained = engine.play(controller, 300, sequences=4)
    drafted = np.mean(engine.counts, axis=0)
    assert drafted[1:].max() < 0.3, drafted

    def formula(n):
        brought = 4 + sum(0.9**k for k in range(1, n + 1))
        return brought / 4 * (v(4) + 0.01) / (v(4 + n) + n * source.step + 0.01)

    best = max(range(17), key=formula)
    assert drafted[0] == pytest.approx(best, abs=2), (best, drafted)
    assert gained > 0.97 * formula(best), (gained, formula(best))


def test_only_sequences_that_draft_pay_for_steps():
    v = linear(0.02)
    source = Source("m", flat(0.9), 0.1, others={i: flat(0.0) for i in (1, 2, 3)})
    engine, controller = Simulated([source], v), controller_of(source, v)
    engine.play(controller, 150, sequences=4)
    budgets = controller.budgets(views_of([200] * 4), Load(4, 0))
    rate = controller._decision.rate
    assert budgets[0].step["m"] == pytest.approx(rate * 0.1 * PLAIN, rel=0.1), "the whole price, unshared"
    for other in budgets[1:]:
        assert other.nodes == 0 or other.step["m"] == math.inf or other.depth <= 1
    row = budgets[0].price[2] - budgets[0].price[1]
    assert row == pytest.approx(rate * 0.02 * PLAIN, rel=0.05), "its own row, not its neighbours'"


def test_rows_taken_by_others_are_dear_where_forwards_are():
    """Rows are free up to eight: a sequence behind others pays the price of the rows that are left."""

    def v(rows):
        return 1 + 0.01 * min(rows, 8) + 0.3 * max(rows - 8, 0)

    source = Source("m", flat(0.95), others={1: flat(0.95)})
    engine, controller = Simulated([source], v), controller_of(source, v)
    engine.play(controller, 200, sequences=2)
    alone = controller_of(source, v)
    Simulated([source], v).play(alone, 200)
    (single,) = alone.budgets(views_of([300]), Load(1, 0))
    both = controller.budgets(views_of([300, 300]), Load(2, 0))
    assert min(budget.price[6] - budget.price[1] for budget in both) > 3 * (single.price[6] - single.price[1])


def test_a_change_in_the_acceptance_of_sequences_is_noticed():
    alpha = [0.9, 0.0]
    source = Source("m", lambda d: alpha[0], others={1: lambda d: alpha[1]})
    engine, controller = Simulated([source], linear(0.05)), controller_of(source, linear(0.05))
    engine.play(controller, 300, sequences=2)
    alpha.reverse()
    engine.play(controller, 300, sequences=2)
    engine.counts.clear()
    engine.play(controller, 200, sequences=2)
    drafted = np.mean(engine.counts, axis=0)
    assert drafted[1] > 3 > 1 > drafted[0], drafted


def test_alike_sequences_lose_nothing_by_being_told_apart():
    for alpha in (0.0, 0.6, 0.9):
        source = Source("m", flat(alpha), 0.05)
        engine, controller = Simulated([source], linear(0.05), noise=0.05), controller_of(source, linear(0.05))
        engine.play(controller, 150, sequences=4)
        gained, best = engine.play(controller, 300, sequences=4), best_fixed(source, linear(0.05), sequences=4)
        assert gained > 0.93 * best, (alpha, gained, best)


def test_a_budget_does_not_look_at_tokens():
    said = []
    for token in (1, 7):
        source = mixed(4, 0.1)
        engine, controller = Simulated([source], linear(0.05)), controller_of(source, linear(0.05))
        engine.play(controller, 100, sequences=4)
        budgets = controller.budgets(views_of([150] * 4, token=token), Load(4, 0))
        said.append([(b.nodes, b.depth, b.step) for b in budgets])
    assert said[0] == said[1]


def test_a_sequence_keeps_its_estimates_when_the_others_end():
    source = Source("m", flat(0.9), 0.1, others={1: flat(0.0)})
    engine, controller = Simulated([source], linear(0.05)), controller_of(source, linear(0.05))
    engine.play(controller, 150, sequences=2)
    (budget,) = controller.budgets([View(1, np.zeros(200, np.int32), SamplingParams())], Load(1, 0))
    assert budget.depth <= 1, (budget, controller.reason)


def test_sequences_that_come_and_go_are_answered_in_order():
    source = mixed(8, 0.0)
    controller = controller_of(source, linear(0.05))
    for names in ([0, 1], [1, 0], [5, 0, 1], [7], [], [3, 2, 1, 0]):
        views = [View(i, np.zeros(9, np.int32), SamplingParams()) for i in names]
        budgets = controller.budgets(views, Load(len(names), 0))
        assert len(budgets) == len(names)
        for view in views:
            controller.observe(view.id, Round((), (), {}, 1, False, len(names), {}, 0.0, PLAIN, 0.0))


@pytest.mark.parametrize("sequences", [1, 4])
def test_wrong_guesses_beside_prompts_that_are_read_stop(sequences, monkeypatch):
    """Rounds that also read a prompt are no reference; their guesses draw on the purse by the table's word."""

    def guessed():
        sim = Simulated([Source("copy", flat(0.05))], linear(1.0))
        controller = controller_of(sim.sources[0], linear(1.0))
        sim.play(controller, 40, sequences=sequences)
        before, sim.beside = len(sim.counts), 12
        sim.play(controller, 300, sequences=sequences)
        return sum(map(sum, sim.counts[before:]))

    bounded = guessed()
    monkeypatch.setattr(Guard, "add_beside", lambda *_: None)
    assert 4 * bounded < guessed()
