"""`paceline generate`: one prompt, one reply; or many from a file."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from dataclasses import asdict
from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.many import Message, conversation_of, read_asked, reply_to_all
from paceline.cli.terminal import Notice
from paceline.cli.texts import read_file, text_of
from paceline.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

PATIENCE = 2.0  # seconds without a text from stdin after which a line says what is waited for
_EXAMPLES = """\
[bold]Examples[/bold]

  paceline generate "Why is the sky blue?"

  git diff | paceline generate "Write a commit message for this:" --draft ngram

  paceline generate --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b "Sort a list in C"

  paceline generate --raw --max-tokens 32 --json "Once upon a time"
"""


@app.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*o.LOADING, "prediction", *o.DRAWING, *o.FORMS, "logprobs", *o.ENDING, "system", "threads")
def generate(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="What to reply to; read from stdin if absent or `-`. Text piped in beside it comes after it.",
            show_default=False,
        ),
    ] = None,
    *,
    given: o.Shared,
    prompt_option: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            "-p",
            help="The same as the argument.",
            metavar="TEXT",
            show_default=False,
            rich_help_panel="Running",
        ),
    ] = None,
    messages: Annotated[
        str | None,
        typer.Option(
            "--messages",
            help="A conversation as JSON, in OpenAI's shape; or one on each line, with replies as JSON lines.",
            metavar="FILE",
            show_default=False,
            rich_help_panel="Running",
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            help="A prompt on each line, with replies as JSON lines.",
            metavar="FILE",
            show_default=False,
            rich_help_panel="Running",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only the reply: no summary.", rich_help_panel="Running")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also why the controller drafted as it did.", rich_help_panel="Running"),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text itself: no chat template.", rich_help_panel="Running")
    ] = False,
    special: Annotated[
        bool,
        typer.Option(
            "--special",
            help="With --raw: read the names of control tokens in the prompt as these tokens, as in "
            "<|fim_prefix|>…<|fim_suffix|>…<|fim_middle|>; without, they are plain text.",
            rich_help_panel="Running",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object to stdout.", rich_help_panel="Running")
    ] = False,
) -> int:
    """Reply to one prompt, with speculation.

    On a terminal, accepted guesses are green (found in the text) or cyan (from a draft model).
    """
    if raw and given.system is not None:
        raise UsageError("--system needs the chat template, and --raw leaves it out", hint="drop one of the two")
    if special and not raw:
        raise UsageError(
            "--special reads control tokens in a raw prompt; a chat template writes its own", hint="add --raw"
        )
    if prompt is not None and prompt_option is not None:
        raise UsageError("a prompt is given once, got an argument and --prompt", hint="drop one of the two")
    config, params = given.chosen()
    expected = None if given.prediction is None else read_file(given.prediction, "--prediction")
    text = prompt if prompt_option is None else prompt_option
    if messages is None and prompts is None:
        asked: list[list[Message] | str] = [read_prompt(text, raw=raw)]
        is_many = False
    elif text is not None or expected is not None:
        raise UsageError(
            "--messages and --prompts say what to reply to, and --prediction is for one prompt; got two of these",
            hint="leave one of them out",
        )
    else:
        asked, is_many = read_asked(messages=messages, prompts=prompts, raw=raw)
    if given.logprobs is not None and not (as_json or is_many):
        raise UsageError("--logprobs shows in the JSON object only", hint="add --json")
    if not raw:
        asked = [conversation_of(one, given.system) for one in asked]

    from paceline.cli.main import INTERRUPTED
    from paceline.cli.reply import finish, play
    from paceline.cli.terminal import Painter, Screen, importing, say

    with importing():
        from paceline.engine.loading import check_length
        from paceline.service.llm import LLM
        from paceline.text.stream import IncrementalDecoder

    latest = asked[0] if isinstance(asked[0], str) else asked[0][-1].get("content")
    if isinstance(latest, str) and not (is_many or special):
        check_length(config, latest)
    llm = LLM(**asdict(config), progress=not quiet)
    if is_many:
        return 0 if reply_to_all(llm, asked, params) else 1
    if isinstance(asked[0], str):
        reply = llm.stream(asked[0], params, special=special, prediction=expected)
    else:
        reply = llm.chat(asked[0], params, prediction=expected)
    screen = None if as_json else Screen(Painter(IncrementalDecoder(llm.tokenizer, at_start=False)))
    interrupted = play(reply, screen)
    completion = reply.completion
    if as_json:
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(json.dumps(completion.to_json(llm.tokenizer), ensure_ascii=not is_utf8))
    elif not quiet:
        finish(llm, completion, params, interrupted=interrupted)
    if verbose:
        say(completion.control_reason)
    return INTERRUPTED if interrupted else 0


def read_prompt(argument: str | None, *, raw: bool) -> str:
    """Return the prompt from the argument, or from stdin.

    Raises:
        UsageError: there is none, or it is not UTF-8.
    """
    if argument is None or argument == "-":
        if sys.stdin is None or sys.stdin.closed:
            raise UsageError("the prompt comes from stdin, and stdin is closed", hint='paceline generate "your prompt"')
        if sys.stdin.isatty():
            sys.stderr.write("Type the prompt; end it with Ctrl-D on a line of its own.\n")
        data = sys.stdin.buffer.read()
        text = text_of(data, "stdin")
    else:
        text = text_of(argument.encode(errors="surrogateescape"), "the prompt")
        if piped := text_of(_piped(), "stdin"):
            text = f"{text}\n\n{piped}"
    if not raw:
        text = text.removesuffix("\n").removesuffix("\r")
    if not (text if raw else text.strip()):
        raise UsageError("the prompt is empty", hint='paceline generate "your prompt", or pipe a text into it')
    return text


def _piped() -> bytes:
    """Return what a pipe or a file gives on stdin; nothing where stdin is a terminal or a device."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or none
        return b""
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return b""
    notice = Notice()
    waiting = threading.Timer(PATIENCE, notice.show, ["waiting for the text of stdin; < /dev/null if there is none"])
    waiting.start()
    try:
        return sys.stdin.buffer.read()
    finally:
        waiting.cancel()
        notice.clear()
