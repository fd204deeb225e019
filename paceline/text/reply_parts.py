"""A chat reply taken apart while it arrives: reasoning, content, calls of tools.

Each family of models writes calls in a way of its own, which its chat template shows. Text leaves here as soon as
nothing that follows can change what it is. Knows nothing of tokens or HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

THINK, THOUGHT = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a reply. A call begins with the part that names its function; its arguments follow, as JSON."""

    kind: Literal["reasoning", "content", "call", "arguments"]
    text: str
    call: int = 0  # which one


@dataclass(frozen=True, slots=True)
class ToolStyle:
    """How a family writes calls: between `begin` and `end`, or from `begin` to the end of the reply.

    Without `begin`, a reply that begins as a JSON object may be a call. `is_xml`: parameters are elements, not JSON.
    `sign`: what the family's chat templates have in them.
    """

    name: str
    sign: str
    begin: str
    end: str = ""
    is_xml: bool = False
    has_short_ids: bool = False  # its template wants ids of nine letters and digits


STYLES = (  # the first whose sign a template has
    ToolStyle("qwen-coder", "<function=", "<tool_call>", "</tool_call>", is_xml=True),
    ToolStyle("hermes", "<tool_call>", "<tool_call>", "</tool_call>"),
    ToolStyle("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", has_short_ids=True),
    ToolStyle("granite", "<|tool_call|>", "<|tool_call|>"),
    ToolStyle("llama", '"parameters"', ""),
)


def style_of(template: str) -> ToolStyle | None:
    """Return how the family of a chat template writes calls, `None` if it is none of those known."""
    return next((style for style in STYLES if style.sign in template), None)


class ReplyParts:
    """Takes one reply apart.

    Args:
        reasons: the model may think before it replies, between `<think>` and `</think>`.
        is_thinking: the prompt has begun its reasoning.
        style: how calls are written; `None` if none are looked for.
        tools: the functions, in OpenAI's shape; their schemas give XML parameters their types.
    """

    def __init__(
        self,
        *,
        reasons: bool = False,
        is_thinking: bool = False,
        style: ToolStyle | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._style, self._tools = style, tools
        self._state = "reasoning" if is_thinking else "opening" if reasons else "content"
        self._held, self._is_fresh = "", True  # nothing of this kind was given yet
        self._calls: _Calls | None = None
        self.calls = 0  # begun so far

    def push(self, text: str) -> list[Part]:
        """Return the parts that `text` makes known."""
        self._held += text
        return _joined(self._read())

    def finish(self) -> list[Part]:
        """Return what was held back: the reply is over."""
        parts = [*self._read(), *self._end_calls()] if self._state == "calls" else [*self._read()]
        rest, self._held = self._held, ""
        if rest:
            parts.append(Part("reasoning" if self._state == "reasoning" else "content", rest))
        return _joined(parts)

    def _read(self) -> Iterator[Part]:
        while True:
            before = self._state, len(self._held)
            yield from getattr(self, f"_in_{self._state}")()
            if (self._state, len(self._held)) == before:
                return

    def _in_opening(self) -> Iterator[Part]:
        """Whether the reply begins with reasoning is not known yet."""
        text = self._held.lstrip()
        if text.startswith(THINK):
            self._state, self._held = "reasoning", text[len(THINK) :]
        elif not THINK.startswith(text):
            self._state = "content"
        yield from ()

    def _in_reasoning(self) -> Iterator[Part]:
        text, mark, rest = (self._held.lstrip() if self._is_fresh else self._held).partition(THOUGHT)
        self._held = text + mark + rest
        if mark:
            yield Part("reasoning", text.rstrip())
            self._state, self._held, self._is_fresh = "after", rest, True
        else:
            yield from self._give("reasoning", THOUGHT, keeps_space=True)

    def _in_after(self) -> Iterator[Part]:
        """Between reasoning and content lines are empty."""
        self._held = self._held.lstrip()
        if self._held:
            self._state = "content"
        yield from ()

    def _in_content(self) -> Iterator[Part]:
        style = self._style
        if style is None:
            yield from self._give("content", "")
            return
        if not style.begin:
            text = self._held.lstrip()
            if self._is_fresh and text.startswith("{"):
                self._state, self._held, self._calls = "calls", text, _Calls()
            elif text:
                yield from self._give("content", "")
            return
        text, mark, rest = self._held.partition(style.begin)
        if mark:
            if text.strip():
                yield Part("content", text.rstrip())
            self._state, self._held = "calls", rest
            self._calls = _XmlCalls(self._tools) if style.is_xml else _Calls()
        else:
            yield from self._give("content", style.begin, keeps_space=True)

    def _in_calls(self) -> Iterator[Part]:
        assert self._style is not None
        assert self._calls is not None
        end = self._style.end
        if not end:
            text, self._held = self._held, ""
            yield from self._counted(self._calls.push(text))
            return
        text, mark, rest = self._held.partition(end)
        if mark:
            yield from self._counted(self._calls.push(text))
            yield from self._end_calls()
            self._state, self._held = "after", rest
        else:
            keep = _overlap(self._held, end)
            text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
            yield from self._counted(self._calls.push(text))

    def _end_calls(self) -> Iterator[Part]:
        """End the calls; what was none is content, as it was written."""
        assert self._calls is not None
        assert self._style is not None
        yield from self._counted(self._calls.finish())
        if self._calls.rest.strip(" \n\t,;[]"):
            yield Part("content", self._style.begin + self._calls.rest + self._style.end)
        self._calls = None

    def _counted(self, parts: Iterator[Part]) -> Iterator[Part]:
        for part in parts:
            self.calls += part.kind == "call"
            yield Part(part.kind, part.text, self.calls - 1)

    def _give(self, kind: Literal["reasoning", "content"], mark: str, *, keeps_space: bool = False) -> Iterator[Part]:
        """Give what is held, without what may be the begin of `mark`, or the space before it."""
        cut = len(self._held) - _overlap(self._held, mark)
        if keeps_space:
            cut = len(self._held[:cut].rstrip())
        text, self._held = self._held[:cut], self._held[cut:]
        if text:
            self._is_fresh = False
            yield Part(kind, text)


class _Calls:
    """Calls as JSON: objects with a name and arguments, or a name with JSON behind it, one after the other."""

    HEAD = re.compile(
        r"[\s,;\[\]]*(?:"
        r'\{\s*"name"\s*:\s*(?P<quoted>"(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*'
        r"|(?P<bare>[A-Za-z_][\w.-]*)(?:\[ARGS\])?\s*)(?=[^\s])"
    )

    def __init__(self) -> None:
        self.rest = ""  # what was read and is not given yet
        self._value: _Value | None = None  # the arguments that are being read
        self._is_wrapped = False

    def push(self, text: str) -> Iterator[Part]:
        self.rest += text
        while self.rest:
            before = len(self.rest)
            if self._value is not None:
                yield from self._arguments(self._value)
            elif self._is_wrapped:
                _, brace, rest = self.rest.partition("}")
                self.rest, self._is_wrapped = rest, not brace
            elif found := self._head():
                name = json.loads(found["quoted"]) if found["quoted"] else found["bare"]
                self.rest, self._is_wrapped = self.rest[found.end() :], found["quoted"] is not None
                self._value = _Value()
                yield Part("call", name)
            if len(self.rest) == before:
                return

    def finish(self) -> Iterator[Part]:
        """Read what is left as a whole: an object whose arguments come first, or that has none."""
        if self._value is not None:
            yield Part("arguments", self._value.finish())
            self._value = None
            return
        if self._is_wrapped:
            self.rest = ""
        try:
            said = json.loads(self.rest)
        except ValueError:
            return
        for one in said if isinstance(said, list) else [said]:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                return
        self.rest = ""
        for one in said if isinstance(said, list) else [said]:
            given = one.get("arguments", one.get("parameters", {}))
            yield Part("call", one["name"])
            yield Part("arguments", given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))

    def _head(self) -> re.Match[str] | None:
        found = self.HEAD.match(self.rest)
        if found and found["bare"] and self.rest[found.end()] != "{":
            return None
        return found

    def _arguments(self, value: _Value) -> Iterator[Part]:
        taken = value.read(self.rest)
        self.rest = self.rest[taken:]
        if text := value.take():
            yield Part("arguments", text)
        if value.is_over:
            self._value = None


class _Value:
    """One JSON value, read to its end. A text that holds JSON gives what it holds."""

    def __init__(self) -> None:
        self.is_over = False
        self._text, self._given, self._depth, self._in_text, self._is_escaped = "", 0, 0, False, False

    def read(self, text: str) -> int:
        """Read on; return how many characters belong to the value."""
        for at, one in enumerate(text):
            if self._in_text:
                self._in_text = self._is_escaped or one != '"'
                self._is_escaped = one == "\\" and not self._is_escaped
            elif one == '"':
                self._in_text = True
            elif one in "{[":
                self._depth += 1
            elif one in "}]":
                self._depth -= 1
            self._text += one
            is_scalar = self._text[0] not in '{["'
            if is_scalar and self._depth < 0:  # the object around it ends
                self._text, self.is_over = self._text[:-1].rstrip(), True
                return at
            if not is_scalar and not self._in_text and not self._depth:
                self.is_over = True
                return at + 1
        return len(text)

    def take(self) -> str:
        """Return what is new of it."""
        if self._text[:1] == '"':
            if not self.is_over:
                return ""
            held: str = json.loads(self._text)
            return held
        new, self._given = self._text[self._given :], len(self._text)
        return new

    def finish(self) -> str:
        return self._text if self._text[:1] == '"' else self._text[self._given :]


class _XmlCalls(_Calls):
    """Calls as elements: a function with its parameters; a call is known when it is whole."""

    CALL = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
    PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._schemas = {
            tool["function"]["name"]: (tool["function"].get("parameters") or {}).get("properties", {}) for tool in tools
        }

    def push(self, text: str) -> Iterator[Part]:
        self.rest += text
        while "</function>" in self.rest and (found := self.CALL.match(self.rest)):
            self.rest = self.rest[found.end() :]
            yield from self._call(found)

    def finish(self) -> Iterator[Part]:
        if found := self.CALL.match(self.rest):
            self.rest = ""
            yield from self._call(found)

    def _call(self, found: re.Match[str]) -> Iterator[Part]:
        types = self._schemas.get(found[1], {})
        given = {name: _typed(text, types.get(name, {})) for name, text in self.PARAMETER.findall(found[2])}
        yield Part("call", found[1])
        yield Part("arguments", json.dumps(given, ensure_ascii=False))


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """Return a parameter as its schema has it: a text, or the JSON that it is."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _overlap(text: str, mark: str) -> int:
    """Return how many characters at the end of `text` may begin `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-n:])), 0)


def _joined(parts: Sequence[Part] | Iterator[Part]) -> list[Part]:
    """Join neighbours of a kind."""
    found: list[Part] = []
    for part in parts:
        if found and part.kind != "call" and (found[-1].kind, found[-1].call) == (part.kind, part.call):
            found[-1] = Part(part.kind, found[-1].text + part.text, part.call)
        elif part.text or part.kind == "call":
            found.append(part)
    return found
