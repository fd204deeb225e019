"""Grammars of calls: what a family writes passes and is taken apart again, anything else is stopped."""

import json

import numpy as np
import pytest

from paceline.engine.loading import read_tokenizer
from paceline.formats.gguf import GgufFile
from paceline.text.call_forms import form_of_calls
from paceline.text.grammar import mask_of
from paceline.text.reply_parts import STYLES, ReplyParts

STYLE = {style.name: style for style in STYLES}
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get", "parameters": CITY}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "bare"}},
]


@pytest.fixture(scope="module")
def tokenizer(talker):
    return read_tokenizer(GgufFile.open(talker))


def passed(tokenizer, form, text):
    """How many of the text's tokens the form allows, and whether it may end there."""
    mask, ids = mask_of(form, tokenizer), tokenizer.encode(text, add_bos=False)
    for count, token in enumerate(ids):
        if not mask.allowed(np.array(ids[:count], np.int32))[token]:
            return count, False
    return len(ids), bool(mask.allowed(np.array(ids, np.int32))[min(tokenizer.eos_ids)])


GOOD = [
    ("hermes", '<tool_call>\n{"name": "get", "arguments": {"city": "Bonn", "n": 3}}\n</tool_call>', 1),
    ("hermes", '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>\n'
     '<tool_call>\n{"name": "get", "arguments": {"city": "B"}}\n</tool_call>', 2),
    ("mistral", '[TOOL_CALLS][{"name": "get", "arguments": {"city": "B"}},{"name": "bare", "arguments": {"x":1}}]', 2),
    ("granite", '<|tool_call|>[{"name": "stop", "arguments": {}}]', 1),
    ("llama", '{"name": "get", "parameters": {"city": "Bonn"}}', 1),
    ("qwen-coder", "<tool_call>\n<function=get>\n<parameter=city>\nBo</x>\n\nnn\n</parameter>\n"
     "<parameter=n>\n4\n</parameter>\n</function>\n</tool_call>", 1),
    ("qwen-coder", "<tool_call>\n<function=stop>\n</function>\n</tool_call>", 1),
]  # fmt: skip


def form(style, tools=TOOLS, **settings):
    return form_of_calls(STYLE[style], tools, json.dumps(STYLE[style].begin), **settings)


@pytest.mark.parametrize(("style", "text", "count"), GOOD)
def test_what_a_family_writes_passes_and_is_a_call(tokenizer, style, text, count):
    assert passed(tokenizer, form(style), text) == (len(tokenizer.encode(text, add_bos=False)), True)
    reader = ReplyParts(style=STYLE[style], tools=TOOLS)
    parts = [*reader.push(text), *reader.finish()]
    assert reader.calls == count
    assert {part.kind for part in parts} == {"call", "arguments"}


@pytest.mark.parametrize(
    ("style", "text", "settings"),
    [
        ("hermes", "Hello", {}),
        ("hermes", '<tool_call>\n{"name": "other"', {}),
        ("hermes", '<tool_call>\n{"name": "get", "arguments": {"n": 1', {}),
        ("hermes", GOOD[1][1], {"is_single": True}),
        ("hermes", GOOD[0][1], {"tools": TOOLS[1:]}),
        ("qwen-coder", "<tool_call>\n<function=get>\n<parameter=n>", {}),
        ("qwen-coder", "<tool_call>\n<function=get>\n</function>", {}),
    ],
)
def test_anything_else_is_stopped(tokenizer, style, text, settings):
    count, _ = passed(tokenizer, form(style, **settings), text)
    assert count < len(tokenizer.encode(text, add_bos=False))
