"""Colours follow the tokens whatever is held back; nothing a model writes can steer the terminal."""

import io
import random

import pytest

from paceline.cli.terminal import Painter, Screen, is_coloured, visible
from paceline.text.stream import IncrementalDecoder, StopMatcher


class Bytes:
    """A tokenizer whose ids are bytes; 256 is the end."""

    add_space_prefix = False

    def token_bytes(self, token):
        return bytes([token])

    def is_special(self, token):
        return token == 256


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def painter():
    return Painter(IncrementalDecoder(Bytes(), at_start=False))


@pytest.mark.parametrize("seed", range(30))
def test_each_character_has_its_completing_tokens_source(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice("ab é한🏳️‍🌈 \n") for _ in range(40))
    tokens = [*text.encode(), 256]
    sources = [rng.choice(["", "ngram", "model"]) for _ in tokens]
    decoder, stops, painted = IncrementalDecoder(Bytes(), at_start=False), StopMatcher(["ab ab", "한\n"]), []
    paint = painter().paint
    whole, at, hit = "", 0, False
    while at < len(tokens) and not hit:
        size = rng.randint(1, 9)
        released = ""
        for token in tokens[at : at + size]:
            part, hit = stops.push(decoder.push(token))
            released += part
            if hit:
                break
        painted += paint(tokens[at : at + size], sources[at : at + size], released)
        whole += released
        at += size
    if not hit:
        rest = decoder.flush() + stops.flush()
        painted += paint([], [], rest)
        whole += rest
    assert "".join(part for _, part in painted) == whole
    by_character = [source for source, part in painted for _ in part]
    ends, total = [], 0
    for character in whole:
        total += len(character.encode())
        ends.append(sources[total - 1])
    assert by_character == ends


def test_text_beyond_the_tokens_keeps_the_last_source():
    assert painter().paint([0xE9], ["ngram"], "\ufffd") == [("", "\ufffd")]
    assert painter().paint([], [], "") == []


def test_a_terminal_gets_colours_and_a_pipe_does_not():
    for out, wanted in [(Terminal(), "a\x1b[32mb\x1b[0m\x1b[36mc\x1b[0m\n"), (io.StringIO(), "abc\n")]:
        screen = Screen(painter(), out)
        screen.show([97, 98, 99], ["", "ngram", "model"], "abc")
        screen.end()
        screen.end()
        assert out.getvalue() == wanted


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_the_environment_turns_colours_off(monkeypatch, name):
    assert is_coloured(Terminal())
    monkeypatch.setenv(name, {"NO_COLOR": "1", "TERM": "dumb"}[name])
    out = Terminal()
    Screen(painter(), out).show([97], ["ngram"], "a")
    assert out.getvalue() == "a"


def test_control_characters_show_on_terminals_and_stay_in_pipes():
    text = "a\x1b[2J\x07\r\x7f\x9b\tb\n"
    assert visible(text) == "a␛[2J␇␍␡\ufffd\tb\n"
    for out, wanted in [(Terminal(), "a␛[2J"), (io.StringIO(), "a\x1b[2J")]:
        Screen(painter(), out).show([*b"a\x1b[2J"], [""] * 5, "a\x1b[2J")
        assert out.getvalue() == wanted
