"""`calibrate`: measures whatever is kept, keeps what it measured, and says what, where, and how far to trust it."""

import json

import pytest

from paceline.cli.calibrate import summary
from paceline.engine import calibrate
from paceline.engine.calibrate import VERSION
from tests.cli.conftest import is_an_error

SOUND = {
    "made": "2026-11-30T23:10:42+00:00", "repeats": 7, "spread": 0.02, "cpu_share": 0.95, "switches": 40,
    "neighbours": 0.01, "floor_seconds": 0.002, "doubts": [],
}  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "ROWS", (1, 2, 4, 8))
    return tmp_path / "measured"


def test_the_text_says_what_is_kept_where(cli, home, talker):
    result = cli("calibrate", "--model", talker, "--draft", "ngram")
    assert (result.code, result.err) == (0, "")
    (path,) = home.iterdir()
    assert f"kept in {path}\n" in result.out
    for word in ("with ngram", "one token: ", "v(M), one = 1", "calibrated 20", "UTC", "repeats or more"):
        assert word in result.out
    assert "\x1b" not in result.out


def test_it_measures_whatever_is_kept(cli, home, talker):
    said = []
    for _ in range(2):
        result = cli("calibrate", "--model", talker, "--draft", "ngram", "--json")
        assert (result.code, result.err) == (0, "")
        said.append(json.loads(result.out))
        assert len(result.out.splitlines()) == 1
    assert said[0]["path"] == said[1]["path"] == str(next(home.iterdir()))
    assert said[0]["forward_seconds"] != said[1]["forward_seconds"]
    kept = json.loads(next(home.iterdir()).read_text())
    assert kept["version"] == VERSION
    for name in ("forward_seconds", "step_seconds", "quality"):
        assert kept[name] == said[1][name]


def test_the_keys_of_json(cli, home, talker):
    said = json.loads(cli("calibrate", "--model", talker, "--draft", "ngram", "--json").out)
    assert set(said) == {
        "model", "draft", "threads", "drafters", "forward_seconds", "v", "step_seconds", "quality", "is_doubtful",
        "path",
    }  # fmt: skip
    assert set(said["quality"]) == set(SOUND)
    assert said["v"]["1"] == 1.0
    assert said["drafters"] == ["ngram"]
    assert said["is_doubtful"] is bool(said["quality"]["doubts"])


def test_a_reply_begins_with_what_it_kept(cli, home, talker, monkeypatch):
    cli("calibrate", "--model", talker, "--draft", "ngram", "--threads", "1")
    monkeypatch.setattr(calibrate, "worth_replacing", lambda *_: False)
    monkeypatch.setattr(calibrate, "measure", lambda *_: pytest.fail("it is measured already"))
    assert cli("generate", "--model", talker, "--draft", "ngram", "--threads", "1", "--max-tokens", "4", "x").code == 0


def test_a_doubtful_one_says_so(cli, home, talker, monkeypatch):
    monkeypatch.setattr("paceline.engine.quality.SPREAD", -1.0)
    result = cli("calibrate", "--model", talker, "--draft", "ngram")
    assert result.code == 0
    assert "doubtful: repeats of a forward differed by" in result.out


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_where_nothing_drafts_nothing_is_measured(cli, home, talker, monkeypatch, options):
    monkeypatch.setattr("paceline.engine.loading.open_model", lambda *_: pytest.fail("a model was loaded for it"))
    result = cli("calibrate", "--model", talker, "--draft", "off", *options)
    assert (result.code, result.err) == (0, "")
    assert not home.exists()
    if options:
        said = json.loads(result.out)
        assert (said["quality"], said["path"], said["forward_seconds"]) == (None, None, {})
    else:
        assert "nothing to measure" in result.out


def test_a_folder_that_cannot_be_written_is_said(cli, home, talker):
    home.write_text("a file where the folder would be")
    result = cli("calibrate", "--model", talker, "--draft", "ngram")
    assert (result.code, result.err) == (0, "")
    assert "not kept" in result.out
    assert json.loads(cli("calibrate", "--model", talker, "--draft", "ngram", "--json").out)["path"] is None


@pytest.mark.parametrize(("arguments", "said"), [
    (["--seconds", "3"], "no such option: --seconds"),
    (["--modle", "x"], "did you mean `--model`?"),
    (["extra"], "unexpected extra argument"),
    (["--quant", "q5"], "q4, q8"),
    (["--draft", "ngram,"], "got an empty one"),
    (["--draft", "predicted"], "only `paceline generate` and `paceline audit` take one"),
    (["--draft", "off", "--verify", "block"], "got `block`"),
    (["--threads", "0"], "threads"),
    (["--model", "smollm"], "did you mean `smollm2-135m`?"),
    (["--draft", "ngrm"], "did you mean `ngram`?"),
    (["--json", "--model", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
])  # fmt: skip
def test_a_wrong_call_gets_two_lines_and_code_2(cli, home, arguments, said):
    result = cli("calibrate", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert is_an_error(result.err), result.err


def test_a_closed_pipe_ends_it_quietly(spawn, tmp_path, talker):
    process = spawn("calibrate", "--model", talker, "--draft", "ngram", "--json", env={"PACELINE_HOME": str(tmp_path)})
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 1


@pytest.mark.parametrize(("changes", "said"), [
    ({}, "calibrated 2026-11-30 23:10 UTC, quiet, spread 2 %"),
    ({"neighbours": None}, "calibrated 2026-11-30 23:10 UTC, sound, spread 2 %"),
    ({"neighbours": 0.2}, "calibrated 2026-11-30 23:10 UTC, sound, spread 2 %"),
    ({"made": "2026-12-01T01:10:42+02:00"}, "calibrated 2026-11-30 23:10 UTC, quiet, spread 2 %"),
    ({"doubts": ["a", "b"]}, "calibrated 2026-11-30 23:10 UTC, doubtful: a; b"),
])  # fmt: skip
def test_the_summary_is_one_line(changes, said):
    assert summary({**SOUND, **changes}) == said
