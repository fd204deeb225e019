"""What is known of the machine is kept right: doubtful tables once it is quieter, contradicted ones at once."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.control.fixed import FixedController
from paceline.control.guard import CAUTIOUS, START
from paceline.control.optimal import OptimalController
from paceline.core.request import SamplingParams
from paceline.draft.base import NoDrafter
from paceline.engine import upkeep as home
from paceline.engine.calibrate import calibrated
from paceline.engine.upkeep import Rehearsal, Upkeep
from paceline.estimate.cost import CostTable
from paceline.service.llm import LLM
from paceline.testing import TinyModel

KEY = {"model": "a"}


@pytest.fixture
def found(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    return calibrated(TinyModel(), NoDrafter(), KEY)


def controller_of(table=None):
    return OptimalController(CostTable(table or {1: 0.02, 8: 0.03}), ["m"], most=8)


def doubtful(found, neighbours):
    return replace(found, quality=replace(found.quality, doubts=("busy",), neighbours=neighbours))


@pytest.mark.parametrize(("then", "now", "is_measured"), [(2.0, 0.0, True), (2.0, 1.9, False), (2.0, None, False)])
def test_a_doubtful_table_is_replaced_once_the_machine_is_quieter(found, monkeypatch, then, now, is_measured):
    calls, sound = [], replace(found, quality=replace(found.quality, doubts=()))
    monkeypatch.setattr(home, "calibrated", lambda *_, **settings: calls.append(settings) or sound)
    controller = controller_of()
    upkeep = Upkeep(TinyModel(), NoDrafter(), KEY, doubtful(found, then), neighbours=lambda: now)
    before = controller.cost
    upkeep.between_requests(controller)
    assert bool(calls) == is_measured
    assert (controller.cost is not before) == is_measured
    upkeep.between_requests(controller)
    assert len(calls) == int(is_measured)


def test_a_sound_table_and_another_controller_are_left_alone(found, monkeypatch):
    monkeypatch.setattr(home, "calibrated", lambda *_, **__: pytest.fail("measured"))
    sound = replace(found, quality=replace(found.quality, doubts=()))
    Upkeep(TinyModel(), NoDrafter(), KEY, sound, neighbours=lambda: 0.0).between_requests(controller_of())
    Upkeep(TinyModel(), NoDrafter(), KEY, None).between_requests(controller_of())
    fixed = Upkeep(TinyModel(), NoDrafter(), KEY, doubtful(found, 2.0), neighbours=lambda: 0.0)
    fixed.between_requests(FixedController(3))
    fixed.before_round(FixedController(3))


def test_the_forward_asked_for_is_timed_beside_what_runs(monkeypatch):
    model, controller, told = TinyModel(context=64), controller_of(), []
    monkeypatch.setattr(controller, "wanted_rows", lambda: 16)
    monkeypatch.setattr(controller, "timed", lambda rows, seconds: told.append((rows, seconds)))
    upkeep = Upkeep(model, NoDrafter(), KEY, None)
    for _ in range(2):
        upkeep.before_round(controller)
    assert [rows for rows, _ in told] == [16, 16]
    assert all(seconds > 0 for _, seconds in told)
    monkeypatch.setattr(controller, "wanted_rows", lambda: 128)
    upkeep.before_round(controller)
    assert len(told) == 2, "the model reads no so many"


def test_a_rehearsal_runs_so_many_rows_again_and_again():
    model = TinyModel()
    ticks = iter(range(100))
    rehearsal = Rehearsal(model, 64, clock=lambda: next(ticks))
    before = model.forwards
    assert [rehearsal.seconds(rows) for rows in (1, 64, 64, 7)] == [1, 1, 1, 1]
    assert model.forwards == before + 4


def test_replies_are_the_same_while_forwards_are_timed(talker, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    params = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0.9, seed=3)
    plain = LLM(talker, draft="off", context=256).generate("the cat and the dog", params).token_ids
    llm = LLM(talker, draft="suffix,recycle", context=256)
    controller, timed = llm.engine.parts.controller, []
    monkeypatch.setattr(controller, "wanted_rows", lambda: int(np.random.default_rng(len(timed)).integers(0, 40)))
    monkeypatch.setattr(controller, "timed", lambda rows, seconds: timed.append(rows))
    assert llm.generate("the cat and the dog", params).token_ids == plain
    assert len(timed) > 3
    llm.engine.cache.check()


def test_a_doubtful_calibration_makes_the_controller_cautious():
    table = CostTable({1: 0.02, 8: 0.03})
    purses = [OptimalController(table, ["m"], most=8, is_doubtful=doubt).guard.purse for doubt in (False, True)]
    assert purses == [START, CAUTIOUS]
