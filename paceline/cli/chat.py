"""`paceline chat`: a conversation, turn by turn. Earlier turns are reused from the cache."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import typer

from paceline.cli import options as o
from paceline.cli.generate import decode
from paceline.cli.terminal import importing, say
from paceline.errors import ContextOverflow, PacelineError, UsageError

if TYPE_CHECKING:
    from paceline.core.request import SamplingParams
    from paceline.service.llm import LLM

_BARE = ("/exit", "/quit", "/reset", "/help")  # commands without a text behind them
_COMMANDS = (*_BARE, "/system")

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

_HELP = """\
/system TEXT   give instructions (starts anew); without TEXT: none
/reset         forget the conversation, keep the instructions
/help          this
/exit, /quit   end, as Ctrl-D does
Any other text goes to the model, also one that begins with /. To send a command as text, double its slash: //help.
A line that ends in \\ goes on in the next one. Ctrl-C stops a reply or drops a line; twice at the prompt, it ends."""


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*o.LOADING, *o.DRAWING, *o.ENDING, "system", "threads")
def chat(given: o.Shared) -> int:
    """Talk with a model, turn by turn. /help lists what a turn may be besides text.

    In a pipe, every line is a turn.

    Example: paceline chat --system "Answer in one sentence."
    """
    config, params = given.chosen()

    if sys.stdin is None:
        raise UsageError("turns come from stdin, and stdin is closed", hint="leave out `<&-`")

    with importing():
        from paceline.service.llm import LLM
        from paceline.text.chat import ChatTemplate

    llm = LLM(**asdict(config), progress=True)
    try:
        ChatTemplate.of(llm.tokenizer)
    except UsageError as error:
        raise UsageError("this model has no chat template", hint="use `paceline generate --raw`") from error
    conversation = Conversation(llm, params, given.system)
    if sys.stdin.isatty():
        drafters = ", ".join(llm.setup.drafters)
        speculation = f"guesses by {drafters}" if drafters else "speculation off"
        say(f"{llm.setup.model} · {speculation}. /help for help, Ctrl-D ends.")
        return _talk(conversation)
    for line in read_lines():
        if not conversation.take(line):
            break
    return int(conversation.failed)


def _talk(conversation: Conversation) -> int:
    """Take turns from a terminal until the user ends it. Ctrl-C drops the line, twice at an empty prompt it ends."""
    from paceline.cli.main import INTERRUPTED

    interrupted = False
    while True:
        try:
            line = read_turn()
        except EOFError:
            say("")
            return 0
        except KeyboardInterrupt as press:
            say("")
            if interrupted and not press.args:
                return INTERRUPTED
            say("Ctrl-D or /exit ends")
            interrupted = True
            continue
        interrupted = False
        if not conversation.take(line):
            return 0


@dataclass(slots=True)
class Conversation:
    """The messages so far. A turn that fails leaves them as they were."""

    llm: LLM
    params: SamplingParams
    system: str | None
    turns: list[dict[str, str]] = field(default_factory=list)
    failed: bool = False  # whether a turn failed

    def take(self, line: str) -> bool:
        """Answer a line or run its command; return False to end."""
        command, rest = _split(line)
        if command in ("/exit", "/quit"):
            return False
        if command == "/reset":
            self.turns.clear()
            say("The conversation starts anew.")
        elif command == "/system":
            self.system = rest or None
            self.turns.clear()
            say("The conversation starts anew with these instructions." if self.system else "No instructions now.")
        elif command == "/help":
            say(_HELP)
        elif rest.strip():
            self.answer(rest)
        return True

    def answer(self, text: str) -> None:
        """Reply to one turn and keep both, the reply also if it was interrupted."""
        from paceline.cli.main import complain
        from paceline.cli.reply import finish, play
        from paceline.cli.terminal import Painter, Screen
        from paceline.text.stream import IncrementalDecoder

        lead = [{"role": "system", "content": self.system}] if self.system is not None else []
        user = {"role": "user", "content": text}
        try:
            reply = self.llm.chat([*lead, *self.turns, user], self.params)
            interrupted = play(reply, Screen(Painter(IncrementalDecoder(self.llm.tokenizer, at_start=False))))
        except PacelineError as error:
            is_full = isinstance(error, ContextOverflow)
            complain(str(error), "/reset starts anew; a larger --context holds more" if is_full else error.hint, 1)
            self.failed = True
            return
        completion = reply.completion
        if completion.text or not interrupted:
            self.turns += [user, {"role": "assistant", "content": completion.text}]
        finish(self.llm, completion, interrupted=interrupted, max_tokens=self.params.max_tokens)


def _split(line: str) -> tuple[str, str]:
    """Return a command and the text behind it, or no command and what goes to the model.

    A text that resembles a command goes to the model with a notice.
    """
    first, rest = (*line.split(maxsplit=1), "", "")[:2]
    rest = rest.strip()
    if not first.startswith("/"):
        return "", line
    if first == "/system" or (first in _BARE and not rest):
        return first, rest
    if first.startswith("//") and f"/{first.lstrip('/')}" in _COMMANDS:
        return "", line.replace("/", "", 1)
    if first in _BARE:
        say(f"{first} takes no text, so this goes to the model; /help lists commands")
    elif near := difflib.get_close_matches(first.lower(), _COMMANDS, 1, cutoff=0.75):
        say(f"no such command: {first}, so this goes to the model; did you mean {near[0]}? /help lists commands")
    return "", line


def read_lines() -> Iterator[str]:
    """Yield the turns of a pipe, without a byte-order mark before the first one."""
    lead = "\ufeff"
    while data := sys.stdin.buffer.readline():
        yield decode(data, "stdin").removeprefix(lead).rstrip("\r\n")
        lead = ""


def read_turn() -> str:
    """Return the next turn typed; Ctrl-C raises KeyboardInterrupt with what was typed, if anything, as its argument."""
    parts: list[str] = []
    try:
        parts.append(_ask("> "))
        while parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            parts.append(_ask("… "))
    except KeyboardInterrupt as press:
        raise KeyboardInterrupt(*filter(None, [*parts, _typed()])) from press
    return "\n".join(parts)


def _typed() -> str:
    readline = sys.modules.get("readline")
    return str(readline.get_line_buffer()) if readline is not None else ""


def _ask(prompt: str) -> str:
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # gives input() line editing and a history
        return input(prompt)
    sys.stderr.write(prompt)  # stdout is for replies
    sys.stderr.flush()
    return input()
