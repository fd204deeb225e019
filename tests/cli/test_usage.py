"""A wrong call: exit code 2 or 1, two lines on stderr, nothing on stdout, and no model loaded for it."""

import io
import json
import re
import sys

import pytest

from paceline.cli.main import COMMANDS
from tests.cli.conftest import is_an_error

WRONG = [
    (["genrate"], "did you mean `generate`?"),
    (["--nope"], "no such option: --nope"),
    (["generate", "--tempratur", "1", "x"], "did you mean `--temperature`?"),
    (["generate", "-5 + 3"], "put `--` before"),
    (["generate", "a", "b"], "unexpected extra argument"),
    (["generate", "--model"], "paceline generate --help"),
    (["generate", "--top-k", "many", "x"], "--top-k must be a whole number, got `many`"),
    (["generate", "--top-p=half", "x"], "--top-p must be a number, got `half`"),
    (["doctor", "--seconds", "-3"], "--seconds must be at least 1, got `-3`"),
    (["plan", "--batch=99999999999999999999"], "--batch must be at most 65536, got `99999999999999999999`"),
    (["generate", "--threads", "0", "x"], "threads"),
    (["generate", "--draft-tokens", "65", "x"], "draft_tokens"),
    (["generate", "--context", "1", "x"], "context"),
    (["generate", "--quant", "q5", "x"], "q4, q8"),
    (["generate", "--quant", "q4s", "x"], "got `q4s`"),
    (["generate", "--draft-quant", "q5", "x"], "f32, q4s"),
    (["generate", "--verify", "sometimes", "x"], "coupled"),
    (["generate", "--control", "magic", "x"], "fixed"),
    (["generate", "--control", "fixd", "x"], "got `fixd`\n\nhint: did you mean `fixed`?"),
    (["generate", "--verify", "typicl", "x"], "got `typicl`\n\nhint: did you mean `typical`?"),
    (["generate", "--temperature", "-1", "x"], "temperature"),
    (["generate", "--temperature", "nan", "x"], "temperature"),
    (["generate", "--top-p", "0", "x"], "top_p"),
    (["generate", "--top-p", "1.5", "x"], "top_p"),
    (["generate", "--min-p", "2", "x"], "min_p"),
    (["generate", "--top-k", "-1", "x"], "top_k"),
    (["generate", "--max-tokens", "0", "x"], "max_tokens"),
    (["generate", "--stop", "", "x"], "stop"),
    (["generate", "--repetition-penalty", "0", "x"], "repetition_penalty"),
    (["generate", "--presence-penalty", "3", "x"], "presence_penalty"),
    (["generate", "--frequency-penalty", "-3", "x"], "frequency_penalty"),
    (["generate", "--typical-p", "0", "x"], "typical_p"),
    (["generate", "--min-tokens", "9", "--max-tokens", "8", "x"], "min_tokens"),
    (["generate", "--bad-word", "", "x"], "bad_words"),
    (["generate", "--logit-bias", "7", "x"], "ID=VALUE"),
    (["generate", "--logit-bias", "7=lots", "x"], "ID=VALUE"),
    (["generate", "--logit-bias", "7=101", "x"], "logit_bias of token 7"),
    (["generate", "--logprobs", "21", "--json", "x"], "logprobs"),
    (["generate", "--logprobs", "1", "x"], "--json"),
    (["chat", "--repetition-penalty", "0"], "repetition_penalty"),
    (["generate", "--raw", "--system", "s", "x"], "--raw leaves it out"),
    (["generate", ""], "the prompt is empty"),
    (["generate", " \n"], "the prompt is empty"),
    (["generate", "\udcff"], "0xff"),
    (["generate", "--json", ""], "the prompt is empty"),
    (["chat", "--temperature", "-1"], "temperature"),
    (["pull"], "smollm2-135m"),
    (["pull", "hf:nonsense"], "hf:ORG/NAME"),
    (["generate", "--draft", "off,ngram", "x"], "hint: --draft off, or --draft ngram"),
    (["generate", "--draft", "auto,off", "x"], "`off` turns guessing off and must be the only drafter"),
    (["generate", "--draft", "auto,ngram,auto", "x"], "got `auto` twice in `auto,ngram,auto`"),
    (["generate", "--draft", "auto:3", "x"], "draft `auto` takes no argument, got `auto:3`\n\nhint: --draft auto\n"),
    (["generate", "--draft", "staged", "x"], "needs the model it drafts for, got `staged`\n\nhint: --draft staged:"),
    (["generate", "--verify", "block:2", "x"], "verify `block` takes no argument"),
    (
        ["generate", "--draft", "m,n", "--verify", "tree", "x"],
        "weighs guesses by the distribution of one drafter, got `m` and `n`\n\nhint: --verify coupled takes any mix",
    ),
    (["generate", "--draft", "ngram,", "x"], "got an empty one in `ngram,`\n\nhint: --draft ngram\n"),
    (["generate", "--draft", " , ngram", "x"], "got an empty one"),
    (["generate", "--draft", "ngram,ngram", "x"], "`ngram` twice"),
    (["generate", "--draft", "off:3", "x"], "takes no argument"),
    (["generate", "--draft", "", "x"], "got an empty one"),
    (["generate", "--draft", "predicted", "x"], "give the text that you expect: --prediction FILE"),
    (["generate", "--draft", "ngram,predicted", "x"], "got none"),
    (["chat", "--draft", "predicted"], "only `paceline generate` and `paceline audit` take one"),
    (["audit", "--draft", "predicted"], "give the text that you expect"),
    (["doctor", "--draft", "predicted"], "only `paceline generate` and `paceline audit` take one"),
    (["generate", "--draft", "off", "--verify", "block", "x"], "got `block`\n\nhint: drop --verify, or --draft auto\n"),
    (["generate", "--draft", "off", "--control", "fixed", "x"], "control must not be set where draft `off` turns"),
    (["chat", "--draft", "off", "--draft-quant", "q8"], "draft_quant must not be set where draft `off` turns"),
    (["chat", "--draft", "off", "--draft-head", "0"], "draft_head must not be set where draft `off` turns"),
    (["generate", "--draft-tokens", "0", "--control", "ema", "x"], "draft_tokens `0` turns guessing off, got `ema`"),
    (["generate", "--draft-tokens", "0", "--control", "fixed", "x"], "turns guessing off, got `fixed`"),
    (["audit", "--draft", "off", "--verify", "rejection"], "got `rejection`"),
    (["doctor", "--draft", "off", "--control", "ema"], "got `ema`"),
    (["generate", "--draft", "ngram", "--draft-head", "99", "x"], "draft `ngram` loads no model, got `99`"),
    (["generate", "--draft", "suffix:f,recycle", "--draft-quant", "q8", "x"], "or name a model for --draft"),
    (
        ["generate", "--draft", "self:q4", "--draft-quant", "q8", "x"],
        "or draft with a packed copy of it: --draft self:q8\n",
    ),
    (["generate", "--draft", "self:6", "--draft-quant", "q4", "x"], "draft `self:6` is made of the target, got `q4`"),
    (["generate", "--draft", "self:6", "--draft-quant", "auto", "x"], "--draft self:q4\n"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), WRONG, ids=lambda value: " ".join(value)[:30].encode("ascii", "replace")
)
def test_a_wrong_call_gets_two_lines_and_code_2(cli, monkeypatch, arguments, said):
    monkeypatch.setattr("paceline.service.llm.LLM", lambda *_, **__: pytest.fail("a model was loaded for it"))
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert is_an_error(result.err), result.err


@pytest.mark.parametrize(
    ("draft", "said"),
    [("predicted", "only `paceline generate` and `paceline audit` take one"), ("ngram,", "got an empty one")],
)
def test_a_benchmark_is_refused_before_it_begins(cli, monkeypatch, draft, said):
    monkeypatch.setattr("paceline.bench.run.LLM", lambda *_, **__: pytest.fail("a model was loaded for it"))
    result = cli("bench", "run", "--draft", draft)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert is_an_error(result.err), result.err


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"", b"\n", b"\xef\xbb\xbf"])
def test_stdin_that_is_no_prompt_is_a_wrong_call(cli, monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    for arguments in (["generate"], ["generate", "-"]):
        result = cli(*arguments)
        assert (result.code, result.out) == (2, "")
        assert is_an_error(result.err), result.err
        sys.stdin.seek(0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--model", "smollm2-135n", "x"], "did you mean `smollm2-135m`?"),
        (["generate", "--model", "/nowhere/model.gguf", "x"], "/nowhere/model.gguf"),
        (["generate", "--json", "--model", "/nowhere/model.gguf", "x"], "/nowhere/model.gguf"),
        (["generate", "--model", "./nope.gguf", "x"], "hint: check the path\n"),
        (["generate", "--model", "org/name", "x"], "hf:org/name"),
        (["generate", "--draft", "ngrm", "x"], "did you mean `ngram`?"),
        (["generate", "--draft", "smollm", "x"], "did you mean `smollm2-135m`?"),
        (["generate", "--draft", "ngram,smollm", "x"], "draft model `smollm`"),
        (["audit", "--model", "smollm"], "did you mean `smollm2-135m`?"),
        (["doctor", "--draft", "ngrm"], "did you mean `ngram`?"),
        (["bench", "run", "--model", "smollm"], "did you mean `smollm2-135m`?"),
        (["pull", "smollm"], "did you mean `smollm2-135m`?"),
        (["plan", "--target", "smollm"], "did you mean"),
        (["chat", "--model", "smollm"], "did you mean `smollm2-135m`?"),
    ],
)
def test_a_missing_model_is_a_wrong_call_before_any_loads(cli, monkeypatch, arguments, said):
    monkeypatch.setattr("paceline.engine.loading.open_model", lambda *_: pytest.fail("a model was loaded for it"))
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert is_an_error(result.err), result.err


def test_a_file_that_is_no_model_is_an_error(cli, tmp_path):
    for name, content in [
        ("empty.gguf", b""),
        ("text.gguf", b"hello" * 99),
        ("cut.gguf", b"GGUF\x03\0\0\0" + b"\xff" * 99),
    ]:
        (tmp_path / name).write_bytes(content)
        result = cli("generate", "--model", tmp_path / name, "x")
        assert (result.code, result.out) == (1, "")
        assert is_an_error(result.err), result.err
    result = cli("generate", "--model", tmp_path, "x")
    assert result.code == 2
    assert "without config.json" in result.err


def test_a_file_of_another_kind_is_not_called_damaged(cli, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    result = cli("generate", "--model", tmp_path / "notes.txt", "x")
    assert "not a GGUF file" in result.err
    assert "damaged" not in result.err


@pytest.mark.parametrize(
    "arguments", [["generate", "--model", "", "x"], ["generate", "--draft", "", "x"], ["pull", ""]]
)
def test_an_empty_name_is_a_wrong_call(cli, model, arguments):
    result = cli(*arguments)
    assert result.code == 2
    assert "got an empty one" in result.err


def test_more_than_four_threads_a_core_are_refused(cli):
    from paceline.kernels.native import usable_cores

    wanted = 4 * usable_cores() + 1
    result = cli("generate", "--threads", wanted, "x")
    assert result.code == 2
    assert f"got `{wanted}`" in result.err
    assert is_an_error(result.err)


@pytest.mark.parametrize("arguments", [["models"], ["pull", "smollm2-135m"], ["generate", "x"]])
@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_home_that_is_a_file_is_a_wrong_call(cli, tmp_path, monkeypatch, arguments, inside):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "file" / inside))
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "PACELINE_HOME" in result.err
    assert is_an_error(result.err)


def test_a_file_one_may_not_read_is_an_error(cli, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "secret.gguf")

    monkeypatch.setattr("paceline.service.llm.LLM", refuse)
    result = cli("generate", "x")
    assert result.code == 1
    assert result.err == "error: Permission denied: secret.gguf\n"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [30, 80])
def test_help_fits_the_terminal(cli, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    result = cli(command, "--help")
    assert result.code == 0
    assert f"paceline {command}" in result.out
    assert "bool" not in result.out
    assert max(map(len, result.out.splitlines())) <= columns


@pytest.mark.parametrize("command", ["run", "report"])
def test_a_nested_commands_help_shows_no_type_for_flags(cli, command):
    assert "bool" not in cli("bench", command, "--help").out


def test_help_fills_its_lines(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "greedily and at --temperature, and compares token by token; reads every" in cli("audit", "--help").out


def test_a_hint_names_the_help_of_the_very_command(cli):
    assert "paceline bench run --help" in cli("bench", "run", "--zzz").err
    assert "paceline plan --help" in cli("plan", "--zzz").err


def test_the_top_help_lists_what_is_built_and_nothing_else(cli):
    for arguments in ([], ["--help"], ["-h"]):
        result = cli(*arguments)
        assert result.code == 0
        assert all(name in result.out for name in COMMANDS)
        assert not any(name in result.out for name in ("train", "finetune"))


def test_help_shows_the_defaults_of_the_dataclasses(cli, monkeypatch):
    from paceline.cli.options import CONFIG, PARAMS

    monkeypatch.setenv("COLUMNS", "200")
    text = cli("generate", "--help").out
    for value in (CONFIG.model, CONFIG.draft, CONFIG.draft_tokens, PARAMS.max_tokens, PARAMS.temperature):
        assert f"[default: {value}]" in text


def test_models_is_a_table_a_list_or_json(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").write_bytes(b"12345")
    rows = [line.split("\t") for line in cli("models").out.splitlines()]
    assert rows[0] == ["smollm2-135m", "98362432", "Apache-2.0", ""]
    assert rows[-1] == ["mine", "5", "", str(tmp_path / "models" / "mine.gguf")]
    objects = json.loads(cli("models", "--json").out)
    assert [list(entry.values()) for entry in objects][-1] == ["mine", 5, "", rows[-1][-1]]
    assert objects[0]["path"] is None


@pytest.mark.parametrize("columns", [40, 80])
def test_models_fit_the_terminal(cli, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", cli("models").out).split("\n\n")[0].splitlines()
    assert max(map(len, lines)) <= columns
    assert any("smollm2-135m (default)" in line for line in lines)
    assert any("Apache-2.0" in line for line in lines)


def test_pull_prints_where_a_model_is(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").write_bytes(b"12345")
    result = cli("pull", "mine")
    assert (result.code, result.out, result.err) == (0, f"{tmp_path / 'models' / 'mine.gguf'}\n", "")


def test_a_prediction_needs_speculation_and_a_file(cli, tmp_path):
    (tmp_path / "text").write_text("one two")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfd")
    for arguments, said in (
        (["--draft", "off", "--prediction", tmp_path / "text"], "speculation, which is off"),
        (["--draft-tokens", "0", "--prediction", tmp_path / "text"], "speculation, which is off"),
        (["--draft", "ngram", "--prediction", tmp_path / "text"], "--draft ngram,predicted"),
        (
            ["--draft", "predicted", "--prediction", tmp_path / "none"],
            "No such file or directory\n\nhint: check the path",
        ),
        (["--draft", "predicted", "--prediction", tmp_path], "Is a directory"),
        (["--draft", "predicted", "--prediction", tmp_path / "bytes"], "must be UTF-8"),
    ):
        result = cli("generate", *arguments, "x")
        assert (result.code, result.out) == (2, ""), said
        assert said in result.err
        assert is_an_error(result.err)
