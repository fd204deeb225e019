"""Replies taken apart: however the text is cut into pieces, the same reasoning, content and calls come out."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.text.reply_parts import STYLES, ReplyParts, _joined, style_of

STYLE = {style.name: style for style in STYLES}
PROPERTIES = {"city": {"type": "string"}, "n": {"type": "integer"}}
TOOLS = [{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": PROPERTIES}}}]


def apart(style, text, cuts=(), **settings):
    reader, found = ReplyParts(style=STYLE.get(style), tools=TOOLS, **settings), []
    edges = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        found += reader.push(text[start:end])
    found += reader.finish()
    return [(part.kind, part.text, part.call) for part in _joined(found)]


def content(text):
    return ("content", text, 0)


def call(name, arguments, i=0):
    return [("call", name, i), ("arguments", arguments, i)]


CASES = [
    (
        "hermes",
        'Sure.\n<tool_call>\n{"name": "get", "arguments": {"city": "Bonn", "n": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "f", "arguments": "{\\"a\\": 1}"}\n</tool_call>',
        {},
        [content("Sure."), *call("get", '{"city": "Bonn", "n": 3}'), *call("f", '{"a": 1}', 1)],
    ),
    ("hermes", "<think>\nhm\n</think>\n\nHi <tool_ca there", {"reasons": True},
     [("reasoning", "hm", 0), content("Hi <tool_ca there")]),
    ("hermes", "so be it\n</think>\n\nyes", {"reasons": True, "is_thinking": True},
     [("reasoning", "so be it", 0), content("yes")]),
    ("hermes", "<think>never ends", {"reasons": True}, [("reasoning", "never ends", 0)]),
    ("hermes", "no thought", {"reasons": True}, [content("no thought")]),
    ("hermes", '<tool_call>{"arguments": {"a": "}"}, "name": "x"}</tool_call> tail', {},
     [*call("x", '{"a": "}"}'), content("tail")]),
    ("hermes", "<tool_call>\nno JSON\n</tool_call>", {}, [content("<tool_call>\nno JSON\n</tool_call>")]),
    ("hermes", '<tool_call>\n{"name": "x"}\n</tool_call>', {}, call("x", "{}")),
    ("hermes", '<tool_call>\n{"name": "get", "arguments": {"city": "Bo', {}, call("get", '{"city": "Bo')),
    (None, "<tool_call> is a word", {}, [content("<tool_call> is a word")]),
    ("mistral", '[TOOL_CALLS] [{"name": "a", "arguments": {"x": [1, {"y": "]"}]}}, {"name": "b", "arguments": {}}]', {},
     [*call("a", '{"x": [1, {"y": "]"}]}'), *call("b", "{}", 1)]),
    ("mistral", '[TOOL_CALLS]get[ARGS]{"a": 1}', {}, call("get", '{"a": 1}')),
    ("llama", '{"name": "a", "parameters": {"x": 1}}; {"name": "b", "parameters": {"x": 2}}', {},
     [*call("a", '{"x": 1}'), *call("b", '{"x": 2}', 1)]),
    ("llama", '{"x": 1} is JSON', {}, [content('{"x": 1} is JSON')]),
    ("llama", "plain", {}, [content("plain")]),
    (
        "qwen-coder",
        "ok\n<tool_call>\n<function=get>\n<parameter=city>\n1\n</parameter>\n<parameter=n>\n7\n</parameter>\n"
        "</function>\n</tool_call>",
        {},
        [content("ok"), *call("get", '{"city": "1", "n": 7}')],
    ),
    ("granite", '<|tool_call|>[{"name": "a", "arguments": {"x": 1}}]', {}, call("a", '{"x": 1}')),
]  # fmt: skip


@pytest.mark.parametrize(("style", "text", "settings", "wanted"), CASES)
def test_a_reply_is_taken_apart_however_it_is_cut(style, text, settings, wanted):
    assert apart(style, text, **settings) == wanted
    assert apart(style, text, range(1, len(text)), **settings) == wanted
    for at in range(1, len(text)):
        assert apart(style, text, [at], **settings) == wanted, at


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    '{"name": "a", "arguments": {',
    '"x": 1',
    "}}",
    "\n",
    " ",
]
PIECES += ["[TOOL_CALLS]", "word", "<", '"', "\\", "[", "]", "<function=f>", "</function>", "<parameter=n>", "7", "f{"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from([*STYLE, None]), st.data(), st.booleans(), st.booleans())
def test_no_text_breaks_it_and_no_cut_changes_it(text, style, data, reasons, is_thinking):
    how = {"reasons": reasons, "is_thinking": is_thinking}
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    assert apart(style, text, cuts, **how) == apart(style, text, **how)


def test_arguments_come_as_they_are_written():
    reader = ReplyParts(style=STYLE["hermes"])
    reader.push('<tool_call>{"name": "get", "arguments": {"city": "')
    assert [part.text for part in reader.push("Bo")] == ["Bo"]
    assert [part.text for part in reader.push('nn"}}</tool_call>')] == ['nn"}']


def test_the_template_tells_how_calls_are_written():
    assert style_of("x <tool_call> <function= y").name == "qwen-coder"
    assert style_of("<tool_call>").name == "hermes"
    assert style_of("[TOOL_CALLS]").name == "mistral"
    assert style_of('"parameters"').name == "llama"
    assert style_of("{{ messages }}") is None
    json.dumps([style.name for style in STYLES])
