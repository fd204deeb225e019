"""The gate: a source's losses are bounded in tokens, and a closed gate opens again."""

import math

import numpy as np
import pytest
from simulated import PLAIN, Simulated, Source, flat, linear

from paceline.control.base import OFF
from paceline.control.gate import HOPE, MOST, SHARE, TRY, WORST, Gate
from paceline.control.optimal import OptimalController
from paceline.core.request import SamplingParams, View
from paceline.core.round import Load
from paceline.estimate.cost import CostTable


def controller_of(*sources):
    table = CostTable({rows: PLAIN * linear(0.3)(rows) for rows in (1, 2, 4, 8, 16)})
    steps = {source.name: source.step * PLAIN for source in sources if source.step}
    return OptimalController(table, [source.name for source in sources], most=8, step_seconds=steps)


def play(gate, rounds, net):
    """Return the net tokens of a source that drafts whenever its gate is open, and the number of those rounds."""
    total = asked = 0
    for i in range(rounds):
        gate.keep([0])
        if gate.is_open(0):
            one = net(i)
            gate.settle(0, one)
            total, asked = total + one, asked + 1
        gate.grant()
    return total, asked


# ---- the bound


@pytest.mark.parametrize("loss", [0.05, 0.3, 1.0, 1.9])
def test_a_source_loses_its_hope_and_a_share_of_rounds(loss):
    total, asked = play(Gate(), 2000, lambda i: -loss)
    assert -total <= HOPE + loss + SHARE * 2000
    assert asked >= 0.5 * SHARE * 2000 / loss, "it is tried again"


def test_a_source_that_turns_bad_loses_its_credit_at_most():
    gate = Gate()
    play(gate, 500, lambda i: 1.0)
    total, _ = play(gate, 100, lambda i: -0.5)
    assert -total <= MOST + 0.5 + SHARE * 100


def test_a_source_that_turns_good_resumes_at_its_first_try():
    gate = Gate()
    play(gate, 500, lambda i: -0.5)
    _, asked = play(gate, 500, lambda i: 0.5)
    assert asked > 350


def test_luck_seldom_closes_a_source_that_gains():
    chance = np.random.default_rng(0)
    asked = sum(play(Gate(), 400, lambda i: 0.5 + chance.standard_normal())[1] for _ in range(20))
    assert asked > 0.85 * 20 * 400


def test_a_stall_closes_no_source():
    gate = Gate()
    play(gate, 100, lambda i: 0.5)
    gate.settle(0, -1e9)
    assert gate.credit(0) == MOST - WORST


def test_a_new_text_gets_a_try_and_keeps_earned_credit():
    gate = Gate()
    play(gate, 300, lambda i: -0.5)
    gate.keep([1])
    assert gate.credit(1) == TRY
    play(gate, 300, lambda i: 0.5)
    gate.keep([2])
    assert gate.credit(2) == MOST


def test_sequences_have_credits_of_their_own():
    gate = Gate()
    gate.keep([0, 1])
    gate.settle(0, -WORST)
    gate.settle(0, -WORST)
    assert (gate.is_open(0), gate.is_open(1)) == (False, True)
    gate.settle(7, 1.0)
    gate.keep([1, 2])
    assert gate.credit(2) == TRY, "as the one that ended had lost all"


# ---- planted bugs


class Ungranted(Gate):
    """Closes for good."""

    def grant(self):
        """Grant nothing."""


class Lavish(Gate):
    """Grants credit to open sequences as well."""

    def grant(self):
        for sequence in self._credit:
            self._credit[sequence] += 0.5


class Unbounded(Gate):
    """Lets credit grow without a limit."""

    def settle(self, sequence, net):
        self._credit[sequence] += net


@pytest.mark.parametrize("mutant", [Ungranted, Lavish, Unbounded])
def test_the_bounds_catch_a_gate_that_is_wrong(mutant):
    lost, asked = play(mutant(), 2000, lambda i: -0.3)
    rich = mutant()
    play(rich, 500, lambda i: 1.0)
    later, _ = play(rich, 100, lambda i: -0.5)
    assert -lost > HOPE + 0.3 + SHARE * 2000 or asked < 0.5 * SHARE * 2000 / 0.3 or -later > MOST + 0.5 + SHARE * 100


# ---- the controller


def asked(controller, text):
    """Return the sources that may guess in a round with a text."""
    (budget,) = controller.budgets([View(text, np.zeros(20, np.int32), SamplingParams(), 20)], Load(1, 0))
    return {name for name in ("copy", "model") if budget.step.get(name, 0.0) < math.inf} if budget.nodes else set()


def test_a_closed_model_is_tried_on_the_next_text():
    """A hundredth of the time is one try in forty rounds, too few to judge a source within a reply."""
    copy, model = Source("copy", flat(0.0), heeds=True), Source("model", flat(0.1), 0.25)
    engine, controller = Simulated([copy, model], linear(0.3)), controller_of(copy, model)
    engine.play(controller, 300)
    assert controller.reason.startswith(OFF), controller.reason
    before, engine.sources = engine.ran["model"], [model]
    model.alpha = flat(0.95)
    gained = engine.play(controller, 100, rounds_from=1)
    assert engine.ran["model"] > before + 2
    assert gained > 1.15, (gained, controller.reason)


def test_a_source_that_lost_all_takes_no_try_from_another():
    copy, model = Source("copy", flat(0.0)), Source("model", flat(0.1), 0.25)
    controller = controller_of(copy, model)
    Simulated([copy, model], linear(0.3)).play(controller, 300)
    controller._gates["copy"].settle(0, -100.0)
    controller._follow([View(1, np.zeros(20, np.int32), SamplingParams(), 20)])
    assert controller._gates["model"].is_open(1)


def test_nothing_guessed_is_no_loss():
    silent = Source("copy", flat(0.5), there=0.02, heeds=True)
    controller = controller_of(silent)
    Simulated([silent], linear(0.3), noise=0.3, seed=1).play(controller, 600)
    assert controller.guard.purse > 1
    assert controller._gates["copy"].is_open(0)
