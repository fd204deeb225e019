"""Turn tokens into text while they arrive, and stop at a stop string.

Text leaves here as soon as nothing that follows can change it. Knows nothing of models or engines.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from paceline.errors import UsageError


class TokenBytes(Protocol):
    """What a decoder needs of a tokenizer."""

    @property
    def add_space_prefix(self) -> bool: ...
    def token_bytes(self, token: int) -> bytes: ...
    def is_special(self, token: int) -> bool: ...


class IncrementalDecoder:
    """Decode one token at a time; hold back the bytes of a character that is not complete.

    The pushed texts and the flushed rest, joined, are `tokenizer.decode(ids)`.

    Args:
        show_special: give control tokens as their text instead of nothing.
        at_start: the ids open a text, so a space that the tokenizer put before it goes; False for a continuation.
    """

    def __init__(self, tokenizer: TokenBytes, *, show_special: bool = False, at_start: bool = True) -> None:
        self._tokenizer = tokenizer
        self._show_special = show_special
        self._strip = at_start and tokenizer.add_space_prefix
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def incomplete(self) -> bool:
        """Whether bytes of an unfinished character are held back."""
        return bool(self._utf8.getstate()[0])

    def push(self, token: int) -> str:
        """Return the text that `token` completes, often its own, at times nothing."""
        if not self._show_special and self._tokenizer.is_special(token):
            return ""
        piece = self._tokenizer.token_bytes(token)
        if self._strip and piece:
            self._strip = False
            piece = piece.removeprefix(b" ")
        return self._utf8.decode(piece)

    def flush(self) -> str:
        """Return what is left, an unfinished character as U+FFFD, and start anew in the same text."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


class StopMatcher:
    """Pass text on until one of the stop strings is complete; neither it nor what follows gets out.

    Strings that are complete before they count pass like other text; what they began of another one is not forgotten.
    The string that is complete first wins, and of those that end together the longest. How the text is cut into pushes
    changes nothing but when it comes out.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if isinstance(stop, str):
            raise UsageError(f"stop strings must be a list; got the string `{stop}`", hint=f"stop=[{stop!r}]")
        if "" in stop:
            raise UsageError(
                "a stop string must have at least one character; got ``", hint="leave `stop` out to run on"
            )
        self._stop = tuple(dict.fromkeys(stop))
        self._longest = max(map(len, self._stop), default=0)
        self._held = ""
        self.hit: str | None = None  # the stop string that was met

    def push(self, text: str, *, counts: bool = True) -> tuple[str, bool]:
        """Return the text that is free to go and whether a stop string is complete, if such a one `counts`."""
        if self.hit is not None:
            return "", True
        if not self._stop:
            return text, False
        known, text = len(self._held), self._held + text
        # What was complete in the text held back did not count then, nor does it now.
        places = ((text.find(stop, max(known - len(stop) + 1, 0)), stop) for stop in self._stop)
        found = [(at + len(stop), at, stop) for at, stop in places if at >= 0]
        if found and counts:
            _, at, self.hit = min(found)
            self._held = ""
            return text[:at], True
        keep = next(
            (n for n in range(min(self._longest - 1, len(text)), 0, -1) if self._may_begin(text[-n:])),
            0,
        )
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut], False

    def flush(self) -> str:
        """Return what was held back: nothing follows, so it begins no stop string."""
        rest, self._held = self._held, ""
        return rest

    def _may_begin(self, tail: str) -> bool:
        return any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stop)
