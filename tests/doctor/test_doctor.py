"""The doctor's numbers add up, its verdicts follow from them, and its JSON feeds the plan."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from paceline.cli.main import run
from paceline.control.base import OFF
from paceline.doctor.measure import Examination, count, deadline
from paceline.doctor.pair import check_pair
from paceline.doctor.report import advice, costs_of, predicted, verdict
from paceline.engine import calibrate
from paceline.engine.loading import read_tokenizer
from paceline.model.files import open_model
from paceline.model.sources import resolve
from paceline.plan.performance import chain
from paceline.types import Round, Spent


def round_of(drafted, kept, rows=None, steps=0):
    tested = [1] * min(kept + 1, drafted)
    right = [1] * kept + [0] * (len(tested) - kept)
    return Round(
        (1,) * drafted,
        (1,) * kept + (0,) * (drafted - kept),
        {"m": (drafted, kept)},
        kept + 1,
        False,
        drafted + 1 if rows is None else rows,
        {"m": Spent(steps, 0.01 * steps)} if steps else {},
        0.0,
        0.0,
        0.0,
        {"m": (tested, right)} if drafted else {},
    )


def test_acceptance_is_counted_once_the_parent_was_right():
    found = Examination()
    count(found, [round_of(3, 0)] * 10 + [round_of(3, 2)] * 10 + [round_of(3, 3)] * 20)
    assert found.tested == [40, 30, 30]
    assert found.kept == [30, 30, 20]
    assert found.acceptance == [0.75, 1.0, pytest.approx(2 / 3)]


def test_too_few_trials_say_nothing():
    found = Examination()
    count(found, [round_of(2, 1)] * 4)
    assert found.acceptance == []


def test_the_prediction_of_equal_rounds_is_the_models():
    found = Examination(target_seconds={1: 0.04, 4: 0.05, 8: 0.08}, step_seconds={"m": 0.01})
    costs = costs_of(found)
    assert costs.draft_step == 0.25
    rounds = [round_of(3, 3, steps=3)]
    assert predicted(rounds, costs) == pytest.approx(chain(1.0, 3, costs).speedup)
    assert predicted([round_of(0, 0)] * 5, costs) == pytest.approx(1.0)
    assert predicted([], costs) is None


def test_what_a_draft_model_missed_is_read_at_its_price():
    found = Examination(target_seconds={1: 0.04, 4: 0.05, 8: 0.08}, step_seconds={"m": 0.01})
    late = replace(round_of(3, 3, steps=3), spent={"m": Spent(3, 0.03 + 40 * 0.001, read=40)})
    found.rounds["drafted"] = [late]
    assert found.draft_step_seconds == 0.01  # a round in which it read says nothing of a step
    assert found.reading_seconds == pytest.approx(0.001)
    costs = costs_of(found)
    tokens, time = 4, 4 / predicted([round_of(3, 3, steps=3)], costs)
    assert predicted([late], costs, 0.025) == pytest.approx(tokens / (time + 40 * 0.025))


def result(**changes):
    return {
        "drafters": ["m"], "control": "optimal", "controller": "2 tokens a round", "measured_speedup": 1.5,
        "predicted_speedup": 1.5, "v": {"1": 1.0, "4": 1.2}, "break_even": 0.3,
        "best_chain": {"length": 3, "speedup": 1.5}, "pairs": [], **changes,
    }  # fmt: skip


@pytest.mark.parametrize(("changes", "says"), [
    ({}, "Worth it"), ({"measured_speedup": 1.01}, "Not worth it"), ({"measured_speedup": None}, "too short"),
    ({"controller": f"{OFF}: m is right 9 %"}, "Not worth it"), ({"drafters": []}, "Nothing drafts"),
])  # fmt: skip
def test_verdicts(changes, says):
    assert says in verdict(result(**changes))


@pytest.mark.parametrize(("changes", "measured", "says"), [
    ({}, {"floor_seconds": 0.01}, "reading the weights"),
    ({"v": {"1": 1.0, "4": 2.5}}, {}, "arithmetic is the limit"),
    ({}, {"step_seconds": {"m": 0.02}}, "smaller draft"),
    ({"best_chain": {"length": 0, "speedup": 1.0}}, {"tested": [10], "kept": [1]}, "another draft"),
    ({"control": "fixed"}, {}, "--draft-tokens 3"),
    ({"predicted_speedup": 2.0}, {}, "busy"),
    ({"pairs": [{"same": False, "draft": "x", "overlap": 0.8}]}, {}, "translated"),
])  # fmt: skip
def test_advice_names_what_would_help(changes, measured, says):
    found = Examination(**{"target_seconds": {1: 0.04}, **measured})
    assert any(says in line for line in advice(result(**changes), found))


def test_nothing_to_say_is_said_by_silence():
    assert advice(result(), Examination(target_seconds={1: 0.04}, floor_seconds=0.035)) == []


def test_pairs_are_compared_by_what_tokens_mean():
    file = open_model(resolve("smollm2-135m"))
    one = SimpleNamespace(
        name="one", tokenizer=read_tokenizer(file), model=SimpleNamespace(spec=file.spec), context=file.spec.context
    )
    file.close()
    found = check_pair(one, one)
    assert found["same"]
    assert found["overlap"] == 1.0
    assert found["through"] == "ids"


def test_time_runs_out():
    assert not deadline(60)()
    assert deadline(-1)()


def test_the_command_measures_and_its_json_feeds_the_plan(talker, tmp_path, capsys, monkeypatch):
    file = tmp_path / "prompts"
    file.write_text("Repeat: a b c d a b c d a b c d a b c d")
    monkeypatch.setattr(calibrate, "ROWS", (1, 2, 4, 8))
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    call = ["doctor", "--model", str(talker), "--draft", "ngram", "--max-tokens", "12"]
    call += ["--prompts", str(file), "--seconds", "1"]
    assert run([*call, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["measured"]["target_seconds"]["1"] > 0
    assert said["v"]["1"] == 1.0
    assert said["verdict"]
    (tmp_path / "doctor.json").write_text(json.dumps(said))
    assert run(["plan", "--from", str(tmp_path / "doctor.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]
    assert run(call) == 0
    assert "plain decoding" in capsys.readouterr().out
