"""The baseline controllers follow their rules."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import Simulated, Source, flat, linear

from paceline.control.fixed import FixedController
from paceline.control.optimal import OptimalController
from paceline.core.request import SamplingParams, View
from paceline.core.round import Floor, Load, Round
from paceline.estimate.cost import CostTable
from paceline.lab.confidence import HIGHEST, LEAST, ConfidenceController
from paceline.lab.ema import EmaController
from paceline.lab.schedule import ScheduleController


def view(id=0, position=0):
    return View(id, np.zeros(10 + position, np.int32), SamplingParams(), 10)


def round_of(drafted, kept, *, censored=False):
    accepted = tuple(int(depth < kept) for depth in range(drafted))
    return Round((1,) * drafted, accepted, {}, kept + 1, censored, drafted + 1, {}, 0.0, 0.02, 0.0)


def test_ema_goes_up_over_eight_tenths_and_down_under_six():
    controller = EmaController(8)
    for kept, wanted in ((4, 8), (0, 1)):
        for _ in range(60):
            (budget,) = controller.budgets([view()], Load(1, 0))
            controller.observe(0, round_of(budget.nodes, min(kept * 9, budget.nodes)))
        assert controller.budgets([view()], Load(1, 0))[0].nodes == wanted
    (before,) = controller.budgets([view()], Load(1, 0))
    controller.observe(0, round_of(1, 1, censored=True))
    controller.observe(7, round_of(1, 1))
    assert controller.budgets([view()], Load(1, 0)) == [before]
    assert "0 % of the guesses" in controller.reason
    assert EmaController(0).budgets([view()], Load(1, 0))[0].nodes == 0


def test_ema_keeps_sequences_apart():
    controller = EmaController(8)
    for _ in range(30):
        controller.budgets([view(1), view(2)], Load(2, 0))
        controller.observe(1, round_of(4, 4))
        controller.observe(2, round_of(4, 0))
    assert [budget.nodes for budget in controller.budgets([view(1), view(2)], Load(2, 0))] == [8, 1]


@pytest.mark.parametrize(("position", "count"), [(0, 8), (63, 8), (64, 4), (255, 4), (256, 2), (9999, 2)])
def test_schedule_goes_by_position_alone(position, count):
    assert ScheduleController(16).budgets([view(position=position)], Load(1, 0))[0].nodes == count
    assert ScheduleController(3).budgets([view(position=position)], Load(1, 0))[0].nodes == min(count, 3)


def test_ema_names_the_range_of_all_its_sequences():
    controller = EmaController(8)
    for _ in range(30):
        controller.budgets([view(1), view(2), view(3)], Load(3, 0))
        controller.observe(1, round_of(4, 4))
        controller.observe(2, round_of(4, 0))
        controller.observe(3, round_of(4, 0, censored=True))
    assert controller.reason == "1 to 8 a round: 3 to 99 % of the guesses were kept of late"
    controller.budgets([view(2), view(3)], Load(2, 0))
    assert controller.reason == "1 a round: 3 % of the guesses were kept of late"


CONTROLLERS = {
    "fixed": (FixedController, "4 a round, as asked", "4 a round"),
    "ema": (EmaController, "4 a round at first, one more above 80 % kept, one fewer below 60 %", "4 a round: 73 %"),
    "schedule": (ScheduleController, "by position: 4 from token 0, 4 from token 64, 2 from token 256", "by position"),
    "confidence": (ConfidenceController, "none was put to the test yet", "of late 82 % were"),
    "entropy": (lambda most: ConfidenceController(most, by_entropy=True), "none was put", "of late 82 % were"),
    "optimal": (lambda most: OptimalController(CostTable({1: 1.0, 8: 1.1}), ["m"], most=most), "m is untried", "m is"),
}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_there_is_a_reason_from_the_first_round_on(name):
    make, first, later = CONTROLLERS[name]
    controller = make(4)
    controller.budgets([view()], Load(1, 0))
    assert first in controller.reason
    controller.observe(0, round_of(0, 0))
    assert first in controller.reason, "nothing was put to the test"
    controller.budgets([view()], Load(1, 0))
    controller.observe(0, replace(round_of(4, 4), by_source_depth={"m": ([1] * 4, [1] * 4)}))
    controller.budgets([view()], Load(1, 0))
    assert later in controller.reason
    assert "untried" not in controller.reason


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_without_guesses_says_so(name):
    controller = CONTROLLERS[name][0](0)
    assert controller.budgets([view()], Load(1, 0))[0].nodes == 0
    assert controller.reason


def test_confidence_prices_every_node_the_same():
    (budget,) = ConfidenceController(6).budgets([view()], Load(1, 0))
    np.testing.assert_allclose(np.diff(budget.price), 0.4)


@pytest.mark.parametrize("by_entropy", [False, True])
def test_confidence_tells_draft_models_its_floor(by_entropy):
    controller = ConfidenceController(6, by_entropy=by_entropy)
    budgets = controller.budgets([view(1), view(2)], Load(2, 0))
    assert [budget.floor for budget in budgets] == [Floor(0.4, by_entropy)] * 2
    assert budgets[0].scaled(0.5).floor == Floor(0.4, by_entropy)
    controller.observe(1, round_of(4, 0))
    assert controller.budgets([view(1)], Load(1, 0))[0].floor == Floor(0.4 + 0.01, by_entropy)
    assert ("sure by entropy" in controller.reason) == by_entropy


def test_confidence_reaches_its_target():
    """Guesses get worse with depth: the floor settles where the target share of them is kept."""
    source = Source("m", lambda depth: 0.97 - 0.06 * depth, heeds=True)
    engine, controller = Simulated([source], linear(0.05)), ConfidenceController(16)
    engine.play(controller, 2000)
    assert controller.average == pytest.approx(0.8, abs=0.12)
    assert LEAST < controller.floor < HIGHEST
    never = Simulated([Source("m", flat(0.0), heeds=True)], linear(0.05))
    never.play(controller := ConfidenceController(16), 100)
    assert max(never.depths) == 0
