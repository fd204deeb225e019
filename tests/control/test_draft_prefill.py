"""Reading a text for a source is weighed against the seconds it likely saves."""

import math

import numpy as np
import pytest
from simulated import PLAIN, Simulated, Source, flat, linear, play_plain

from paceline.control.draft_prefill import BEFORE, COPIED, USUAL, DraftPrefill
from paceline.control.guard import PROOF
from paceline.control.optimal import OptimalController
from paceline.core.request import SamplingParams, View
from paceline.core.round import Load, Spent
from paceline.estimate.cost import CostTable


def view_of(prompt, said=0, *, most=256, name=1):
    return View(name, np.zeros(prompt + said, np.int32), SamplingParams(max_tokens=most), prompt)


# ---- the expected length


def test_expected_length_follows_the_mean_the_reply_and_the_limit():
    prefill, all_new = DraftPrefill(), lambda said: 1 - (COPIED / (BEFORE + said))
    assert prefill.to_come(view_of(10), may_copy=True) == USUAL / 4, "most of a new text is taken to be copied"
    assert prefill.to_come(view_of(10), may_copy=False) == USUAL
    assert prefill.to_come(view_of(10, 28), may_copy=True) == pytest.approx((USUAL - 28) * all_new(28))
    assert prefill.to_come(view_of(10, 300, most=4000), may_copy=True) == pytest.approx(300 * all_new(300))
    assert prefill.to_come(view_of(10, 200, most=210), may_copy=True) == pytest.approx(10 * all_new(200))
    for name in range(60):
        prefill.follow([view_of(10, name=name)])
        prefill.observe(name, 0, 0)
        prefill.observe(name, 8, 0)
        prefill.observe(name, 12, 0)
    assert prefill.to_come(view_of(10), may_copy=False) == pytest.approx(20, abs=2)


def test_copied_tokens_are_not_expected_of_a_draft_model():
    prefill = DraftPrefill()
    for said in (0, 40, 80):
        prefill.follow([view_of(10, said)])
        prefill.observe(1, 40, 36)
    assert prefill.to_come(view_of(10, 120, most=1000), may_copy=True) == pytest.approx(
        120 * (1 - (COPIED + 108) / (BEFORE + 120))
    )
    prefill.follow([])
    assert prefill.to_come(view_of(10, 120, most=1000), may_copy=True) == pytest.approx(120, rel=0.1), "another text"


def test_look_ups_lower_the_expected_length_until_a_reply_disagrees():
    prefill, found = DraftPrefill(), []
    for said in range(0, 24, 4):
        prefill.follow([view_of(400, said, most=128)])
        found.append(prefill.to_come(view_of(400, said, most=128), may_copy=True))
        prefill.observe(1, 4, 0)
    assert found[0] < 0.5 * max(found)
    assert found[:4] == sorted(found[:4])


# ---- the seconds of reading


def test_reading_is_measured_and_before_that_scaled_from_the_target():
    prefill, cost = DraftPrefill(), CostTable({1: 1.0, 8: 2.0})
    assert prefill.seconds("m", 160, step=0.2, cost=cost) == pytest.approx(160 * 0.2 * 2 / 8)
    assert prefill.seconds("m", 8, step=0.2, cost=cost) == 0, "a step takes so many along"
    prefill.took("m", Spent(2, 3.0, read=5), 0.2)
    prefill.took("m", Spent(2, math.nan, read=500), 0.2)
    assert prefill.seconds("m", 160, step=0.2, cost=cost) == pytest.approx(8.0), "too few to tell, or no number"
    prefill.took("m", Spent(2, 2.4, read=100), 0.2)
    assert prefill.seconds("m", 160, step=0.2, cost=cost) == pytest.approx(160 * 0.02)


# ---- the controller


def controller_of(sources):
    table = CostTable({n: PLAIN * linear(0.05)(n) for n in (1, 2, 4, 8, 16, 32)})
    steps = {source.name: source.step * PLAIN for source in sources if source.step}
    return OptimalController(table, [source.name for source in sources], most=8, step_seconds=steps)


def controller_after(tokens, alpha=0.85):
    """Return a controller that has observed `m` at acceptance `alpha`."""
    source = Source("m", flat(alpha), 0.2)
    controller = controller_of([source])
    if tokens:
        Simulated([source], linear(0.05)).play(controller, tokens)
    else:
        for _ in range(PROOF):
            play_plain(controller, [view_of(10)])
    return controller


@pytest.mark.parametrize("known", [0, 200], ids=["untried", "known"])
def test_a_long_prompt_is_read_only_for_a_reply_that_may_be_long(known):
    controller = controller_after(known)
    for prompt, most, owed, asked in (
        (4000, 64, 4000, False),
        (4000, 64, 3, True),
        (40, 64, 40, True),
        (4000, 64, 4000, False),
    ):
        view = view_of(prompt, most=most, name=100 + prompt + owed)
        (budget,) = controller.budgets([view], Load(1, 0, {"m": [owed]}))
        assert (budget.nodes > 0 and math.isfinite(budget.step.get("m", 0))) == asked, (prompt, owed, controller.reason)
        if not asked:
            assert f"reading {owed} tokens first would take" in controller.reason


def test_a_backlog_is_read_once_a_reply_has_proved_long():
    controller = controller_after(200)
    asked = []
    for said in (0, 500, 1000, 2000, 4000, 8000):
        view = view_of(4000, said, most=100_000, name=9)
        controller.budgets([view], Load(1, 0, {"m": [4000 + said]}))
        for _ in range(16):  # decisions hold for a while
            (budget,) = controller.budgets([view], Load(1, 0, {"m": [4000 + said]}))
        asked.append(budget.nodes > 0)
    assert asked == sorted(asked)
    assert asked[0] is False
    assert asked[-1] is True


@pytest.mark.parametrize(("prompt", "reply"), [(4000, 100), (4000, 1500), (1000, 300), (200, 60), (50, 200)])
@pytest.mark.parametrize("copies", [0.0, 0.5])
def test_with_reading_counted_nothing_is_slower_than_plain(prompt, reply, copies):
    """A token read costs 0.08 plain tokens: 4000 take as long as 320 plain tokens."""
    for seed in range(3):
        copy = Source("copy", flat(0.95), there=copies, heeds=True)
        model = Source("model", flat(0.8), 0.2, heeds=True, reading=0.08)
        engine = Simulated([copy, model], linear(0.05), noise=0.05, seed=seed)
        controller = controller_of([copy, model])
        for text in range(4):
            gained = engine.play(controller, reply, rounds_from=text, prompt=prompt, most=reply)
            assert gained > 0.93, (text, gained, controller.reason)
    assert prompt > 50 or gained > 1.15


def test_probes_pay_for_what_they_read():
    stranger = Source("stranger", flat(0.0), 0.2, reading=0.08)
    engine, controller = Simulated([stranger], linear(0.05)), controller_of([stranger])
    engine.play(controller, 300)
    assert engine.play(controller, 6000, rounds_from=1, prompt=500) > 0.98, controller.reason


def test_only_the_sequence_with_a_backlog_gets_no_guesses():
    controller = controller_after(200)
    views = [view_of(20, name=1), view_of(6000, most=64, name=2)]
    for _ in range(PROOF):
        play_plain(controller, views, linear(0.05)(2), {"m": [20, 6000]})
    few, many = controller.budgets(views, Load(2, 0, {"m": [20, 6000]}))
    assert few.nodes > 0
    assert many.nodes == 0
