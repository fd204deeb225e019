"""The form of a reply that must call tools: a grammar for each way of writing calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.core.request import Grammar
from paceline.text.reply_parts import ToolStyle


def form_of_calls(
    style: ToolStyle, tools: Sequence[Mapping[str, Any]], mark: str, *, is_single: bool = False
) -> Grammar:
    """Return the form of a reply that is calls of these tools and nothing else.

    Args:
        mark: how a Lark grammar names `style.begin`, a text or a token.
        is_single: there is one call.
    """
    rules = [line for i, tool in enumerate(tools) for line in _rules(style, tool["function"], f"call{i}")]
    call = " | ".join(f"call{i}" for i in range(len(tools)))
    if style.end:
        more = "" if is_single else ' ("\\n" one)*'
        start = ["start: one" + more, f'one: {mark} "\\n" call "\\n{style.end}"']
    elif style.begin:
        more = "" if is_single else ' ("," call)*'
        start = [f'start: {mark} "[" call{more} "]"']
    else:
        start = ["start: call"]
    return Grammar.lark("\n".join([*start, f"call: {call}", *rules]) + "\n")


def _rules(style: ToolStyle, function: Mapping[str, Any], rule: str) -> list[str]:
    """Return the rules of one function's calls."""
    schema = function.get("parameters") or {"type": "object"}
    if not style.is_xml:
        named = "parameters" if style.name == "llama" else "arguments"
        said = {"name": {"const": function["name"]}, named: schema}
        form = {"type": "object", "properties": said, "required": [*said], "additionalProperties": False}
        return [f"{rule}: %json {json.dumps(form)}"]
    rules, parts = list[str](), list[str]()
    for i, (name, own) in enumerate(schema.get("properties", {}).items()):
        value, opened, end = f"{rule}_value{i}", json.dumps(f"<parameter={name}>\n"), json.dumps("\n</parameter>\n")
        if own.get("type") == "string":
            rules.append(f"{value}[suffix={end}]: /(.|\\n)*/")
            part = f"({opened} {value})"
        else:
            rules.append(f"{value}: %json {json.dumps(own)}")
            part = f"({opened} {value} {end})"
        parts.append(part if name in schema.get("required", ()) else part + "?")
    begun = json.dumps(f"<function={function['name']}>\n")
    return [f'{rule}: {begun} {" ".join(parts)} "</function>"', *rules]
