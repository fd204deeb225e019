"""`chat`: the conversation reaches the model turn by turn, commands are carried out, nothing ends it but the end."""

import io
import json
import sys

import pytest

from paceline.cli.conversation import Conversation
from paceline.errors import UsageError

pytestmark = pytest.mark.usefixtures("one_load")


@pytest.fixture
def chat(cli, talker, monkeypatch):
    """Pipe lines into a chat and record every conversation that reaches the model."""
    from paceline.service import llm as home

    asked = []
    load = home.LLM

    def recording(*arguments, **settings):
        llm = load(*arguments, **settings)
        real = type(llm).chat

        def record(self, messages, params=None):
            asked.append([(m["role"], m["content"]) for m in messages])
            return real(self, messages, params)

        monkeypatch.setattr(type(llm), "chat", record)
        return llm

    monkeypatch.setattr(home, "LLM", recording)

    def call(lines, *arguments):
        data = lines if isinstance(lines, bytes) else lines.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return cli("chat", "--model", talker, *arguments), asked

    return call


def test_each_line_is_a_turn_that_follows_from_those_before(chat):
    result, asked = chat("Hello.\n\nAnd again?", "--max-tokens", 6, "--system", "Be brief.")
    assert result.code == 0
    first, second = asked
    assert first == [("system", "Be brief."), ("user", "Hello.")]
    assert second[:2] == first
    assert second[2][0] == "assistant"
    assert second[3] == ("user", "And again?")
    assert result.out.startswith(second[2][1])
    assert result.err.count(" tokens in ") == 2


def test_commands_are_obeyed_and_never_sent(chat):
    result, asked = chat("Hi\n/reset\nHo\n/system Sing.\nHa\n/system\nHu\n/help\n /exit \nnever", "--max-tokens", 1)
    assert result.code == 0
    assert [turns[-1][1] for turns in asked] == ["Hi", "Ho", "Ha", "Hu"]
    assert [len(turns) for turns in asked] == [1, 1, 2, 1]
    assert asked[2][0] == ("system", "Sing.")
    assert "/system TEXT" in result.err
    assert "/quit" in result.err


@pytest.mark.parametrize(
    "line",
    [
        "/etc/hosts is what?",
        "/think What is 2+2?",
        "/nope",
        "/历史是什么",
        "/",
        "//",
        "// a comment",
        "/*",
        "  /x y",
        "/r/python",
        "exit",
        "help",
    ],
)
def test_a_turn_that_begins_with_a_slash_reaches_the_model(chat, line):
    result, asked = chat(f"{line}\n", "--max-tokens", 1)
    assert asked == [[("user", line)]]
    assert result.err.count("\n") == 1  # the summary
    assert result.code == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/rest", "no such command: /rest, so this goes to the model; did you mean /reset?"),
        ("/Exit", "did you mean /exit?"),
        ("/sytem Sing.", "did you mean /system?"),
        ("/help me with this", "/help takes no text, so this goes to the model"),
        ("/quit smoking: how?", "/quit takes no text"),
    ],
)
def test_what_resembles_a_command_reaches_the_model_with_a_notice(chat, line, said):
    result, asked = chat(f"{line}\n", "--max-tokens", 1)
    assert asked == [[("user", line)]]
    assert said in result.err
    assert said not in result.out


@pytest.mark.parametrize("line", ["/exit", "/help", "/system Sing.", "//reset"])
def test_a_command_with_a_second_slash_is_text(chat, line):
    result, asked = chat(f"/{line}\n/help\n", "--max-tokens", 1)
    assert asked == [[("user", line)]]
    assert "//help" in result.err  # the help tells of it


def test_a_full_context_is_said_and_the_chat_goes_on(chat):
    result, asked = chat("Hi\n" + "word " * 90 + "\nHi again\n/reset\nHo\n", "--context", 96, "--max-tokens", 4)
    assert result.code == 1  # a script has to learn of it
    assert "error: the prompt must leave room" in result.err
    assert "hint: a shorter turn fits, or a larger --context" in result.err
    assert [turn[1] for turn in asked[2] if turn[0] == "user"] == ["Hi", "Hi again"]
    assert result.err.count(" tokens in ") == 3


def test_the_second_turn_finds_the_first_in_the_cache(talker):
    from paceline.core.request import SamplingParams
    from paceline.service.llm import LLM

    llm = LLM(talker, draft="off")
    talk = Conversation(llm, SamplingParams(max_tokens=4), None)
    talk.answer("word " * 100)
    opened = []
    real = llm.engine.cache.open
    llm.engine.cache.open = lambda *asked: opened.append(real(*asked)) or opened[-1]
    lengths = []
    length = llm.engine.cache.length
    llm.engine.cache.length = lambda sequence: lengths.append(length(sequence)) or lengths[-1]
    talk.answer("And?")
    assert lengths[0] >= 96


def test_a_model_without_template_is_refused_before_any_turn(chat, monkeypatch):
    def refuse(tokenizer):
        raise UsageError("no template")

    monkeypatch.setattr("paceline.text.chat.ChatTemplate.of", refuse)
    result, asked = chat("Hi\n")
    assert (result.code, asked) == (2, [])
    assert "error: this model has no chat template: it is a base model" in result.err
    assert "hint: use `paceline generate --raw`" in result.err


def test_a_byte_order_mark_is_no_part_of_a_turn(chat):
    result, asked = chat(b"\xef\xbb\xbf/help\n\xef\xbb\xbfHi\n", "--max-tokens", 1)
    assert "/system TEXT" in result.err
    assert asked == [[("user", "\ufeffHi")]]  # anywhere else it is a character
    assert chat(b"\xef\xbb\xbf/exit\nHi\n")[0].out == ""


def test_bytes_that_are_no_text_are_told_of_and_the_chat_goes_on(chat):
    result, asked = chat(b"\xff\xfe\nHi\n", "--max-tokens", 1)
    assert result.code == 1  # a script has to learn of it
    assert "line 1 of stdin must be UTF-8 text; byte 0 is `0xff`" in result.err
    assert asked == [[("user", "Hi")]]


def test_a_reply_is_made_again_by_another_seed(chat):
    drawn = ("--max-tokens", 8, "--temperature", 1.5, "--seed", 4)
    result, asked = chat("Hi\n/retry\n/retry\nHo\n", *drawn)
    first, second, third, _ = result.out.splitlines()
    assert len({first, second, third}) == 3
    assert asked[0] == asked[1] == asked[2] == [("user", "Hi")]
    assert asked[3] == [("user", "Hi"), ("assistant", third), ("user", "Ho")]
    assert chat("Hi\n/retry\n/retry\nHo\n", *drawn)[0].out == result.out


def test_the_last_turn_is_replaced_by_an_edited_one(chat):
    _, asked = chat("Hi\nHo\n/edit Ha\n", "--max-tokens", 2)
    assert [text for role, text in asked[2] if role == "user"] == ["Hi", "Ha"]


def test_a_cut_reply_is_continued_to_what_it_would_have_been(chat):
    result, asked = chat("Hi\n/continue\nHo\n", "--max-tokens", 4)
    whole = chat("Hi\n", "--max-tokens", 8)[0].out.rstrip("\n")
    assert "".join(result.out.splitlines()[:2]) == whole
    assert asked[2][1] == ("assistant", whole)


def test_a_conversation_is_saved_and_loaded(chat, tmp_path):
    file = tmp_path / "talk.json"
    _, asked = chat(f"Hi\n/save {file}\n", "--max-tokens", 3, "--system", "Sing.")
    said = json.loads(file.read_text())
    assert [one["role"] for one in said["messages"]] == ["system", "user", "assistant"]
    chat(f"/load {file}\nHo\n", "--max-tokens", 3)
    assert asked[1] == [*((one["role"], one["content"]) for one in said["messages"]), ("user", "Ho")]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [(None, "No such file"), ("{", "must be JSON"), ("[]", "a list of messages, got none"),
     ('[{"role": "king", "content": "x"}]', "role must be one of"), ('[{"role": "user"}]', "content must be a text")],
)  # fmt: skip
def test_what_is_no_conversation_is_refused_and_nothing_lost(chat, tmp_path, content, wrong):
    file = tmp_path / "talk.json"
    if content is not None:
        file.write_text(content)
    result, asked = chat(f"Hi\n/load {file}\nHo\n", "--max-tokens", 1)
    assert wrong in result.err
    assert "Traceback" not in result.err
    assert len(asked[1]) == 3


def test_settings_are_changed_and_shown(chat):
    result, _ = chat("/set max-tokens 2\nHi\n/set max_tokens 3\nHo\n/show\n/stats\n", "--max-tokens", 1)
    assert "2 tokens in" in result.err
    assert "3 tokens in" in result.err
    assert "max_tokens 3" in result.err
    assert "2 replies, 5 tokens in" in result.err


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("/set temprature 1", "did you mean temperature?"), ("/set top_p 3", "top_p must be"),
     ("/set seed x", "seed must be a number"), ("/retry", "there is no turn yet"),
     ("/continue", "no reply to go on with"), ("/edit", "there is no turn yet")],
)  # fmt: skip
def test_a_command_that_cannot_be_carried_out_says_why(chat, line, wrong):
    result, asked = chat(f"{line}\nHi\n", "--max-tokens", 1)
    assert wrong in result.err
    assert asked == [[("user", "Hi")]]


def test_the_oldest_turns_leave_a_full_context_and_the_rest_stays_cached(chat):
    lines = "".join(f"turn {i} " + "word " * 20 + "\n" for i in range(12))
    result, asked = chat(lines, "--context", 512, "--max-tokens", 4)
    assert result.code == 0, result.err
    assert result.err.count("The context is full") == 1
    firsts = [turns[0][1][:7] for turns in asked]
    assert len(set(firsts)) < len(asked) / 2  # several turns begin alike, and share what is cached
    assert [turns[-1][1][:6] for turns in asked] == [f"turn {i}" for i in range(10)] + ["turn 1", "turn 1"]
