"""`chat`: the conversation reaches the model turn by turn, commands are carried out, nothing ends it but the end."""

import io
import sys

import pytest

from paceline.cli.chat import Conversation
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
    assert "hint: /reset starts anew" in result.err
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
    llm.engine.cache.open = lambda tokens=(): opened.append(real(tokens)) or opened[-1]
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
    assert result.err == "error: this model has no chat template\n\nhint: use `paceline generate --raw`\n"


def test_a_byte_order_mark_is_no_part_of_a_turn(chat):
    result, asked = chat(b"\xef\xbb\xbf/help\n\xef\xbb\xbfHi\n", "--max-tokens", 1)
    assert "/system TEXT" in result.err
    assert asked == [[("user", "\ufeffHi")]]  # anywhere else it is a character
    assert chat(b"\xef\xbb\xbf/exit\nHi\n")[0].out == ""


def test_bytes_that_are_no_text_end_it_with_an_error(chat):
    result, _ = chat(b"\xff\xfe\n")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("iconv -t UTF-8\n")
