"""What the command line was told is what the model is loaded with and what its tokens are drawn by."""

import io
import re
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from paceline.cli import options
from paceline.config import LLMConfig
from paceline.core.request import SamplingParams
from paceline.errors import UsageError

LOADING = {
    "model": "m",
    "quant": "q8",
    "context": 77,
    "draft": "m",
    "draft_tokens": 3,
    "draft_quant": "bf16",
    "draft_head": 5,
    "threads": 2,
    "verify": "coupled",
    "control": "fixed",
}
DRAWING = {
    "max_tokens": 9,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.25,
    "typical_p": 0.75,
    "min_p": 0.1,
    "seed": 4,
    "repetition_penalty": 1.25,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "min_tokens": 2,
}
LISTS = {"stop": ("a", "b"), "bad_words": ("c", " d"), "logit_bias": ((7, -100.0), (9, 1.5))}
SOURCES = {path.name: path.read_text() for path in Path(options.__file__).parent.glob("*.py")}
REPEATED = ["--stop", "a", "--stop", "b", "--bad-word", "c", "--bad-word", " d"]
REPEATED += ["--logit-bias", "7=-100", "--logit-bias", "9=1.5"]


@pytest.mark.parametrize("command", ["generate", "chat", "audit"])
def test_every_option_reaches_its_setting(cli, monkeypatch, command):
    loaded, drawn, chosen = [], [], options.Shared.chosen

    def watch(given):
        config, params = chosen(given)
        drawn.append(params)
        return config, params

    def load(**settings):
        loaded.append(settings)
        raise UsageError("far enough")

    monkeypatch.setattr(options.Shared, "chosen", watch)
    monkeypatch.setattr("paceline.service.llm.LLM", load)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a prompt")))
    given = [f"--{name.replace('_', '-')}={value}" for name, value in {**LOADING, **DRAWING}.items()]
    more = ["--logprobs", "5", "--json"] if command == "generate" else []
    result = cli(command, *given, *REPEATED, *more, "--ignore-eos")
    assert result.err == "error: far enough\n"
    assert loaded == [asdict(LLMConfig(**LOADING)) | {"progress": True}]
    wanted = SamplingParams(**DRAWING, **LISTS, ignore_eos=True, logprobs=5 if more else None)
    assert drawn == [wanted]


def test_every_setting_has_an_option_except_pythons_and_servers():
    """`slots` and `cache_bytes` are no use to one request, a processor is code, allowed ids a program's."""
    assert {field.name for field in fields(LLMConfig)} == {*LOADING, "slots", "cache_bytes"}
    assert {field.name for field in fields(SamplingParams)} == {
        *DRAWING,
        *LISTS,
        "ignore_eos",
        "logprobs",
        "allowed_tokens",
        "logits_processors",
        "grammar",
        "skip_special_tokens",
    }


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "line", ["audit --distribution-seconds", "doctor --seconds", "plan --bits", "plan --draft-bits"]
)
def test_numbers_of_no_use_are_refused(cli, line, value):
    result = cli(*line.split(), value)
    assert result.code == 2
    assert line.split()[1] in result.err


@pytest.mark.parametrize("bits", ["0", "-4"])
def test_a_draft_has_bits(cli, bits):
    result = cli("plan", "--draft-bits", bits)
    assert result.code == 2
    assert "--draft-bits" in result.err


def test_a_plan_keeps_its_numbers_on_a_narrow_terminal(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    result = cli("plan")
    assert result.code == 0
    assert "…" not in result.out


def test_help_says_what_self_drafts_are(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = cli("generate", "--help").out
    assert "self:q8" in shown
    assert "self:N" in shown


def test_an_option_is_declared_once_and_alike_in_all_commands(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    pages = {name: cli(*name.split(), "--help").out for name in ("generate", "chat", "audit", "doctor", "bench run")}
    for name in ("--model", "--draft-tokens", "--threads"):
        lines = [
            " ".join(line.split()) for page in pages.values() for line in page.splitlines() if f"│ {name} " in line
        ]
        assert len(lines) == 5
        assert len(set(lines)) == 1, lines
    for name, text in SOURCES.items():
        if name != "options.py":
            assert not re.search(r"(model|draft_tokens|threads|seed|top_k): Annotated", text), name


def test_no_message_of_the_option_parser_is_read_by_pattern():
    assert "re.search" not in SOURCES["main.py"]
