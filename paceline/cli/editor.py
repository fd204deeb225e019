"""The line that a turn is typed into: several lines, a history that outlives the chat, completion of commands.

prompt_toolkit edits it on a terminal; anything else that types is read line by line.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.data_structures import Size

BLOCK = '"""'  # before and behind the lines of one turn
PROMPT, MORE = "> ", "… "


class Editor:
    """Reads turns.

    Args:
        history: file that keeps what was typed; `None` keeps it for this chat.
        words: commands to complete.
    """

    def __init__(self, history: Path | None, words: Sequence[str]) -> None:
        self._session = _session(history, words) if _is_rich() else None

    def turn(self, text: str = "") -> str:
        """Return the next turn typed, beginning with `text` to be edited.

        Raises:
            KeyboardInterrupt: by Ctrl-C, with what was typed, if anything, as its argument.
            EOFError: there is no more.
        """
        parts: list[str] = []
        try:
            parts.append(self._ask(PROMPT, text))
            if parts[0].lstrip().startswith(BLOCK):
                return self._block(parts)
            while parts[-1].endswith("\\"):
                parts[-1] = parts[-1][:-1]
                parts.append(self._ask(MORE))
        except KeyboardInterrupt as press:
            raise KeyboardInterrupt(*filter(None, [*parts, *press.args])) from press
        return "\n".join(parts)

    def _block(self, parts: list[str]) -> str:
        """Return the lines up to the closing quotes; the end of the input closes them too."""
        parts[0] = parts[0].lstrip().removeprefix(BLOCK)
        while not parts[-1].rstrip().endswith(BLOCK):
            try:
                parts.append(self._ask(MORE))
            except EOFError:
                return "\n".join(parts).strip("\n")
        parts[-1] = parts[-1].rstrip().removesuffix(BLOCK)
        return "\n".join(parts).strip("\n")

    def _ask(self, prompt: str, text: str = "") -> str:
        if self._session is None:
            return _plain(prompt)
        try:
            return self._session.prompt(prompt, default=text)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(*filter(None, [self._session.default_buffer.text])) from None


def _is_rich() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def _plain(prompt: str) -> str:
    sys.stderr.write(prompt)  # stdout is for replies
    sys.stderr.flush()
    return input()


def _session(history: Path | None, words: Sequence[str]) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output.vt100 import Vt100_Output
    from prompt_toolkit.shortcuts import CompleteStyle

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return PromptSession(
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=WordCompleter(list(words), sentence=True),
        complete_while_typing=False,
        key_bindings=keys,
        prompt_continuation=MORE,
        complete_style=CompleteStyle.READLINE_LIKE,
        output=Vt100_Output(sys.stdout, _size, term=os.environ["TERM"], enable_cpr=False),
        enable_open_in_editor=True,
    )


def _size() -> Size:
    from prompt_toolkit.data_structures import Size

    columns, rows = shutil.get_terminal_size()
    return Size(rows=rows, columns=columns)


def history_file() -> Path | None:
    """Return the file of what was typed in chats, for its owner's eyes only; `None` where it cannot be kept."""
    from paceline.formats.catalog import models_folder

    path = models_folder().parent / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None
