"""The doctor's numbers add up, its verdicts follow from them, and its JSON feeds the plan."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import paceline
from paceline.cli.main import run
from paceline.control.base import OFF
from paceline.core.request import SamplingParams
from paceline.core.round import Round, Spent
from paceline.doctor import room
from paceline.doctor.advice import advice
from paceline.doctor.family import proposals, shape_like
from paceline.doctor.measure import Examination, count, deadline
from paceline.doctor.pair import check_pair, draft_models
from paceline.doctor.report import costs_of, predicted, verdict
from paceline.doctor.room import memory
from paceline.engine import calibrate
from paceline.engine.loading import read_tokenizer
from paceline.formats.catalog import resolve
from paceline.formats.files import open_model
from paceline.plan.performance import Costs, chain
from paceline.plan.shapes import SHAPES
from paceline.service.llm import LLM


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


ROOM = {"fits": True, "needed": 1e9, "room": 8e9, "context": 8192}
STRANGE = {"same": False, "draft": "x", "overlap": 0.8}
SMALL = {"name": "small", "fetch": True, "cost": 0.2, "break_even": 0.3}


@pytest.mark.parametrize(("changes", "measured", "says"), [
    ({}, {"floor_seconds": 0.01}, "reading the weights"),
    ({"v": {"1": 1.0, "4": 2.5}}, {}, "arithmetic is the limit"),
    ({}, {"step_seconds": {"m": 0.02}}, "smaller draft"),
    ({"best_chain": {"length": 0, "speedup": 1.0}}, {"tested": [10], "kept": [1]}, "another draft"),
    ({"control": "fixed"}, {}, "--draft-tokens 3"),
    ({"predicted_speedup": 2.0}, {}, "busy"),
    ({"pairs": [STRANGE]}, {}, "translated"),
    ({"pairs": [STRANGE], "proposals": [SMALL]}, {}, "fewer are right. small (paceline pull small) has the"),
    ({"proposals": [SMALL]}, {}, "No model drafts here. small (paceline pull small) has the target's vocabulary"),
    ({"memory": ROOM | {"fits": False, "needed": 9e9}}, {}, "9.0 GB, which does not fit into the 8.0 GB"),
    ({"memory": ROOM | {"needed": 7.5e9}}, {}, "hardly fits"),
    ({"bits": 16.0}, {"floor_seconds": 0.04, "row_seconds": 0.001}, "--quant q4 may be up to 3.2 times"),
    ({"bits": 8.5}, {"floor_seconds": 0.04, "row_seconds": 0.032}, "up to 1.2 times"),
])  # fmt: skip
def test_advice_names_what_would_help(changes, measured, says):
    found = Examination(**{"target_seconds": {1: 0.04}, **measured})
    assert any(says in line for line in advice(result(**changes), found))


@pytest.mark.parametrize(("changes", "measured"), [
    ({}, {}),
    ({"memory": ROOM}, {}),
    ({"memory": ROOM | {"fits": None, "needed": 9e9, "room": None}}, {}),
    ({"bits": 16.0}, {"row_seconds": 0.05}),  # arithmetic is the limit: fewer bits read nothing sooner
    ({"bits": 4.5}, {}),
    ({"proposals": [SMALL | {"break_even": 0.9}]}, {}),
    ({"proposals": [SMALL | {"break_even": None}]}, {}),
    ({"proposals": [SMALL]}, {"step_seconds": {"m": 0.001}}),
])  # fmt: skip
def test_nothing_to_say_is_said_by_silence(changes, measured):
    found = Examination(**{"target_seconds": {1: 0.04}, "floor_seconds": 0.035, **measured})
    assert advice(result(**changes), found) == []


def test_the_floor_is_memory_first_and_then_arithmetic():
    found = Examination(floor_seconds=0.03, row_seconds=0.01)
    assert [found.floor(rows) for rows in (1, 3, 6)] == [0.03, 0.03, 0.06]
    assert found.is_memory_bound
    assert not Examination(floor_seconds=0.03, row_seconds=0.04).is_memory_bound


def test_a_targets_numbers_name_it_and_its_familys_drafts():
    def spec(name):
        shape = SHAPES[name]
        return SimpleNamespace(
            layers=shape.layers,
            width=shape.width,
            ffn_width=shape.ffn_width,
            kv_heads=shape.heads[1],
            vocab=shape.vocab,
        )

    assert {shape_like(spec(name)) for name in SHAPES} == set(SHAPES.values())
    free = Costs(0.0, lambda rows: 1.0)
    (own,) = proposals("qwen2.5-coder-1.5b", spec("qwen2.5-1.5b"), 4.3, free)
    assert own["name"] == "qwen2.5-coder-0.5b"
    assert own["cost"] == pytest.approx(0.32, abs=0.01)
    assert own["break_even"] == pytest.approx(own["cost"], abs=1e-3)
    assert [one["name"] for one in proposals("a.gguf", spec("llama-3.1-8b"), 16.0, free)] == ["llama-3.2-1b"]
    unknown = SimpleNamespace(layers=1, width=1, ffn_width=1, kv_heads=1, vocab=1)
    assert proposals("a.gguf", unknown, 16.0, free) == []
    assert proposals("a.gguf", spec("llama-3.1-8b"), None, free) == []


def test_memory_counts_target_draft_keys_and_values(talker, monkeypatch):
    llm = LLM(talker, draft=str(talker), context=256)
    assert draft_models(llm) == [str(talker)]
    found = memory(llm, draft_models(llm))
    spec = llm.target.model.spec
    assert found["target_kv"] == found["draft_kv"] == 256 * 2 * 2 * spec.layers * spec.kv_heads * spec.head_dim
    assert found["draft_weights"] == talker.stat().st_size
    assert found["target_weights"] == llm.target.model.weight_bytes
    assert found["needed"] > found["resident"] > 0
    assert found["fits"]
    monkeypatch.setattr(room, "memory_bytes", lambda: (10**6, 10**5))
    assert memory(llm, [])["fits"] is False
    monkeypatch.setattr(room, "memory_bytes", lambda: None)
    assert memory(llm, [])["fits"] is None


def test_the_doctor_is_a_function_too(talker, monkeypatch):
    monkeypatch.setattr(calibrate, "ROWS", (1, 2, 4, 8))
    llm = paceline.load(str(talker), draft="ngram", context=256)
    said = paceline.run_doctor(llm, ["Repeat: a b c d a b c d"], SamplingParams(max_tokens=8), seconds=1)
    assert json.loads(json.dumps(said))["v"]["1"] == 1.0
    assert said["v_floor"]["1"] > 0
    assert said["v_floor"].keys() == said["v"].keys()
    assert said["measured"]["row_seconds"] > 0
    assert said["bits"] == 32
    assert said["memory"]["fits"]


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
    shown = capsys.readouterr().out
    assert "plain decoding" in shown
    assert "its floor" in shown
    assert "the floor is" in shown
    assert "memory" in shown
    assert "break-even" in shown
    assert said["calibration"]["quality"]["repeats"] >= 2
    assert "calibrated 20" in shown


def test_a_doubtful_calibration_is_shown_with_its_cure(talker, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "ROWS", (1, 2, 4, 8))
    monkeypatch.setattr("paceline.engine.quality.SPREAD", -1.0)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    call = ["doctor", "--model", str(talker), "--draft", "ngram", "--max-tokens", "8", "--seconds", "1"]
    assert run(call) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "doubtful: " in shown
    assert "paceline calibrate measures again" in shown


def test_where_nothing_drafts_nothing_is_said_of_drafting(talker, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "ROWS", (1, 2, 4, 8))
    call = ["doctor", "--model", str(talker), "--draft", "off", "--max-tokens", "8", "--seconds", "1"]
    assert run(call) == 0
    shown = capsys.readouterr().out
    assert "Nothing drafts" in shown
    for word in ("calibrated", "break-even", "guesses every round", "control", "expected"):
        assert word not in shown
