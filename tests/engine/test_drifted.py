"""When forwards have long taken another time than was measured, the machine is measured again, between requests."""

from time import monotonic, sleep

import pytest

from paceline.core.request import SamplingParams
from paceline.engine import upkeep as home
from paceline.engine.calibrate import calibrated
from paceline.estimate.cost import CostTable
from paceline.service.llm import LLM


@pytest.fixture
def llm(talker, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    return LLM(talker, draft="ngram", context=1024)


@pytest.fixture
def measured(monkeypatch):
    """Watch what is measured."""
    calls = []

    def watch(*arguments, **settings):
        calls.append(settings)
        return calibrated(*arguments, **settings)

    monkeypatch.setattr(home, "calibrated", watch)
    return calls


def params(count):
    return SamplingParams(max_tokens=count, ignore_eos=True, temperature=2.0)


def test_a_lastingly_wrong_table_is_replaced_once_no_request_waits(llm, measured):
    controller = llm.engine.parts.controller
    before, beliefs = llm.generate("Hi", params(20)).token_ids, dict(controller.experience)
    wrong = CostTable({int(rows): seconds / 3 for rows, seconds in controller.cost.to_json().items()})
    controller.renew(wrong)
    reader = iter(llm.stream("Hi", params(1000)))
    while not wrong.has_drifted:
        next(reader)  # rounds take three times what the table says
    assert llm.generate("Hi", params(20)).token_ids == before
    assert not measured, "a reply is in the middle"
    reader.close()
    assert llm.generate("Hi", params(20)).token_ids == before
    assert not measured, "nor does a request wait for it"
    until = monotonic() + 30
    while controller.cost is wrong and monotonic() < until:
        sleep(0.05)
    assert measured == [{"again": True}]
    assert controller.cost is not wrong
    assert not controller.cost.has_drifted
    assert dict(controller.experience) == beliefs
    llm.generate("Hi", params(20))
    assert len(measured) == 1
    kept = calibrated(llm.target.model, llm.engine.parts.drafter, llm.calibration_key)
    assert kept.cost.to_json() == controller.cost.to_json(), "the next run begins with it"


def test_a_table_that_is_right_stays(llm, measured):
    for _ in range(3):
        llm.generate("Hi", params(10))
    assert not measured
