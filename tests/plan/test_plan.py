"""The forecast and its command: known names, measured input, pictures, and calls that cannot be meant."""

import json
import subprocess
import sys

import pytest

from paceline import run_plan
from paceline.cli.main import run
from paceline.cli.plan import _EXAMPLES as EXAMPLES
from paceline.errors import UsageError
from paceline.formats.catalog import resolve
from paceline.plan.forecast import Plan, forecast, read_doctor
from paceline.plan.hardware import HARDWARE
from paceline.plan.names import hardware_of, shape_of
from paceline.plan.roofline import Run
from paceline.plan.shapes import ALIASES, SHAPES, SOURCES, VOCABULARIES

DOCTOR = {"measured": {
    "target_seconds": {"1": 0.04, "2": 0.044, "4": 0.05, "8": 0.07, "16": 0.13},
    "draft_step_seconds": 0.008, "other_seconds": 0.001, "acceptance": [0.8, 0.75, 0.7],
}}  # fmt: skip


def plan_json(*arguments, capsys):
    assert run(["plan", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("name", "billions"), [
    ("llama-2-7b", 6.74), ("llama-2-70b", 69.0), ("llama-3.1-8b", 8.03), ("llama-3.2-1b", 1.24),
    ("qwen2.5-0.5b", 0.494), ("qwen2.5-1.5b", 1.54), ("qwen2.5-7b", 7.62), ("smollm2-135m", 0.1345),
])  # fmt: skip
def test_shapes_have_the_parameters_their_makers_state(name, billions):
    assert SHAPES[name].parameters == pytest.approx(billions * 1e9, rel=0.01)


def test_keys_and_values_of_a_token():
    assert SHAPES["llama-2-7b"].kv_bytes(1) == 0.5 * 2**20
    assert SHAPES["llama-3.1-8b"].kv_bytes(1) == 0.125 * 2**20


def test_the_roofline_is_memory_then_arithmetic():
    run_ = Run(SHAPES["llama-2-7b"], HARDWARE["a100"])
    one, edge = run_.seconds(1), run_.rows_until_arithmetic
    assert 6e-3 < one < 12e-3  # 13.5 GB at 2 TB/s is 6.6 ms; llama.cpp measures 12.5
    assert edge == pytest.approx(153, abs=1)
    assert run_.seconds(100) == one
    assert run_.seconds(400) > 2 * one


def test_measurements_replace_data_sheets(tmp_path, capsys):
    file = tmp_path / "doctor.json"
    file.write_text(json.dumps(DOCTOR))
    found = plan_json("--from", str(file), capsys=capsys)
    assert found["measured"]
    assert found["draft_step"] == pytest.approx(0.2)
    assert found["v"]["8"] == pytest.approx(1.75)
    assert found["acceptance"] == [0.8, 0.75, 0.7]
    three = next(choice for choice in found["lengths"] if choice["nodes"] == 3)
    assert three["speedup"] == pytest.approx((1 + 0.8 + 0.6 + 0.42) / (0.6 + 1.25 + 0.025))
    assert found["acceptance_is"] == "measured"
    assert found["target"] is found["draft"] is found["hardware"] is found["memory"] is None, "none of them was named"
    file.write_text(json.dumps(DOCTOR), encoding="utf-8-sig")
    assert plan_json("--from", str(file), capsys=capsys) == found


def test_given_numbers_override_measured_ones_and_are_named(tmp_path, capsys):
    file = tmp_path / "doctor.json"
    file.write_text(json.dumps(DOCTOR))
    found = plan_json("--from", str(file), "--acceptance", "0.5", capsys=capsys)
    assert (found["acceptance"], found["acceptance_is"]) == ([0.5], "given")
    for arguments, said in (([], "0.8, 0.75, 0.7 as measured"), (["--acceptance", "0.5"], "acceptance 0.5 as given")):
        assert run(["plan", "--from", str(file), *arguments]) == 0
        shown = capsys.readouterr().out
        assert said in shown
        assert "memory" not in shown
    file.write_text(json.dumps({"measured": {**DOCTOR["measured"], "acceptance": []}}))
    assert plan_json("--from", str(file), capsys=capsys)["acceptance_is"] == "assumed"


@pytest.mark.parametrize(("option", "value"), [
    ("--target", "7b"), ("--draft", "free"), ("--hardware", "4090"), ("--context", "1024"), ("--bits", "16"),
    ("--draft-bits", "4"),
])  # fmt: skip
def test_models_and_machines_are_refused_beside_measured_times(option, value, tmp_path, capsys):
    file = tmp_path / "doctor.json"
    file.write_text(json.dumps(DOCTOR))
    assert run(["plan", "--from", str(file), option, value]) == 2
    said = capsys.readouterr().err
    assert f"{option} is for data sheets" in said
    assert "drop one of the two" in said


def test_batches_make_it_worth_less_once_arithmetic_binds():
    big = Plan(Run(SHAPES["llama-3.1-8b"], HARDWARE["4090"]), Run(SHAPES["llama-3.2-1b"], HARDWARE["4090"]), [0.7])
    gains = [row["speedup"] for row in forecast(big)["batches"]]
    assert gains[0] > 1.3
    assert gains == sorted(gains, reverse=True)
    assert min(gains) >= 1, "not drafting is always possible"


def test_a_bad_draft_is_told_so(capsys):
    assert run(["plan", "--acceptance", "0.05", "--draft", "8b"]) == 0
    assert "Do not speculate" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "says"), [
    (["--target", "lama-3.1-8b"], "llama-3.1-8b"), (["--hardware", "a10"], "a100"),
    (["--acceptance", "1.2"], "0 to 1, got `1.2`"), (["--acceptance", "0.5,2"], "got `0.5,2`"),
    (["--acceptance", "high"], "0 to 1"), (["--batch", "0"], "batch"), (["--plot", "x.gif"], ".png"),
    (["--from", "nowhere.json"], "nowhere.json"), (["--context", "-1"], "context"),
    (["--cost", "-0.1"], "--cost"), (["--cost", "nan"], "--cost"), (["--cost", "dear"], "--cost"),
    (["--draft", "free", "--cost", "0.1"], "a free draft"), (["--v", "4"], "--v must be M:V"),
    (["--v", "4:x"], "--v must be M:V"), (["--v", "4:1,4:2"], "each M once"), (["--v", "0:1,4:2"], "positive"),
    (["--v", "4:inf"], "positive"), (["--v", "4:nan"], "positive"), (["--v", "1:2,4:3"], "1 for one"),
    (["--v", "1:1"], "more than"), (["--v", "4:0.5"], "must not fall"), (["--v", "4:2,8:1.5"], "must not fall"),
])  # fmt: skip
def test_wrong_calls_are_answered(arguments, says, capsys):
    assert run(["plan", *arguments]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert not said.out


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measured": 3}', '{"measured": {"target_seconds": {"2": 1}}}',
    '{"measured": {"target_seconds": {"1": -1}}}', '{"measured": {"target_seconds": {"1": "x"}}}',
    '{"measured": {"target_seconds": {"1": 1}, "acceptance": [2]}}',
    f'{{"measured": {{"target_seconds": {{"1": {"9" * 400}}}}}}}', "[" * 100_000,
    '{"measured": {"target_seconds": {"1": 1e999}}}',
    '{"measured": {"target_seconds": {"1": 1}, "draft_step_seconds": "x"}}',
    '{"measured": {"target_seconds": {"1": 1}, "other_seconds": [1]}}', "\0\x1f"])  # fmt: skip
def test_what_is_no_doctors_file_is_refused(text, tmp_path):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="doctor"):
        read_doctor(file)


def test_bytes_that_are_no_text_are_no_doctors_file(tmp_path):
    file = tmp_path / "doctor.json"
    file.write_bytes(b"\xff\xfe\0")
    with pytest.raises(UsageError, match=r"must be a doctor's JSON; it is no JSON(\n|$)"):
        read_doctor(file)


def test_names_and_aliases_resolve():
    for alias, name in ALIASES.items():
        assert shape_of(alias) == (SHAPES[name], None)
    assert hardware_of("a100").source


def test_a_model_file_has_a_shape_and_bits(capsys):
    path = resolve("smollm2-135m")
    shape, bits = shape_of(str(path))
    assert shape.parameters == pytest.approx(SHAPES["smollm2-135m"].parameters, rel=1e-3)
    assert shape.parameters * bits / 8 == pytest.approx(path.stat().st_size, rel=0.05)
    found = plan_json("--target", str(path), "--draft", str(path), capsys=capsys)
    assert found["bits"] == found["draft_bits"] == bits < 16
    assert found["memory"]["target_weights"] == pytest.approx(path.stat().st_size, rel=0.05)
    given = plan_json("--target", str(path), "--draft", "smollm2-135m", "--bits", "8", capsys=capsys)
    assert (given["bits"], given["draft_bits"]) == (8, 8)
    assert run(["plan", "--target", str(path)]) == 0
    assert f"at {bits:.3g} bits" in " ".join(capsys.readouterr().out.split())


def test_help_and_tables_fit_a_narrow_terminal(capsys):
    assert run(["plan", "--help"]) == 0
    assert "--acceptance" in capsys.readouterr().out
    assert run(["plan"]) == 0
    out = capsys.readouterr().out
    assert "tokens a round" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_verdict_says_what_does_not_fit_and_examples_fit(capsys):
    call = ["--target", "70b", "--draft", "8b", "--hardware", "a100"]
    assert "It does not fit: 157." in plan_json(*call, capsys=capsys)["verdict"]
    found = plan_json(*call, "--bits", "4", "--acceptance", "0.75", capsys=capsys)
    assert found["memory"]["fits"]
    assert "fit" not in found["verdict"]
    assert "--target 70b --draft 8b --bits 4 --hardware a100" in EXAMPLES


@pytest.mark.parametrize("arguments", [["--draft", "free"], ["--draft", "free", "--acceptance", "0.99"], []])
def test_the_best_length_stands_in_the_table(arguments, capsys):
    found = plan_json(*arguments, capsys=capsys)
    assert found["best_chain"] in found["lengths"]
    assert f"Draft {found['best_chain']['nodes']} tokens" in found["verdict"]


def test_costs_given_by_hand_go_before_everything(tmp_path, capsys):
    given = ["--cost", "0.1", "--v", "4:1.3,8:1.7,1:1", "--acceptance", "0.8"]
    file = tmp_path / "doctor.json"
    file.write_text(json.dumps(DOCTOR))
    for source, overhead in (([], 0), (["--from", str(file)], 0.025)):
        found = plan_json(*given, *source, capsys=capsys)
        assert (found["cost_is"], found["v_is"]) == ("given", "given")
        assert (found["draft_step"], found["v"]["4"], found["v"]["6"]) == (0.1, 1.3, pytest.approx(1.5))
        three = next(choice for choice in found["lengths"] if choice["nodes"] == 3)
        assert three["speedup"] == pytest.approx((1 + 0.8 + 0.64 + 0.512) / (0.3 + 1.3 + overhead))
    assert run(["plan", *given]) == 0
    assert capsys.readouterr().out.count("(given)") == 2


def test_costs_given_by_hand_are_those_of_one_sequence(capsys):
    found = plan_json("--cost", "0.3", "--v", "64:64", "--batch", "4", capsys=capsys)
    assert found["v"]["4"] == pytest.approx(4.0), "each of four rows a sequence takes the time of all before"
    assert found["draft_step"] == pytest.approx(0.3 / 4)
    assert [row["length"] for row in found["batches"]] == [0] * len(found["batches"]), "nothing can be gained"


def test_every_shape_names_its_source_and_its_vocabulary():
    assert SOURCES.keys() == VOCABULARIES.keys() == SHAPES.keys()
    assert all(source.startswith("https://huggingface.co/") for source in SOURCES.values())
    assert len(set(SOURCES.values())) == len(SOURCES)


@pytest.mark.parametrize(("target", "draft", "same", "instead"), [
    ("70b", "7b", False, ["llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"]), ("70b", "8b", True, []),
    ("7b", "tinyllama-1.1b", True, []), ("qwen2.5-7b", "0.5b", True, []),
    ("mistral-7b", "1b", False, []), ("smollm2-360m", "1b", False, []),
])  # fmt: skip
def test_a_pair_of_different_vocabularies_is_said(target, draft, same, instead, capsys):
    found = plan_json("--target", target, "--draft", draft, capsys=capsys)
    assert (found["pair"]["same"], found["pair"]["instead"]) == (same, instead)
    assert run(["plan", "--target", target, "--draft", draft]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("drafts would be translated" in shown) == (not same)
    assert " or ".join(instead) in shown


def test_a_plan_is_a_function_too():
    found = run_plan("70b", "8b", hardware="h100", acceptance=[0.8, 0.7], v={4: 1.2}, cost=0.2)
    assert json.loads(json.dumps(found))["best_chain"]["speedup"] > 1
    assert run_plan(draft="free")["pair"] is None
    with pytest.raises(UsageError, match="0 or more"):
        run_plan(cost=-1)
    with pytest.raises(UsageError, match="0 to 1"):
        run_plan(acceptance=2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch": 0}, "batch must be a whole number from 1 to 65536, got `0`"),
        ({"bits": 64}, "bits must be a number from 1 to 32, got `64`"),
        ({"bits": float("nan")}, "got `nan`"),
        ({"context": 10.5}, "context must be a whole number"),
        ({"draft": "free", "draft_bits": 4}, "draft_bits must be of a draft model"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        run_plan(**settings)


def test_a_picture_is_written(tmp_path, capsys):
    for kind in ("png", "svg"):
        assert run(["plan", "--plot", str(tmp_path / f"x.{kind}")]) == 0
        assert (tmp_path / f"x.{kind}").stat().st_size > 5000
    assert run(["plan", "--plot", str(tmp_path / "no" / "x.png")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_planning_waits_for_no_numpy():
    code = "import sys; from paceline.cli.main import run; run(['plan']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-0.6b", 0.596), ("qwen3-4b", 4.02), ("qwen3-8b", 8.19), ("qwen3-32b", 32.8), ("gemma-3-4b", 3.88)],
)
def test_shapes_of_heads_that_are_not_the_widths_share(name, billions):
    assert SHAPES[name].parameters == pytest.approx(billions * 1e9, rel=0.01)


def test_a_machine_of_ones_own(tmp_path):
    file = tmp_path / "desk.json"
    file.write_text(json.dumps({"bandwidth": 90, "flops": 4.4, "memory": 64}))
    one, other = run_plan("8b", "1b", hardware=str(file)), run_plan("8b", "1b", hardware="ryzen-9950x")
    assert one["hardware"] == "desk"
    assert one["plain_seconds"] == pytest.approx(other["plain_seconds"], rel=0.01)
    slower = run_plan("8b", "1b", hardware="ryzen-9950x", bandwidth=45)
    assert slower["plain_seconds"] == pytest.approx(2 * other["plain_seconds"], rel=0.05)
    assert "as given" in slower["hardware_source"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"bandwidth": "fast", "flops": 1, "memory": 1}'])
def test_a_file_that_is_no_machine_is_told_what_one_has(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match="bandwidth, flops and memory"):
        run_plan(hardware=str(tmp_path / "x.json"))
    with pytest.raises(UsageError, match="positive"):
        run_plan(hardware="a100", bandwidth=-1)
