"""`generate` on the default model: the JSON contract, text in a pipe, the same tokens with and without drafts."""

import io
import json
import re
import sys

import pytest

from tests.cli.conftest import is_an_error

pytestmark = pytest.mark.usefixtures("one_load")

REPEATING = "Say it again, word for word: the wheel turns, the wheel turns, the wheel turns, the wheel turns."
CONTRACT = {
    "model": str,
    "drafters": list,
    "verify": str,
    "control": str,
    "lossless": bool,
    "reproducible": bool,
    "seed": int,
    "text": str,
    "token_ids": list,
    "finish_reason": str,
    "is_cut": bool,
    "usage": {
        "prompt_tokens": int,
        "completion_tokens": int,
        "completion_tokens_details": {"accepted_prediction_tokens": int, "rejected_prediction_tokens": int},
    },
    "speculation": {
        "rounds": int,
        "drafted_tokens": int,
        "accepted_tokens": int,
        "acceptance_rate": float,
        "acceptance_length": float,
        "accepted_per_position": list,
        "by_source": dict,
        "control_reason": str,
    },
    "timing": {
        "load_seconds": float,
        "prefill_seconds": float,
        "decode_seconds": float,
        "tokens_per_second": float,
        "draft_seconds": float,
        "verify_seconds": float,
        "other_seconds": float,
    },
}


def check_shape(value, shape, path=""):
    if isinstance(shape, dict):
        assert list(value) == list(shape), path
        for name, inner in shape.items():
            check_shape(value[name], inner, f"{path}.{name}")
    else:
        assert type(value) is shape, f"{path}: {value!r}"


def as_json(cli, *arguments):
    result = cli("generate", *arguments, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    return json.loads(result.out)


@pytest.fixture
def quick(cli, talker):
    """Run a command line with a tiny model, where what is said does not matter; it drafts whether that pays or not."""

    def call(command, *arguments):
        always = [] if "off" in arguments else ["--control", "fixed"]
        return cli(command, "--model", talker, *always, *arguments)

    return call


def test_json_is_one_object_with_the_keys_of_the_contract(cli):
    reply = as_json(cli, REPEATING, "--draft", "ngram", "--max-tokens", 24)
    check_shape(reply, CONTRACT)
    spoken, usage = reply["speculation"], reply["usage"]
    details = usage["completion_tokens_details"]
    assert (reply["model"], reply["drafters"]) == ("smollm2-135m", ["ngram"])
    assert usage["completion_tokens"] == len(reply["token_ids"]) <= 24
    assert spoken["accepted_tokens"] == sum(spoken["accepted_per_position"]) == details["accepted_prediction_tokens"]
    assert spoken["drafted_tokens"] - spoken["accepted_tokens"] == details["rejected_prediction_tokens"]
    assert spoken["by_source"]["ngram"]["drafted"] == spoken["drafted_tokens"] > 0
    assert spoken["acceptance_length"] == pytest.approx(usage["completion_tokens"] / spoken["rounds"])
    after, seconds = usage["completion_tokens"] - 1, reply["timing"]["decode_seconds"]
    assert reply["timing"]["tokens_per_second"] == pytest.approx(after / seconds)


@pytest.mark.parametrize("draw", [[], ["--temperature", "0.8", "--seed", "7", "--top-p", "0.95"]])
def test_drafts_change_nothing_but_the_numbers(quick, draw):
    plain = as_json(quick, REPEATING, "--draft", "off", "--max-tokens", 24, *draw)
    fast = as_json(quick, REPEATING, "--draft", "ngram", "--max-tokens", 24, *draw)
    assert plain["drafters"] == []
    assert plain["speculation"]["drafted_tokens"] == 0 < fast["speculation"]["drafted_tokens"]
    assert (plain["token_ids"], plain["text"]) == (fast["token_ids"], fast["text"])


def test_json_has_log_probabilities_when_asked(quick):
    plain, fast = (
        as_json(quick, REPEATING, "--draft", d, "--max-tokens", 8, "--logprobs", 2) for d in ("off", "ngram")
    )
    check_shape(fast, {**CONTRACT, "logprobs": list})
    assert plain["logprobs"] == fast["logprobs"]
    assert [one["token_id"] for one in fast["logprobs"]] == fast["token_ids"]
    entry = {"token_id": int, "token": str, "logprob": float, "bytes": list}
    for one in fast["logprobs"]:
        check_shape(one, {**entry, "top_logprobs": list})
        assert len(one["top_logprobs"]) == 2
        assert one["top_logprobs"][0] == {name: one[name] for name in entry}  # greedy


def test_distribution_settings_change_replies_alike_with_and_without_drafts(cli):
    settings = ["--repetition-penalty", 1.3, "--bad-word", "wheel", "--logit-bias", "0=-5", "--min-tokens", 4]
    free = as_json(cli, REPEATING, "--max-tokens", 12)
    plain, fast = (as_json(cli, REPEATING, "--draft", d, "--max-tokens", 12, *settings) for d in ("off", "ngram"))
    assert plain["token_ids"] == fast["token_ids"] != free["token_ids"]
    assert "wheel" in free["text"]
    assert "wheel" not in plain["text"]


def test_a_pipe_gets_the_text_and_stderr_one_line(cli):
    text = as_json(cli, REPEATING, "--draft", "ngram", "--max-tokens", 24)["text"]
    result = cli("generate", REPEATING, "--draft", "ngram", "--max-tokens", 24)
    assert (result.code, result.out) == (0, text.removesuffix("\n") + "\n")
    assert re.fullmatch(
        r"\d+ tokens in [\d.]+ s · [\d.]+ tokens/s · acceptance length [\d.]+ \(bonus included\) · "
        r"accepted \d+ % \(ngram \d+/\d+\) · ~[\d.]+× plain( · cut at --max-tokens 24)?\n",
        result.err,
    ), result.err


def test_the_summary_says_when_nothing_was_guessed(quick):
    assert "speculation off" in quick("generate", "Hi", "--draft", "off", "--max-tokens", 3).err
    assert quick("generate", "Hi", "--draft", "off", "--max-tokens", 1).err.startswith("1 token in ")


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_stdin_is_the_prompt_without_its_last_line_end(quick, monkeypatch, end):
    wanted = as_json(quick, "Hi 🚴", "--max-tokens", 2)
    for arguments in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(("Hi 🚴" + end).encode())))
        got = as_json(quick, *arguments, "--max-tokens", 2)
        assert got["usage"] == wanted["usage"]
        assert got["token_ids"] == wanted["token_ids"]


def test_raw_leaves_the_template_out_and_keeps_the_line_end(cli, monkeypatch):
    chat, raw = (as_json(cli, "Once upon a time", "--max-tokens", 2, *extra) for extra in ([], ["--raw"]))
    assert raw["usage"]["prompt_tokens"] == 4 < chat["usage"]["prompt_tokens"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Once upon a time\n")))
    assert as_json(cli, "--raw", "--max-tokens", 2)["usage"]["prompt_tokens"] == 5


def test_special_reads_control_tokens_in_a_raw_prompt(quick):
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    chat = as_json(quick, "Hi", "--max-tokens", 2)
    raw = as_json(quick, text, "--raw", "--special", "--max-tokens", 2)
    assert raw["usage"]["prompt_tokens"] == chat["usage"]["prompt_tokens"]
    assert raw["token_ids"] == chat["token_ids"]
    assert as_json(quick, text, "--raw", "--max-tokens", 2)["usage"]["prompt_tokens"] == len(text)
    result = quick("generate", "Hi", "--special")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("hint: add --raw\n")


def test_system_text_reaches_the_model(quick):
    short, long = (as_json(quick, "Hi", "--system", text, "--max-tokens", 1) for text in ("A", "A B C D E F"))
    assert long["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"]


def test_stop_strings_and_ends(quick):
    text = as_json(quick, "Count to five.", "--max-tokens", 24)["text"]
    at = len(text) // 2
    stopped = as_json(quick, "Count to five.", "--max-tokens", 24, "--stop", "never there", "--stop", text[at : at + 4])
    assert stopped["text"] == text[: text.index(text[at : at + 4])]
    assert stopped["finish_reason"] == "stop"
    on = as_json(quick, "Hi", "--max-tokens", 12, "--ignore-eos")
    assert (on["finish_reason"], on["usage"]["completion_tokens"]) == ("length", 12)


def test_a_text_cut_inside_an_emoji_is_still_written(cli):
    for count in (1, 2, 3):
        result = cli("generate", "--raw", "🎉🚴‍♀️🎉🚴‍♀️🎉🚴‍♀️🎉", "--max-tokens", count)
        assert result.code == 0
        assert "\ufffd" not in result.out.rstrip("\n")[:-1]


def test_json_says_that_a_text_is_cut_inside_a_character(cli):
    cut = set()
    for count in range(1, 9):
        reply = as_json(cli, "--raw", "--max-tokens", count, "世界")
        assert reply["is_cut"] == (reply["text"][-1:] == "\ufffd"), reply["text"]
        cut.add(reply["is_cut"])
    assert cut == {True, False}


def test_a_prompt_longer_than_the_context_is_an_error(quick):
    result = quick("generate", "word " * 200, "--context", 64)
    assert (result.code, result.out) == (1, "")
    assert "--context" in result.err
    assert is_an_error(result.err)
    result = quick("generate", "Hi", "--context", 99999999 // 10)
    assert result.code == 2
    assert is_an_error(result.err)


def test_a_context_that_fills_up_is_said(quick):
    result = quick("generate", "Hi", "--ignore-eos", "--context", 48)
    assert result.code == 0
    assert "cut: the context of 48 tokens is full" in result.err


def test_a_form_of_the_reply_comes_as_text_or_file(cli, talker, tmp_path):
    result = cli("generate", "--model", talker, "Say", "--regex", "(ab){2}")
    assert (result.code, result.out.strip()) == (0, "abab"), result.err
    (tmp_path / "form.lark").write_text('start: "aa" | "aa"')
    result = cli("generate", "--model", talker, "Say", "--lark", tmp_path / "form.lark")
    assert (result.code, result.out.strip()) == (0, "aa"), result.err


def test_two_forms_of_one_reply_are_refused(cli):
    result = cli("generate", "Say", "--regex", "a", "--json-schema", "{}")
    assert result.code == 2
    assert "one form, got --json-schema and --regex" in result.err
