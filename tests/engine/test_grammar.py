"""Replies of a given form: the form holds, and speculation changes no token of them."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from paceline import Grammar, UsageError
from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams
from paceline.draft.base import NoDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush, half_liar, liar
from paceline.text import grammar as home
from paceline.verify.coupled import CoupledVerifier

END = 256
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMS = {
    "regex": Grammar.regex(r"(ab|ba){3}-[0-9]{2,4}"),
    "schema": Grammar.json_schema(SCHEMA),
    "lark": Grammar.lark('start: "[" item ("," item)* "]"\nitem: /[a-c]{1,3}/'),
    "choice": Grammar.choice(["yes", "no", 'say "no"']),
}
DRAWS = {"greedy": SamplingParams(max_tokens=60), "sampled": SamplingParams(temperature=1.3, seed=7, max_tokens=60)}


@pytest.fixture(scope="module")
def tokenizer():
    return ByteTokenizer([*(bytes([i]) for i in range(256)), b"<end>"], eos_ids=[END], special=[END])


@pytest.fixture(scope="module")
def model():
    """A model of 257 tokens that likes letters and ends, so that forms complete."""
    liked = np.zeros(257, np.float32)
    liked[[*b'abc019"}]-', END]] = 4
    chance = np.random.default_rng(3)
    table = chance.normal(size=(257, 257)).astype(np.float32) + liked
    return TinyModel(257, reach=1, context=512, distribution=lambda seen: table[seen[-1]])


def say(model, tokenizer, params, drafter=None, prompt=b"Say: "):
    engine = Engine(
        model, tokenizer, drafter or NoDrafter(), FixedController(6), CoupledVerifier(), context=256, slots=2
    )
    engine.add(Request(1, list(prompt), params))
    events = list(engine.run())
    assert events[-1].error is None, events[-1].error
    return [token for event in events for token in event.tokens], "".join(e.text for e in events), events[-1]


def formed(name, text):
    if name == "schema":
        said = json.loads(text)
        return set(said) == {"name", "age"} and isinstance(said["age"], int)
    patterns = {"regex": r"(ab|ba){3}-[0-9]{2,4}", "lark": r"\[[a-c]{1,3}(,[a-c]{1,3})*\]", "choice": 'yes|no|say "no"'}
    return re.fullmatch(patterns[name], text) is not None


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", FORMS)
def test_replies_have_the_form_and_drafts_change_nothing(model, tokenizer, name, draw):
    params = replace(DRAWS[draw], grammar=FORMS[name])
    tokens, text, last = say(model, tokenizer, params)
    assert last.finish_reason == "length" or formed(name, text), text
    answers = {1: tokens}
    for script in (liar(256), half_liar(256, 3), bush(256, right_for=4)):
        drafted = say(model, tokenizer, params, ScriptedDrafter(script, answers))
        assert drafted[:2] == (tokens, text)
    assert say(model, tokenizer, params, NgramDrafter(), prompt=b"Say: ")[:2] == (tokens, text)


def test_a_mask_without_the_drafted_path_shows(model, tokenizer, monkeypatch):
    params = replace(DRAWS["greedy"], grammar=FORMS["regex"])
    tokens, text, _ = say(model, tokenizer, params)
    real, lengths = home.Mask.allowed, []

    def stale(self, written):
        lengths.append(len(written))
        return real(self, written[: -1 if len(written) > 2 else None])

    monkeypatch.setattr(home.Mask, "allowed", stale)
    drafted = say(model, tokenizer, params, ScriptedDrafter(half_liar(256, 3), {1: tokens}))
    assert lengths
    assert drafted[:2] != (tokens, text)


def test_a_complete_form_ends_the_reply(model, tokenizer):
    tokens, text, last = say(model, tokenizer, SamplingParams(max_tokens=50, grammar=Grammar.choice(["abc"])))
    assert (text, last.finish_reason, tokens[-1]) == ("abc", "stop", END)


@pytest.mark.parametrize(
    "wrong",
    [Grammar.regex("(unclosed"), Grammar.lark("begin: /a/"), Grammar.json_schema('{"type": "nothing"}'),
     Grammar.json_schema("{no json")],
)  # fmt: skip
def test_a_grammar_that_cannot_be_read_is_refused(model, tokenizer, wrong):
    with pytest.raises(UsageError, match=r"grammar must be a .* that can be read, got"):
        say(model, tokenizer, SamplingParams(grammar=wrong))


@pytest.mark.parametrize("wrong", ["a+", {"type": "object"}, Grammar("xml", "<a>")])
def test_what_is_no_grammar_is_refused_by_name(model, tokenizer, wrong):
    with pytest.raises(UsageError, match=r"grammar must be None or a paceline\.Grammar, got"):
        say(model, tokenizer, SamplingParams(grammar=wrong))


def test_without_the_library_the_error_says_what_to_install(model, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError, match="needs llguidance"):
        say(model, tokenizer, SamplingParams(grammar=FORMS["regex"]))
