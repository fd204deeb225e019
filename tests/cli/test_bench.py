"""`paceline bench`: a run ends with one line of JSON, goes on where it stopped, and finds a broken verifier."""

import json

import pytest
from conftest import is_an_error

from paceline.bench import run as home
from paceline.bench.records import read
from paceline.choices import register_verifier
from paceline.core.tree import Verdict
from paceline.verify.coupled import CoupledVerifier

SHORT = ("--workload", "chat", "--prompts", 1, "--max-tokens", 4, "--temperature", 0, "--draft", "ngram")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Measure little of the machine."""
    monkeypatch.setattr("paceline.bench.floor.LARGE", 1 << 20)
    monkeypatch.setattr(home, "WIDTHS", (1, 4))
    monkeypatch.setattr(home, "REPEATS", 1)
    monkeypatch.setattr("paceline.engine.calibrate.ROWS", (1, 2, 4))


@pytest.fixture
def bench(cli, talker):
    """Run `bench run` with a tiny model."""
    return lambda *arguments: cli("bench", "run", "--model", talker, *arguments)


def test_an_interrupted_run_keeps_its_measurements_and_goes_on(bench, tmp_path, monkeypatch):
    out = tmp_path / "r.jsonl"
    real = home.play

    def interrupted(*arguments, **options):
        yield next(real(*arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(home, "play", interrupted)
    found = bench(*SHORT, "--prompts", 2, "--out", out)
    assert found.code == 130, found.err
    *table, line = found.out.rstrip("\n").split("\n")
    assert any("ngram optimal" in row for row in table)
    assert any("interrupted" in row for row in table)
    summary = json.loads(line)
    assert (summary["prompts"], summary["compared"], summary["mismatches"]) == (1, 1, [])
    assert summary["interrupted"] is True
    way = summary["temperatures"]["0"]["workloads"]["chat"]["ways"]["ngram optimal"]
    assert way["speedup"]["count"] == 1
    start = summary["starts"][0]
    assert start["forward"]["widths"]["4"]["v"]["median"] > 0
    assert start["machine"]["cpu"]

    found = bench(*SHORT, "--out", out)
    assert found.code == 2
    assert "is there already" in found.err
    found = bench(*SHORT, "--out", out, "--resume", "--json")
    assert json.loads(found.out)["starts"] == summary["starts"]  # one prompt was asked for and is there
    monkeypatch.setattr(home, "play", real)
    found = bench(*SHORT, "--prompts", 2, "--out", out, "--resume", "--json")
    assert found.code == 0
    assert found.out.count("\n") == 1
    assert json.loads(found.out)["prompts"] == 2
    assert len(read(out).starts) == 2


def test_a_verifier_keeping_wrong_tokens_ends_with_exit_1(bench, own_names):
    class Gullible(CoupledVerifier):
        def verify(self, draft, logits, view):
            verdict = super().verify(draft, logits, view)
            return Verdict(tuple(range(1, len(draft.tree))), verdict.bonus)

    register_verifier("coupled", Gullible)
    drawn = ("--workload", "edit", "--prompts", 1, "--max-tokens", 60, "--temperature", 1, "--draft", "ngram")
    found = bench(*drawn, "--control", "fixed:4", "--replay", "--json")
    assert found.code == 1
    (entry,) = json.loads(found.out)["mismatches"]
    assert entry["way"] == "ngram fixed:4"
    assert entry["plain"] != entry["speculated"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume"], "--resume needs the file"),
        (["--prompts", 0], "at least 1, got `0`"),
        (["--workload", "codes"], "did you mean `code`?"),
        (["--temperature", -1], "temperature"),
        (["--control", "fixed:99"], "got `fixed:99`"),
        (["--control", "best"], "got `best`"),
        (["--verify", "trust"], "got `trust`"),
        (["--draft", "off"], "plain decoding is always measured"),
        (["--against", "vllm"], "got `vllm`"),
        (["--max-tokens", 0], "max_tokens"),
        (["--out", "/nowhere/at/all.jsonl"], "which is no folder"),
    ],
)
def test_wrong_calls_are_answered_before_a_model_is_loaded(cli, monkeypatch, arguments, said):
    monkeypatch.setattr(home, "LLM", None)
    found = cli("bench", "run", *arguments)
    assert found.code == 2
    assert said in found.err
    assert is_an_error(found.err)
    assert found.out == ""


def test_an_unknown_drafter_is_said(bench):
    found = bench(*SHORT, "--draft", "nrgam")
    assert found.code == 2
    assert is_an_error(found.err)
    assert "nrgam" in found.err


def test_a_report_of_no_run_is_a_wrong_call(cli, tmp_path):
    found = cli("bench", "report", tmp_path / "none.jsonl", "-o", tmp_path / "r.html")
    assert found.code == 2
    assert "cannot read" in found.err
    assert is_an_error(found.err)


def test_help_names_both_halves(cli):
    found = cli("bench", "--help")
    assert found.code == 0
    assert "report" in found.out
    assert "run" in found.out
    assert "Examples" in cli("bench", "run", "--help").out
