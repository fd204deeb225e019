"""`paceline chat`: a conversation, turn by turn. Earlier turns are reused from the cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

import typer

from paceline.cli import options as o
from paceline.cli.conversation import COMMANDS, Conversation
from paceline.cli.editor import Editor, history_file
from paceline.cli.terminal import importing, say
from paceline.cli.texts import decode
from paceline.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*o.LOADING, *o.DRAWING, *o.ENDING, "system", "threads", **dict.fromkeys(o.OWN))
def chat(given: o.Shared) -> int:
    """Talk with a model, turn by turn. /help lists what a turn may be besides text.

    In a pipe, every line is a turn. Temperature, top-k and the like are those that the model's files ask for, unless
    you give them.

    Example: paceline chat --system "Answer in one sentence."
    """
    config, params = given.chosen()

    if sys.stdin is None:
        raise UsageError("turns come from stdin, and stdin is closed", hint="leave out `<&-`")

    with importing():
        from paceline.formats.generation import own_settings
        from paceline.service.llm import LLM
        from paceline.text.chat import ChatTemplate

    llm = LLM(**asdict(config), progress=True)
    try:
        ChatTemplate.of(llm.tokenizer)
    except UsageError as error:
        raise UsageError(
            "this model has no chat template: it is a base model, which continues texts",
            hint="use `paceline generate --raw`, or a model made for conversations",
        ) from error
    usual = own_settings(llm.target.path) if llm.target.path else {}
    own = {name: value for name, value in usual.items() if getattr(given, name) is None}
    conversation = Conversation(llm, replace(params, **own), given.system)
    if sys.stdin.isatty():
        drafters = ", ".join(llm.setup.drafters)
        speculation = f"drafts by {drafters}" if drafters else "speculation off"
        drawn = "".join(f"{name} {value:g}, " for name, value in own.items())
        said = f" · {drawn}as its files ask" if drawn else ""
        say(f"{llm.setup.model} · {speculation}{said}. /help for help, Ctrl-D ends.")
        return _talk(conversation)
    for line in read_lines(conversation):
        if not conversation.take(line):
            break
    return int(conversation.failed)


def _talk(conversation: Conversation) -> int:
    """Take turns from a terminal until the user ends it. Ctrl-C drops the line, twice at an empty prompt it ends."""
    from paceline.cli.main import INTERRUPTED

    editor, interrupted = Editor(history_file(), list(COMMANDS)), False
    while True:
        text, conversation.draft = conversation.draft or "", None
        try:
            line = editor.turn(text)
        except EOFError:
            say("")
            return 0
        except KeyboardInterrupt as press:
            if interrupted and not press.args:
                return INTERRUPTED
            say("Ctrl-D or /exit ends")
            interrupted = True
            continue
        interrupted = False
        if text and line.strip() and not line.startswith("/"):  # the last turn, edited
            line = f"/edit {line}"
        if not conversation.take(line):
            return 0


def read_lines(conversation: Conversation) -> Iterator[str]:
    """Yield the turns of a pipe, without a byte-order mark before the first one; a line that is no text is told of."""
    from paceline.cli.main import complain

    lead, number = "\ufeff", 0
    while data := sys.stdin.buffer.readline():
        number += 1
        try:
            yield decode(data, f"line {number} of stdin").removeprefix(lead).rstrip("\r\n")
        except UsageError as error:
            complain(str(error), error.hint, 1)
            conversation.failed = True
        lead = ""
