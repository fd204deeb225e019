"""The command line: a table of subcommands, each imported when called, and the only place that prints errors.

Knows no option of a subcommand. `paceline --help` imports neither numpy nor the native kernels.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import re
import signal
import sys
from inspect import signature
from typing import Any, cast, get_args

import typer
from typer.core import TyperCommand, TyperGroup

import paceline
from paceline.cli.terminal import is_coloured
from paceline.environment import VARIABLES
from paceline.errors import PacelineError

COMMANDS = {
    "generate": "Reply to one prompt, with speculation.",
    "chat": "Talk with a model, turn by turn.",
    "serve": "Serve a model over HTTP, with OpenAI's API and a page to watch it.",
    "doctor": "Measure what speculation gains here, and say why.",
    "calibrate": "Measure this machine anew, and say what is kept.",
    "audit": "Prove that speculation changes nothing on this machine.",
    "plan": "Forecast what speculation would bring, before anything is loaded.",
    "pull": "Download models, so that later runs need no network.",
    "models": "List the models that have a name, and those already here.",
    "bench": "Measure speculation on real workloads, and make a report of it.",
}
ALIASES = {"run": "chat"}  # what the same thing is called elsewhere
INTERRUPTED = 128 + signal.SIGINT

# Typer carries its own click or uses the installed one, by version; both derive BadParameter from these.
_CallError, _ClickError = (cast("type[Exception]", kind) for kind in typer.BadParameter.__mro__[1:3])


class Subcommands(TyperGroup):
    """Lists commands from the table and imports only the one that is called."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _bare(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *rest = args
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            if name.startswith("-"):
                raise typer.BadParameter(f"no such option: {name}", ctx=ctx)
            close = difflib.get_close_matches(name, COMMANDS, 1)
            known = f"known: {', '.join(COMMANDS)}"
            raise paceline.UsageError(
                f"no such command: `{name}`", hint=f"did you mean `{close[0]}`? {known}" if close else known
            )
        command = typer.main.get_command(importlib.import_module(f"paceline.cli.{name}").app)
        command.name = name
        for page in (command, *getattr(command, "commands", {}).values()):
            _bare(page.get_params(ctx))
            page.help = re.sub(r"(?<!\n)\n(?!\n)", " ", page.help or "")  # typer keeps the source's own line ends
        return name, command, rest


def _bare(options: list[Any]) -> list[Any]:
    """Show no type for flags: they take no value, and typer would show `<bool>`."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


app = typer.Typer(
    cls=Subcommands,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"paceline {paceline.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog=f"[bold]Environment[/bold]  {', '.join(VARIABLES)}")
def root(
    ctx: typer.Context,
    version: bool = typer.Option(
        False, "--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Speculative decoding for the language models you run yourself: same words, sooner.

    Try: [bold]paceline generate "Why is the sky blue?"[/bold]
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def run(args: list[str]) -> int:
    """Run one command line and return its exit code; a user's mistake becomes two lines on stderr."""
    try:
        result = typer.main.get_command(app).main(args=args, prog_name="paceline", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0  # typer answers Ctrl-C with 130 as well
    except PacelineError as error:
        return complain(str(error), error.hint, error.exit_code)
    except _ClickError as error:
        return complain(_message(error, args), _hint(error, args), 2 if isinstance(error, _CallError) else 1)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout is gone, and an error message has no use
        return 1
    except MemoryError as error:
        return complain(
            f"there is not enough memory: {error}".rstrip(": "), "take a smaller model or a smaller --context", 1
        )
    except OSError as error:
        return complain(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), None, 1)


def complain(message: str, hint: str | None, code: int) -> int:
    """Print an error with its hint and return the exit code."""
    red, bold, off = ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") if is_coloured(sys.stderr) else ("", "", "")
    lines = f"{red}error:{off} {message}\n"
    if hint:
        lines += f"\n{bold}hint:{off} {hint}\n"
    with contextlib.suppress(OSError):
        sys.stderr.write(lines)
        sys.stderr.flush()
    return code


def _message(error: Any, args: list[str]) -> str:
    text = str(error.format_message()).strip().rstrip(".")
    if type(error).__name__ == "NoSuchOption":
        return f"no such option: {error.option_name}"
    if getattr(error, "param", None) is not None and (wanted := _number_wanted(error, args)):
        return wanted
    first, _, rest = text.partition(" ")
    return f"{first.lower()} {rest}" if first.istitle() else text


def _number_wanted(error: Any, args: list[str]) -> str:
    """Return the number that an option wants, by its declaration; empty if it wants none."""
    declared = signature(error.ctx.command.callback, eval_str=True).parameters[error.param.name].annotation
    kinds, value = _kinds(declared), _given(error.param.opts, args)
    if not kinds & {int, float}:
        return ""
    try:
        number = int(value) if int in kinds else float(value)
    except ValueError:
        wanted = "a whole number" if int in kinds else "a number"
    else:
        least, most = next(((info.min, info.max) for info in get_args(declared)[1:]), (None, None))
        wanted = f"at least {least}" if least is not None and number < least else f"at most {most}"
    return f"{error.param.opts[0]} must be {wanted}, got `{value}`"


def _kinds(annotation: Any) -> set[Any]:
    """Return an annotation and all its parts."""
    return {annotation}.union(*map(_kinds, get_args(annotation)))


def _given(options: list[str], args: list[str]) -> str:
    """Return the value given to an option; of several the last one, as in typer."""
    for at in range(len(args) - 1, -1, -1):
        name, equals, value = args[at].partition("=")
        if name in options:
            return value if equals else " ".join(args[at + 1 : at + 2])
    return ""


def _hint(error: Any, args: list[str]) -> str:
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else " ".join(["paceline", *(name for name in args[:1] if name in COMMANDS)])
    options = f"all options: {path} --help"
    if type(error).__name__ == "NoSuchOption" and error.ctx is not None:
        known = [option for parameter in error.ctx.command.params for option in parameter.opts]
        close = difflib.get_close_matches(str(error.option_name), known, 1)
        if close:
            return f"did you mean `{close[0]}`? {options}"
        return f"{options}; put `--` before a prompt that begins with `-`"
    return options


def main() -> None:
    """Run the `paceline` command."""
    if sys.stderr is None:  # closed, as by `2>&-`: errors are discarded
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        sys.exit(complain("stdout is closed, and it is where results go", "leave out `>&-`; > /dev/null drops them", 1))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character shows `?`
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # else Python prints an error while it exits
            code = code or int(stream is sys.stdout)
    sys.exit(code)


if __name__ == "__main__":
    main()
