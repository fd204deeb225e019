"""Who is asked again, and what is no reason to stop: new texts, probes nobody can pay for, disturbances, silence."""

import math

import numpy as np
from simulated import PLAIN, Simulated, Source, flat, linear

from paceline.control.base import OFF
from paceline.control.cost import CostTable
from paceline.control.optimal import TRIES, OptimalController
from paceline.types import Load, SamplingParams, View


def controller_of(*sources):
    table = CostTable({rows: PLAIN * linear(0.3)(rows) for rows in (1, 2, 4, 8, 16)})
    steps = {source.name: source.step * PLAIN for source in sources if source.step}
    return OptimalController(table, [source.name for source in sources], most=8, step_seconds=steps)


def asked(controller, text):
    """The sources that may guess in a round with a text."""
    (budget,) = controller.budgets([View(text, np.zeros(20, np.int32), SamplingParams(), 20)], Load(1, 0))
    return {name for name in ("copy", "model") if budget.step.get(name, 0.0) < math.inf} if budget.nodes else set()


def test_a_model_given_up_for_one_text_is_tried_for_the_next_whatever_was_saved():
    """A hundredth of the time is one probe in forty rounds: a reply is over before they have said anything."""
    copy, model = Source("copy", flat(0.0), heeds=True), Source("model", flat(0.1), 0.25)
    engine, controller = Simulated([copy, model], linear(0.3)), controller_of(copy, model)
    engine.play(controller, 300)
    assert controller.reason.startswith(OFF), controller.reason
    controller._allowance.settle(100 * PLAIN, hit=False)
    before, engine.sources = engine.ran["model"], [model]
    model.alpha = flat(0.95)
    gained = engine.play(controller, 100, rounds_from=1)
    assert engine.ran["model"] > before + TRIES
    assert gained > 1.15, (gained, controller.reason)


def test_a_free_try_does_not_wait_for_a_probe_that_nothing_was_saved_for():
    copy, model = Source("copy", flat(0.0)), Source("model", flat(0.1), 0.25)
    controller = controller_of(copy, model)
    Simulated([copy, model], linear(0.3)).play(controller, 300)
    controller._allowance.settle(100 * PLAIN, hit=False)
    assert "model" in {*asked(controller, 1), *asked(controller, 1)}, "whose turn it was"
    for _ in range(TRIES):
        asked(controller, 1)
    assert not asked(controller, 1), "not for ever"


def test_nothing_guessed_is_no_loss():
    silent = Source("copy", flat(0.5), there=0.02, heeds=True)
    controller = controller_of(silent)
    Simulated([silent], linear(0.3), noise=0.3, seed=1).play(controller, 600)
    assert controller.guard.purse > 1
