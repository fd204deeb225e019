"""A run's file keeps whole lines, goes on where it stopped, and is refused when it is something else."""

import json

import pytest
from run_tools import SETTINGS, prompts, start

from paceline.bench.records import Records, read
from paceline.errors import UsageError


def written(path, count=2):
    records = Records(path, SETTINGS, resume=False)
    records.start(start())
    for record in prompts()[:count]:
        records.add(record)
    return records


def test_what_was_written_is_read_back(tmp_path):
    written(tmp_path / "r.jsonl")
    found = read(tmp_path / "r.jsonl")
    assert (found.settings, found.starts, found.prompts) == (SETTINGS, [start()], prompts()[:2])


def test_a_run_goes_on_and_knows_what_is_done(tmp_path):
    path = tmp_path / "r.jsonl"
    written(path)
    records = Records(path, {**SETTINGS, "prompts": 5}, resume=True)
    assert records.done() == {("code", 0, 0.0), ("chat", 0, 0.0)}
    records.add(prompts()[2])
    assert len(read(path).prompts) == 3


def test_resuming_nothing_begins(tmp_path):
    assert Records(tmp_path / "new.jsonl", SETTINGS, resume=True).done() == set()
    assert read(tmp_path / "new.jsonl").settings == SETTINGS


def test_a_line_cut_off_is_dropped_and_written_over(tmp_path):
    path = tmp_path / "r.jsonl"
    written(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "prompt", "workl')
    assert len(read(path).prompts) == 2
    records = Records(path, SETTINGS, resume=True)
    assert path.read_bytes() == whole
    records.add(prompts()[2])
    assert len(read(path).prompts) == 3


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    path = tmp_path / "r.jsonl"
    written(path)
    with pytest.raises(UsageError, match="is there already") as wrong:
        Records(path, SETTINGS, resume=False)
    assert "--resume" in wrong.value.hint


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model", "other", "another --model: .*, now `other`"),
        (
            "ways",
            ["ngram fixed:2", "auto optimal"],
            "--draft, --control or --verify: .*now `ngram fixed:2, auto optimal`",
        ),
        ("replay", True, "another --replay: `.*`, now `on`"),
        ("temperatures", [0.5], "another --temperature: .*, now `0.5`"),
        ("max_tokens", 7, "another --max-tokens: .*, now `7`"),
    ],
)
def test_another_run_s_file_is_refused(tmp_path, name, value, said):
    path = tmp_path / "r.jsonl"
    written(path)
    with pytest.raises(UsageError, match=said):
        Records(path, {**SETTINGS, name: value}, resume=True)


@pytest.mark.parametrize(
    "text",
    [
        "hello\n",
        "[1]\n",
        '{"kind": "prompt"}\n',
        '{"kind": "run", "paceline_bench_run": 9, "settings": {}}\n',
        "no end of line",
        json.dumps({"kind": "run", "paceline_bench_run": 2, "settings": SETTINGS}) + '\n{"kind": "prompt", "a": 1}\n',
        "\xff\n",
        "[" * 100_000 + "\n",
    ],
)
def test_what_is_not_ours_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "r.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="must be a file that"):
        Records(path, SETTINGS, resume=True)
    assert path.read_text(encoding="latin-1") == text


def test_no_folder_and_no_file_are_said(tmp_path):
    with pytest.raises(UsageError, match="which is no folder"):
        Records(tmp_path / "a" / "b.jsonl", SETTINGS, resume=False)
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path)
