"""The optimal controller against the best fixed length, in a simulated engine: never slower, seldom far from best."""

import math

import numpy as np
import pytest
from simulated import PLAIN, Simulated, Source, best_fixed, cliff, flat, linear
from sweep import sweep

from paceline.control.base import OFF
from paceline.control.fixed import FixedController
from paceline.control.optimal import LOOKS, OptimalController
from paceline.core.request import SamplingParams, View
from paceline.core.round import Load, Round, Spent
from paceline.estimate.cost import CostTable
from paceline.estimate.throughput import Clock, best_rate, gains

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def controller_of(sources, v, *, most=16, calibrated=True):
    steps = {source.name: source.step * PLAIN for source in sources if source.step and calibrated}
    table = CostTable({rows: PLAIN * v(rows) for rows in ROWS})
    weighing = [source.name for source in sources if source.heeds]
    return OptimalController(
        table, [source.name for source in sources], most=most, step_seconds=steps, weighing=weighing
    )


# ---- the arithmetic

TABLE = {  # gamma* and speed-up by alpha and c, v = 1: the performance model's own figures
    (0.5, 0.05): (3, 1.63), (0.6, 0.1): (3, 1.67), (0.7, 0.02): (8, 2.76), (0.8, 0.1): (6, 2.47),
    (0.8, 0.3): (3, 1.55), (0.85, 0.2): (5, 2.08), (0.9, 0.15): (8, 2.78), (0.95, 0.02): (31, 9.95),
    (0.95, 0.5): (5, 1.51),
}  # fmt: skip


@pytest.mark.parametrize(("alpha", "c"), TABLE)
def test_the_published_lengths_and_speedups_come_out(alpha, c):
    clock = Clock(1, np.ones(41))
    survival = np.power(alpha, np.arange(1, 41))
    rate = best_rate(survival, c, clock)
    length = int(gains(survival, c, clock, rate).argmax())
    assert (length, round(rate, 2)) == (TABLE[alpha, c][0], pytest.approx(TABLE[alpha, c][1], abs=0.011))


# ---- against the best fixed length


@pytest.mark.parametrize("v", [linear(0.03), linear(0.2), cliff], ids=["flat", "steep", "cliff"])
@pytest.mark.parametrize("c", [0.0, 0.2])
@pytest.mark.parametrize("alpha", sweep((0.0, 0.6, 0.9), fast=(0.0, 0.9)))
def test_close_to_the_best_fixed_length(v, c, alpha):
    source = Source("m", flat(alpha), c)
    engine = Simulated([source], v, noise=0.05, seed=3)
    controller = controller_of([source], v)
    engine.play(controller, 300)
    gained, best = engine.play(controller, 800), best_fixed(source, v)
    assert gained > 0.9 * best, (gained, best, controller.reason)
    assert gained > 0.97


@pytest.mark.parametrize(("c", "v"), [(0.34, linear(0.1)), (0.05, linear(0.1)), (0.34, cliff), (0.0, linear(0.1))])
def test_a_draft_that_is_never_right_costs_a_hundredth(c, v):
    """The loss stays within 2 % from the first token on."""
    for seed in range(2):
        source = Source("stranger", flat(0.0), c)
        controller = controller_of([source], v, most=8)
        gained = Simulated([source], v, noise=0.05, seed=seed).play(controller, 300)
        assert gained > 0.98, (gained, controller.reason)
        assert controller.reason.startswith(OFF), controller.reason
    fixed = Simulated([source], v).play(FixedController(8), 300)
    assert fixed < 0.75, "the same draft without control"


def test_probing_stays_below_a_hundredth_of_the_time():
    source = Source("stranger", flat(0.0), 0.3)
    engine = Simulated([source], linear(0.1))
    controller = controller_of([source], linear(0.1))
    engine.play(controller, 300)
    engine.depths.clear()
    gained = engine.play(controller, 3000)
    probes = sum(depth > 0 for depth in engine.depths)
    assert 2 <= probes <= 0.01 * 3000 / 0.4, probes
    assert gained > 0.99


def test_over_a_cliff_nothing_or_much_is_drafted():
    for alpha, is_much in ((0.95, True), (0.3, False)):
        source = Source("m", flat(alpha))
        engine = Simulated([source], cliff)
        controller = controller_of([source], cliff)
        engine.play(controller, 200)
        engine.depths.clear()
        engine.play(controller, 300)
        assert np.median(engine.depths) >= 7 if is_much else np.mean(np.array(engine.depths) > 0) < 0.1


def test_free_guesses_that_are_there_now_and_then_are_taken():
    source = Source("ngram", flat(0.8), there=0.3, heeds=True)
    engine = Simulated([source], linear(0.1), noise=0.05)
    controller = controller_of([source], linear(0.1))
    engine.play(controller, 200)
    gained = engine.play(controller, 800)
    assert gained > 1.3, (gained, controller.reason)


def test_of_two_sources_the_one_that_does_not_pay_is_left_out():
    free, stranger = Source("ngram", flat(0.7), there=0.5, heeds=True), Source("stranger", flat(0.05), 0.3, heeds=True)
    engine = Simulated([free, stranger], linear(0.05), noise=0.05)
    controller = controller_of([free, stranger], linear(0.05))
    engine.play(controller, 300)
    before = engine.ran["stranger"], engine.rounds
    assert engine.play(controller, 600) > 1.2
    assert engine.ran["stranger"] - before[0] <= 0.03 * (engine.rounds - before[1])
    assert "ngram is right" in controller.reason


# ---- drift


def test_after_a_fast_text_a_slower_source_is_used_at_once():
    """Copies raise the rate above what the model earns; once they end, the model must draft at the lower rate."""
    for seed in range(3):
        copy, model = Source("copy", flat(0.98), heeds=True), Source("model", flat(0.85), 0.25, heeds=True)
        engine = Simulated([copy, model], linear(0.05), noise=0.05, seed=seed)
        controller = controller_of([copy, model], linear(0.05))
        assert engine.play(controller, 400) > 5
        copy.there = 0.0
        assert engine.play(controller, 60) > 1.3, controller.reason


def test_a_round_that_lost_much_stops_no_source_that_pays():
    source = Source("m", flat(0.85), 0.2)
    engine, controller = Simulated([source], linear(0.05)), controller_of([source], linear(0.05))
    engine.play(controller, 300)
    controller._gates["m"].settle(0, -10.0)
    engine.depths.clear()
    assert engine.play(controller, 300) > 0.95 * best_fixed(source, linear(0.05))
    assert engine.depths.count(0) <= 2, "a reference"


def test_a_silent_source_is_asked_again():
    """At once for another text, after a while for the rest of a long one."""
    for sequence, tokens in ((0, 700), (1, 100)):
        copy = Source("copy", flat(0.9), there=0.0)
        engine = Simulated([copy], linear(0.1))
        controller = controller_of([copy], linear(0.1))
        engine.play(controller, 60)
        copy.there = 1.0
        engine.play(controller, tokens, rounds_from=sequence)
        assert engine.ran["copy"] > 10, (sequence, engine.ran["copy"], controller.reason)


def test_a_draft_that_becomes_good_is_taken_up_again():
    alpha = [0.0]
    source = Source("m", lambda depth: alpha[0], 0.2)
    engine = Simulated([source], linear(0.05), noise=0.05)
    controller = controller_of([source], linear(0.05))
    engine.play(controller, 600)
    assert controller.reason.startswith(OFF)
    alpha[0] = 0.9
    engine.play(controller, 400)
    assert engine.play(controller, 400) > 0.9 * best_fixed(source, linear(0.05)), controller.reason
    alpha[0] = 0.0
    engine.play(controller, 60)
    assert engine.play(controller, 400) > 0.97


def test_verifying_that_becomes_dear_is_noticed():
    slope = [0.02]
    source = Source("m", flat(0.6), 0.1)
    engine = Simulated([source], lambda rows: 1 + slope[0] * (rows - 1), noise=0.05)
    controller = controller_of([source], linear(0.02))
    assert engine.play(controller, 600) > 1.3
    slope[0] = 1.0  # nothing can pay
    engine.play(controller, 300)
    assert engine.play(controller, 600) > 0.96, controller.reason


def test_a_machine_that_becomes_slow_as_a_whole_changes_nothing():
    factor = [1.0]
    source = Source("m", flat(0.8), 0.1)
    engine = Simulated([source], linear(0.05), noise=0.05)
    engine.time = lambda plain, real=engine.time: factor[0] * real(plain)
    controller = controller_of([source], linear(0.05))
    engine.play(controller, 300)
    factor[0] = 3.0
    engine.depths.clear()
    engine.play(controller, 500)
    assert np.mean(engine.depths) > 3


def test_drafting_time_that_no_source_reports_ends_drafting():
    source = Source("m", flat(0.5))
    engine = Simulated([source], linear(0.05), hidden=1.5)
    controller = controller_of([source], linear(0.05))
    engine.play(controller, 300)
    assert engine.play(controller, 1000) > 0.9, controller.reason


def test_a_source_that_was_not_calibrated_is_found_to_take_time():
    source = Source("m", flat(0.1), 0.4)
    engine = Simulated([source], linear(0.05))
    controller = controller_of([source], linear(0.05), calibrated=False)
    engine.play(controller, 100)
    assert engine.play(controller, 300) > 0.98
    assert "a step costs 0.40" in controller.reason


# ---- several sequences


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_a_batch_shares_the_price_of_its_rows(alpha):
    """Rows are free up to eight and dear beyond: depths that pay for one sequence do not for eight."""

    def v(rows):
        return 1 + 0.02 * min(rows, 8) + 0.15 * max(rows - 8, 0)

    source = Source("m", flat(alpha), 0.05)
    for sequences in (1, 4, 8):
        engine = Simulated([source], v)
        controller = controller_of([source], v)
        engine.play(controller, 150, sequences=sequences)
        gained, best = engine.play(controller, 250, sequences=sequences), best_fixed(source, v, sequences=sequences)
        assert gained > 0.88 * best, (sequences, gained, best, controller.reason)
        assert gained > 0.97


def test_sequences_share_the_price_of_a_step():
    source = Source("m", flat(0.8), 0.2)
    prices = []
    for sequences in (1, 4):
        engine, controller = Simulated([source], lambda rows: 1.0), controller_of([source], lambda rows: 1.0)
        engine.play(controller, 200, sequences=sequences)
        views = [View(i, np.zeros(220, np.int32), SamplingParams()) for i in range(sequences)]
        prices.append(controller.budgets(views, Load(sequences, 0))[0].step["m"])
    assert prices[1] / prices[0] == pytest.approx(1.0, rel=0.3), "rate four times as high, shared by four"


# ---- reasons and hostile rounds


def test_a_source_that_weighs_goes_deeper_where_it_is_sure():
    """The source is sure in two rounds of five: a short length is best on average, eight guesses in those rounds."""

    def play(weighing):
        controller = OptimalController(
            CostTable({rows: PLAIN * linear(0.1)(rows) for rows in ROWS}),
            ["m"],
            most=8,
            step_seconds={"m": 0.25 * PLAIN},
            weighing=weighing,
        )
        chance, depths, texts = np.random.default_rng(5), [], np.zeros(20, np.int32)
        for _ in range(300):
            budget = controller.budgets([View(0, texts, SamplingParams(), 20)], Load(1, 0))[0]
            is_sure = chance.random() < 0.4
            depth = (min(budget.depth, 8) if is_sure else min(budget.depth, 1)) if budget.nodes else 0
            kept = depth if is_sure else 0
            depths.append(depth)
            step = PLAIN * 0.25
            controller.observe(
                0,
                Round(
                    (1,) * depth,
                    (1,) * kept + (0,) * (depth - kept),
                    {"m": (depth, kept)},
                    kept + 1,
                    False,
                    1 + depth,
                    {"m": Spent(depth, step * depth)} if depth else {},
                    step * depth,
                    PLAIN * linear(0.1)(1 + depth),
                    0.0,
                    {"m": ((1,) * depth, (1,) * kept + (0,) * (depth - kept))},
                ),
            )
        return depths[200:], controller.reason

    free, reason = play(["m"])
    assert max(free) == 8, (free, reason)
    assert "about" in reason
    bound, reason = play([])
    assert "about" not in reason, reason
    assert max(bound) < 8, "or the average says as much"
    assert np.mean(free) > np.mean(bound)


def test_the_reason_carries_the_numbers():
    source = Source("qwen", flat(0.7), 0.1)
    engine = Simulated([source], linear(0.1))
    controller = controller_of([source], linear(0.1))
    assert controller.reason == ""
    engine.play(controller, 300)
    for part in ("tokens a round: qwen is right ", "would add 0.", "and cost 0."):
        assert part in controller.reason
    stranger = Source("qwen", flat(0.0), 0.34)
    engine, controller = Simulated([stranger], linear(0.1)), controller_of([stranger], linear(0.1))
    engine.play(controller, 300)
    for part in (OFF, "qwen is right ", "a step costs 0.34 of a plain token", "break-even 4"):
        assert part in controller.reason, controller.reason


def hostile(seconds, *, censored=False, rows=3, spent=math.nan):
    one, zero = (1, 1), (0, 0)
    return Round(
        one, zero, {}, 1, censored, rows, {"m": Spent(2, spent)}, *seconds, {"m": (one, zero), "else": (one, one)}
    )


@pytest.mark.parametrize(
    "seconds", [(math.nan,) * 3, (0.0, 0.0, 0.0), (math.inf, 1.0, 0.0), (-1.0, 0.02, 0.0), (1e9, 1e9, 1e9)]
)
def test_hostile_rounds_poison_nothing(seconds):
    source = Source("m", flat(0.8), 0.1)
    engine, controller = Simulated([source], linear(0.05)), controller_of([source], linear(0.05))
    engine.play(controller, 300)
    view = View(0, np.zeros(9, np.int32), SamplingParams())
    for i in range(2 if seconds[0] == 1e9 else 20):  # a plausible value is believed if it lasts
        controller.budgets([view], Load(1, 0))
        controller.observe(0, hostile(seconds, censored=i % 2 == 0, spent=seconds[0]))
    (budget,) = controller.budgets([view], Load(1, 0))
    assert budget.nodes == 0 or np.isfinite(budget.price).all()
    engine.play(controller, 200)
    assert engine.play(controller, 300) > 0.85 * best_fixed(source, linear(0.05)), controller.reason


def test_tokens_cut_by_a_stop_do_not_count_against_sources():
    source = Source("m", flat(0.9), 0.1)
    engine, controller = Simulated([source], linear(0.05)), controller_of([source], linear(0.05))
    engine.play(controller, 200)
    before = controller.reason
    for _ in range(30):
        controller.budgets([View(0, np.zeros(9, np.int32), SamplingParams())], Load(1, 0))
        controller.observe(0, hostile((0.004, 0.022, 0.001), censored=True, spent=0.004))
    rate = [float(text.split(" %")[0].split()[-1]) for text in (before, controller.reason)]
    assert rate[1] >= rate[0] - 1


def test_empty_batches_and_missing_sources_get_empty_budgets():
    table = CostTable({1: 0.02})
    view = View(0, np.zeros(9, np.int32), SamplingParams())
    assert OptimalController(table, ["m"], most=4).budgets([], Load(0, 0)) == []
    for controller in (OptimalController(table, [], most=4), OptimalController(table, ["m"], most=0)):
        assert controller.budgets([view, view], Load(2, 0))[1].nodes == 0


def test_a_renewed_table_applies_at_once_and_source_records_stay():
    source = Source("m", flat(0.8))
    controller = OptimalController(
        CostTable({rows: PLAIN * (1 + 0.01 * rows) for rows in (1, 2, 4, 8, 16)}), ["m"], most=8
    )
    Simulated([source], linear(0.01)).play(controller, 400)
    views, load = [View(0, np.zeros(20, np.int32), SamplingParams(), 20)], Load(1, 0)
    assert controller.budgets(views, load)[0].depth > 2
    tried = next(iter(controller.experience.values())).tried
    controller.renew(CostTable({rows: PLAIN * (1 + 2.0 * (rows - 1)) for rows in (1, 2, 4, 8, 16)}))
    assert controller.budgets(views, load)[0].nodes == 0
    assert controller.reason.startswith("drafting off: m is right")
    assert next(iter(controller.experience.values())).tried == tried


# ---- forwards timed between rounds


def test_contradicted_rows_are_timed_at_once_and_the_purse_pays():
    truth = linear(0.05)
    source = Source("m", flat(0.9))
    controller = controller_of([source], lambda rows: truth(rows) * (1 if rows == 1 else 30 if rows > 8 else 0.1))
    engine, timed = Simulated([source], truth), []
    for _ in range(40):
        engine.play(controller, 4)
        if rows := controller.wanted_rows():
            before = controller.guard.purse
            controller.timed(rows, PLAIN * truth(rows))
            assert controller.guard.purse < before
            timed.append(rows)
    assert timed, "its entries contradict each other"
    assert len(timed) <= LOOKS
    for rows in {rows for rows in timed if timed.count(rows) > 1}:
        assert controller.cost.at(rows) == pytest.approx(PLAIN * truth(rows), rel=0.1)


def test_nothing_is_timed_while_rounds_agree_with_the_table():
    for factor in (1.0, 7.0):  # a machine that is slower as a whole is no contradiction
        source = Source("m", flat(0.9))
        engine = Simulated([source], linear(0.05), noise=0.05)
        controller = controller_of([source], lambda rows, f=factor: f * linear(0.05)(rows))
        for _ in range(20):
            engine.play(controller, 10)
            assert not controller.wanted_rows()
