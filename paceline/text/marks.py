"""Marks inside the names of control tokens that a message spells, so that the text stays text.

A mark is a character that the conversation does not hold. It passes the chat template with the text; the tokenizer,
which is told of it, reads no name across it and leaves it out. Knows nothing of tokens, templates or roles.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

from paceline.errors import UsageError

_DEEPEST = 64
_CANDIDATES = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # noncharacters: no text for interchange holds them


def free_marks(count: int, value: object) -> list[str]:
    """Return characters that none of the texts in `value` holds, also not in JSON's escapes."""
    texts: list[str] = []
    rewritten(value, lambda text: texts.append(text) or text)  # type: ignore[func-returns-value]
    whole = "\n".join(texts)
    lowered = whole.lower() if "\\u" in whole else ""
    free = [mark for mark in _CANDIDATES if mark not in whole and escaped(mark) not in lowered]
    if len(free) < count:
        raise UsageError(
            f"a conversation must leave {count} of the characters U+FDD0 to U+FDEF unused; it uses all but {len(free)}",
            hint="they are no characters of any language: take them out",
        )
    return free[:count]


def escaped(mark: str) -> str:
    """Return a mark as JSON writes it for readers of ASCII."""
    return f"\\u{ord(mark):04x}"


def rewritten(value: Any, change: Callable[[str], str], key: Callable[[str], str] | None = None, depth: int = 0) -> Any:
    """Return `value` with every text in it changed; `key` changes the keys of mappings, by default as texts."""
    if isinstance(value, str):
        return change(value)
    if value is None or isinstance(value, Number):
        return value
    key = key or change
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {key(k) if isinstance(k, str) else k: rewritten(v, change, key, depth + 1) for k, v in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
            return [rewritten(v, change, key, depth + 1) for v in value]
    got = f"lists more than {_DEEPEST} deep" if depth >= _DEEPEST else f"`{type(value).__name__}`"
    raise UsageError(
        f"a message must be made of texts, numbers, lists and mappings, as JSON is; got {got}",
        hint="turn the value into a text first",
    )


class Names:
    """The names of control tokens, and how to break them with a mark.

    A name of one character cannot be broken.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = sorted({name for name in names if len(name) > 1})
        self._backwards = sorted(name[::-1] for name in self._names)
        self._longest = max(map(len, self._names), default=0)
        starts: dict[str, list[str]] = {}
        for name in self._names:
            starts.setdefault(name[:2], []).append(name)
        self._starts = starts

    def broken(self, text: str, mark: str) -> str:
        """Return `text` with a mark inside every name in it, and in what may be a part of one.

        A template may write the rest of a name right before or behind the text. A plain word counts as no part.
        """
        if 1 < len(text) < self._longest and not text.isalnum() and any(text in name for name in self._names):
            return text[:1] + mark + text[1:]
        text = self.broken_inside(text, mark)
        if self._begins_name(self._names, text):
            text = text[:-1] + mark + text[-1:]
        if self._begins_name(self._backwards, text[::-1]):
            text = text[:1] + mark + text[1:]
        return text

    def broken_inside(self, text: str, mark: str) -> str:
        """Return `text` with a mark inside every name in it."""
        for start, names in self._starts.items():
            if start in text:
                for name in names:
                    while name in text:  # again, for names that overlap themselves
                        text = text.replace(name, name[0] + mark + name[1:])
        return text

    def _begins_name(self, names: list[str], text: str) -> bool:
        """Tell whether a name begins with the end of `text`."""
        for length in range(2, min(len(text), self._longest - 1) + 1):
            end = text[-length:]
            at = bisect_left(names, end)
            if at < len(names) and names[at].startswith(end) and not end.isalnum():
                return True
        return False
