"""What the command line was told is what the model is loaded with and what its tokens are drawn by."""

import io
import sys
from dataclasses import asdict, fields

import pytest

from paceline.cli import options
from paceline.config import LLMConfig
from paceline.errors import UsageError
from paceline.types import SamplingParams

LOADING = {
    "model": "m",
    "quant": "q8",
    "context": 77,
    "draft": "off",
    "draft_tokens": 3,
    "draft_quant": "bf16",
    "draft_head": 5,
    "threads": 2,
    "verify": "coupled",
    "control": "fixed",
}
DRAWING = {"max_tokens": 9, "temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0.1, "seed": 4}


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_every_option_reaches_its_setting(cli, monkeypatch, command):
    loaded, drawn, chosen = [], [], options.chosen

    def watch(given):
        config, params = chosen(given)
        drawn.append(params)
        return config, params

    def load(**settings):
        loaded.append(settings)
        raise UsageError("far enough")

    monkeypatch.setattr(options, "chosen", watch)
    monkeypatch.setattr("paceline.engine.llm.LLM", load)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a prompt")))
    given = [f"--{name.replace('_', '-')}={value}" for name, value in {**LOADING, **DRAWING}.items()]
    result = cli(command, *given, "--stop", "a", "--stop", "b", "--ignore-eos")
    assert result.err == "error: far enough\n"
    assert loaded == [asdict(LLMConfig(**LOADING)) | {"progress": True}]
    assert drawn == [SamplingParams(**DRAWING, stop=("a", "b"), ignore_eos=True)]


def test_every_setting_has_an_option_but_for_slots_which_one_request_cannot_use():
    assert {field.name for field in fields(LLMConfig)} == {*LOADING, "slots"}
    assert {field.name for field in fields(SamplingParams)} == {*DRAWING, "stop", "ignore_eos"}
