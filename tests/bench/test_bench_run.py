"""The whole programme runs, ends with one line of JSON, and says what it left out."""

import json

import pytest

from paceline.bench.counts import first_difference
from paceline.bench.session import Plan, Session
from paceline.bench.suites import SUITES, Asked, subjects
from paceline.cli.main import run as cli
from paceline.config import DEFAULT_MODEL
from paceline.kernels.native import native, new_pool


def last_line(text):
    return json.loads(text.rstrip("\n").rpartition("\n")[2])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_read_probe_reads_whole_parts(threads):
    probe = native.ReadProbe(new_pool(threads), 3 << 18)
    assert probe.nbytes == 3 << 18
    assert probe.read() > 0
    assert native.ReadProbe(new_pool(threads), 1).nbytes == 1 << 18


def test_products_are_counted_or_unknown():
    assert native.dot_rate(new_pool(1), 0.001) >= 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["fast"], "floor, forward, prefill, decode, speculate, got `fast`"),
        (["decod"], "did you mean `decode`?"),
        (["--repeats", "0"], "--repeats must be at least 1, got `0`"),
        (["--draft-tokens", "x"], "--draft-tokens must be whole numbers"),
        (["--context", "0,4"], "--context must be whole numbers"),
        (["--out", "/nowhere/at/all.json"], "`/nowhere/at` is none"),
    ],
)
def test_unknown_suites_and_numbers_are_wrong_calls(capsys, wrong, said):
    assert cli(["bench", "kernels", *wrong]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


def test_what_is_left_out_is_said(monkeypatch):
    monkeypatch.setattr("paceline.bench.suites.known_models", list)
    for asked, word in ((Asked(), "paceline pull qwen2.5-coder-1.5b"), (Asked(quick=True), "--quick leaves out")):
        notes = []
        assert [subject.model for subject in subjects(asked, notes)] == [DEFAULT_MODEL]
        assert word in notes[0]


def test_a_missing_model_ends_with_json_and_an_error(capsys):
    assert cli(["bench", "kernels", "--model", "no-such-model", "--no-peer"]) == 2
    shown = capsys.readouterr()
    assert "no-such-model" in last_line(shown.out)["error"]
    assert shown.err.startswith("error: ")


def test_a_small_run_reports_every_suite(talker, capsys, tmp_path, monkeypatch):
    file = tmp_path / "found.json"
    small = Plan(
        tuple(SUITES),
        1,
        widths=(1, 4),
        draft_tokens=(3,),
        decode_tokens=6,
        prefill_tokens=40,
        reply_tokens=8,
        quick=True,
    )
    monkeypatch.setattr("paceline.bench.suites.plan_of", lambda options, quick: small)
    monkeypatch.setattr("paceline.bench.floor.LARGE", 1 << 20)
    call = ["--model", str(talker), "--quick", "--no-peer", "--out", str(file)]
    assert cli(["bench", "kernels", *call]) == 0
    found = last_line(capsys.readouterr().out)
    assert found == json.loads(file.read_text())
    assert found["interrupted"] is False
    assert found["machine"]["cpu"]
    (run,) = found["runs"]
    assert run["peer"] == {"missing": "left out by --no-peer"}
    assert list(run["suites"]) == list(SUITES)
    widths = run["suites"]["forward"]["context_64"]["widths"]
    assert list(widths) == ["1", "4"]
    assert widths["1"]["v"]["median"] == 1.0
    assert run["suites"]["decode"]["tokens_per_second"]["median"] > 0
    assert run["suites"]["speculate"]["compared"] > 0
    assert run["suites"]["speculate"]["mismatches"] == []
    assert {bar["metric"] for bar in run["bars"]} == {"decode_over_floor", "outside_ms"}


def test_an_interrupted_run_keeps_what_it_measured(talker, capsys, monkeypatch):
    def interrupt(session, out, progress):
        out["tokens"] = 3
        out["tokens_per_second"] = {"median": 1.0, "min": 1.0, "p25": 1.0, "p75": 1.0}
        raise KeyboardInterrupt

    monkeypatch.setitem(SUITES, "prefill", interrupt)
    monkeypatch.setattr("paceline.bench.floor.LARGE", 1 << 20)
    assert cli(["bench", "kernels", "prefill", "--model", str(talker), "--quick", "--no-peer"]) == 130
    found = last_line(capsys.readouterr().out)
    assert found["interrupted"] is True
    assert found["runs"][0]["suites"]["prefill"]["tokens"] == 3


def test_a_differing_reply_ends_with_exit_code_1(talker, capsys, monkeypatch):
    def differ(session: Session, out, progress):
        entry = {
            "way": "x",
            "workload": "code",
            "index": 0,
            "temperature": 0,
            "position": 3,
            "plain": [1],
            "speculated": [2],
        }
        out.update(settings={"ways": []}, compared=1, mismatches=[entry], temperatures={})

    monkeypatch.setitem(SUITES, "speculate", differ)
    monkeypatch.setattr("paceline.bench.floor.LARGE", 1 << 20)
    assert cli(["bench", "kernels", "speculate", "--model", str(talker), "--quick", "--no-peer"]) == 1
    shown = capsys.readouterr().out
    assert last_line(shown)["mismatches"] == 1
    assert "1 of 1 replies differ" in shown


class Ids:
    def __init__(self, *token_ids):
        self.token_ids = list(token_ids)


def test_the_first_difference_is_found_also_behind_a_shorter_reply():
    assert first_difference(Ids(1, 2, 3), Ids(1, 9, 3)) == {"position": 1, "plain": [2], "speculated": [9]}
    assert first_difference(Ids(1, 2), Ids(1, 2)) is None
    assert first_difference(Ids(1, 2), Ids(1, 2, 3)) == {"position": 2, "plain": [], "speculated": [3]}
