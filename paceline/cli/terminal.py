"""Output to a terminal or a pipe: colours by the source of a token, control characters made visible.

Knows nothing of models.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Protocol, TextIO

from paceline.choices import DRAFTERS

OFF, DIM = "\x1b[0m", "\x1b[2m"
ERASE_LINE = "\r\x1b[2K"
_GREEN, _CYAN = "\x1b[32m", "\x1b[36m"

# A model may write anything; a terminal gets its control characters as visible text.
_VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
_VISIBLE |= {code: "\N{SYMBOL FOR DELETE}" if code == 127 else "\ufffd" for code in range(127, 160)}


class Decoder(Protocol):
    """Gives the text that each token adds."""

    def push(self, token: int) -> str: ...


def is_coloured(stream: TextIO) -> bool:
    """Say whether colours may go to a stream (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colour_of(source: str) -> str:
    """Return the colour of a drafter: green for a look-up in the text, cyan for a model, none for the target itself."""
    choice = DRAFTERS.get(source)
    is_looked_up = source == "corpus" or (choice is not None and choice.loads == "nothing")  # that of `suffix:FILE`
    return _GREEN if is_looked_up else _CYAN if source else ""


def visible(text: str) -> str:
    """Return a text that cannot move the cursor or change the terminal."""
    return text.translate(_VISIBLE)


class Painter:
    """Cuts released text into runs of one source.

    The engine releases text later than its tokens, because it holds back stop strings and unfinished characters. So
    the tokens are decoded here as well, and the text is cut by their lengths.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._ahead: deque[tuple[int, str]] = deque()  # (characters, source) not yet released

    def paint(self, tokens: Sequence[int], sources: Sequence[str], text: str) -> list[tuple[str, str]]:
        """Return (source, text) runs; joined, they are `text`."""
        for token, source in zip(tokens, sources, strict=True):
            length = len(self._decoder.push(token))
            if length:
                self._ahead.append((length, source))
        runs: list[tuple[str, str]] = []
        at, last = 0, ""
        while at < len(text):
            length, last = self._ahead.popleft() if self._ahead else (len(text) - at, last)
            part = text[at : at + length]
            if length > len(part):
                self._ahead.appendleft((length - len(part), last))
            at += len(part)
            if runs and runs[-1][0] == last:
                runs[-1] = (last, runs[-1][1] + part)
            else:
                runs.append((last, part))
        return runs


class Screen:
    """Writes a reply while it arrives: coloured on a terminal, the plain text and nothing else in a pipe."""

    def __init__(self, painter: Painter, out: TextIO | None = None) -> None:
        self._painter, self._out = painter, sys.stdout if out is None else out
        self._is_terminal, self._coloured = self._out.isatty(), is_coloured(self._out)
        self._ends_line = True

    def show(self, tokens: Sequence[int], sources: Sequence[str], text: str) -> None:
        """Write the text of one event."""
        for source, part in self._painter.paint(tokens, sources, text):
            shown = visible(part) if self._is_terminal else part
            colour = colour_of(source) if self._coloured else ""
            self._out.write(f"{colour}{shown}{OFF}" if colour else shown)
        if text:
            self._ends_line = text.endswith("\n")
            self._out.flush()

    def end(self, *, interrupted: bool = False) -> None:
        """End the last line; after Ctrl-C a terminal shows `^C` there."""
        if not self._ends_line or (interrupted and self._is_terminal):
            self._out.write("\n")
        self._ends_line = True
        self._out.flush()


class Notice:
    """A temporary line on stderr until there is something to show; nothing in a pipe."""

    def __init__(self) -> None:
        self._wanted, self._shown = sys.stderr.isatty(), False

    def show(self, text: str) -> None:
        if self._wanted:
            sys.stderr.write(f"{ERASE_LINE}{DIM}{text}{OFF}" if is_coloured(sys.stderr) else f"\r{text}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()
            self._shown = False


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While entered, Ctrl-C ends the process at once: compiled modules turn it into a traceback while they load."""
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def say(text: str) -> None:
    """Write lines to stderr; a closed stderr is ignored."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def fold(parts: Sequence[str], columns: int) -> str:
    """Join parts with dots, breaking lines between parts only; colours take no columns."""
    lines, room = [parts[0]], columns - _width(parts[0])
    for part in parts[1:]:
        needed = _width(part) + 3
        lines[-1:] = [f"{lines[-1]} · {part}"] if needed <= room else [lines[-1], f"· {part}"]
        room = room - needed if needed <= room else columns - needed + 1
    return "\n".join(lines)


def _width(text: str) -> int:
    return len(re.sub(r"\x1b\[[0-9;]*m", "", text))


class Interrupt:
    """While entered, the first Ctrl-C only sets a flag, so that a round ends whole; the second one interrupts."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
