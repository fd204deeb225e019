"""Many prompts or conversations from a file: one JSON line for each, in order, as each would be replied to alone."""

import json

import pytest

from tests.cli.conftest import is_an_error

CONVERSATION = [{"role": "system", "content": "Short."}, {"role": "user", "content": "abc abc"}]


@pytest.fixture
def many(cli, talker):
    def call(*arguments):
        return cli("generate", "-m", talker, "-md", "off", "-t", 1, "-n", 6, *arguments)

    return call


def rows(result):
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_a_conversation_from_a_file_is_replied_to_as_from_options(many, tmp_path):
    file = tmp_path / "one.json"
    alone = many("-sys", "Short.", "abc abc").out
    for said in (CONVERSATION, {"messages": CONVERSATION}):
        file.write_text(json.dumps(said, indent=1))
        assert many("--messages", file).out == alone
    assert json.loads(many("--messages", file, "--json").out)["text"] == alone.removesuffix("\n")


def test_each_line_of_a_file_is_replied_to_as_alone(many, tmp_path):
    file = tmp_path / "many.jsonl"
    asked = [[{"role": "user", "content": "abc" * n}] for n in range(1, 12)]
    file.write_text("\n\n".join(json.dumps(one if n % 2 else {"messages": one}) for n, one in enumerate(asked)))
    found = rows(many("--messages", file))
    assert [one["index"] for one in found] == list(range(11))
    alone = [json.loads(many("--json", one[0]["content"]).out)["token_ids"] for one in asked]
    assert [one["token_ids"] for one in found] == alone


@pytest.mark.parametrize("raw", [(), ("--raw",)])
def test_prompts_are_lines_or_json_strings(many, tmp_path, raw):
    lines, strings = tmp_path / "a.txt", tmp_path / "b.jsonl"
    lines.write_text("abc\n\nno more\n")
    strings.write_text('"abc"\n"no more"\n')
    found = rows(many("--prompts", lines, *raw))
    assert [one["text"] for one in found] == [one["text"] for one in rows(many("--prompts", strings, *raw))]
    assert found[1]["text"] == json.loads(many("--json", "no more", *raw).out)["text"]


def test_what_cannot_be_replied_to_is_told_in_its_place(many, tmp_path):
    file = tmp_path / "many.txt"
    file.write_text("abc\n" + "abc " * 300 + "\nabc\n")
    result = many("--prompts", file, "-c", 64)
    found = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 1
    assert [one["index"] for one in found] == [0, 1, 2]
    assert "room for a reply" in found[1]["error"]["message"]
    assert found[0]["text"] == found[2]["text"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "JSON"),
        ("hello", "JSON or JSON lines"),
        ('[{"role": "user", "content": "a"}]\n{"messages": 3}', "line 2 must be a list"),
        ("[]", "must be a list"),
        ('{"prompt": "a"}', "must be a list"),
    ],
)
def test_a_file_of_another_shape_is_refused_before_a_model_is_loaded(cli, tmp_path, text, words):
    file = tmp_path / "wrong.json"
    file.write_text(text)
    result = cli("generate", "-m", tmp_path / "no-model.gguf", "--messages", file)
    assert (result.code, is_an_error(result.err)) == (2, True), result.err
    assert words in result.err


@pytest.mark.parametrize(
    "arguments", [("--messages", "f", "abc"), ("--prompts", "f", "-p", "a"), ("--prompts", "f", "--messages", "f")]
)
def test_what_to_reply_to_is_given_once(cli, arguments):
    result = cli("generate", *arguments)
    assert (result.code, is_an_error(result.err)) == (2, True)


def test_a_drawn_seed_is_shown_and_repeats_the_reply(cli, talker):
    def call(*arguments):
        return cli("generate", "-m", talker, "-md", "off", "-t", 1, "-n", 20, "--temp", 1.5, *arguments, "abc")

    first = json.loads(call("--json").out)
    again = call("-s", first["seed"])
    assert again.out.removesuffix("\n") == first["text"]
    assert f"seed {first['seed']}" in again.err
    assert json.loads(call("--json").out)["seed"] != first["seed"]


def test_log_probabilities_have_their_tokens_text_and_bytes(cli, talker):
    said = json.loads(
        cli("generate", "-m", talker, "-md", "off", "-t", 1, "-n", 4, "--json", "--logprobs", 2, "abc").out
    )
    text = b"".join(bytes(one["bytes"]) for one in said["logprobs"]).decode()
    assert text.startswith(said["text"])
    assert {*said["logprobs"][0]} == {"token_id", "token", "bytes", "logprob", "top_logprobs"}
    assert all({*one} == {"token_id", "token", "bytes", "logprob"} for one in said["logprobs"][0]["top_logprobs"])


def test_json_lines_have_log_probabilities_without_asking_for_json(many, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("abc\n")
    (one,) = rows(many("--prompts", file, "--logprobs", 1))
    assert len(one["logprobs"]) == len(one["token_ids"])
