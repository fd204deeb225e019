"""`paceline bench`: measure speculation on real workloads, and make a report of it."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.terminal import importing
from paceline.errors import UsageError

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Measure speculation on real workloads, and make a report of it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_WHAT, _HOW = "What", "How much"
_CONTEXT = {"help_option_names": ["-h", "--help"]}

_RUN_EXAMPLES = """\
[bold]Examples[/bold]

  paceline bench run --draft ngram --workload edit --prompts 2

  paceline bench run --model qwen2.5-coder-1.5b --draft auto --draft qwen2.5-coder-0.5b --out run.jsonl

  paceline bench run --draft smollm2-135m --control fixed:2 --control fixed:4 --resume --out sweep.jsonl

  paceline bench run --draft ngram --against llama.cpp:plain,ngram-mod --json
"""

_KERNELS_EXAMPLES = """\
[bold]Examples[/bold]

  paceline bench kernels --quick

  paceline bench kernels forward decode --model my.gguf
"""

_REPORT_EXAMPLES = """\
[bold]Example[/bold]

  paceline bench report run.jsonl -o report.html
"""


def _many(help: str, metavar: str, panel: str) -> object:
    return typer.Option(help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


def _one(name: str, help: str, metavar: str, panel: str) -> object:
    return typer.Option(name, help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


@app.command(epilog=_RUN_EXAMPLES, context_settings=_CONTEXT)
@o.takes()
def run(
    *,
    model: str,
    draft: Annotated[list[str] | None, _many("What guesses; may be repeated. auto if not given.", "SRC", _WHAT)] = None,
    control: Annotated[
        list[str] | None,
        _many("What decides how much, or fixed:K; may be repeated. The default one if not given.", "NAME", _WHAT),
    ] = None,
    verify: Annotated[
        list[str] | None,
        _many("How guesses are checked; may be repeated. The default one if not given.", "MODE", _WHAT),
    ] = None,
    draft_tokens: int,
    against: Annotated[
        list[str] | None,
        _many(
            "Another engine on the same file, with all its modes or those named: llama.cpp[:MODE,…] "
            "or transformers[:MODE,…].",
            "NAME",
            _WHAT,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        _many(
            "code, edit, chat, math, summarise, rag, translate or creative; may be repeated. All if not given.",
            "NAME",
            _HOW,
        ),
    ] = None,
    prompts: Annotated[int, typer.Option(help="Of each workload.", metavar="N", rich_help_panel=_HOW)] = 4,
    temperature: Annotated[list[float] | None, _many("May be repeated. 0 and 0.8 if not given.", "T", _HOW)] = None,
    max_tokens: Annotated[
        int | None, _many("Longest reply; what a workload's answers need if not given.", "N", _HOW)
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay", help="Ask the same bytes every time, so that what caches remember counts.", rich_help_panel=_HOW
        ),
    ] = False,
    out: Annotated[
        Path | None, _many("Keep every prompt's numbers here, one line of JSON each.", "FILE", "Running")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the file of --out.", rich_help_panel="Running")
    ] = False,
    threads: int | None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write the line of JSON and nothing else.", rich_help_panel="Running")
    ] = False,
) -> int:
    """Measure plain decoding against each drafter, controller and verifier, on eight workloads.

    All play the same prompts one right after the other, and replies that must equal plain decoding are compared with it
    token by token; the exit code is 1 if one differs. Ctrl-C keeps what was measured. The last line is one JSON object.
    """
    if resume and out is None:
        raise UsageError("--resume needs the file to go on with", hint="name it: --out FILE")
    with importing():
        from rich.console import Console

        from paceline.bench.run import Settings, bench_run
        from paceline.bench.show import show_run
        from paceline.bench.ways import ways_of
        from paceline.bench.workloads import WORKLOADS
    from paceline.cli.main import INTERRUPTED

    ways = ways_of(draft or [o.CONFIG.draft], control or [o.CONFIG.control], verify or [o.CONFIG.verify], draft_tokens)
    settings = Settings(
        model=model,
        ways=tuple(ways),
        workloads=tuple(dict.fromkeys(workload or WORKLOADS)),
        prompts=prompts,
        temperatures=tuple(dict.fromkeys(temperature or (0.0, 0.8))),
        max_tokens=max_tokens,
        against=tuple(dict.fromkeys(against or ())),
        replay=replay,
    )
    for way in ways:
        o.check_prediction(way.config(model), given=False, can_give=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit keeps what was measured, like Ctrl-C
    found = bench_run(settings, threads=threads, out=out, resume=resume, progress=True)
    if not as_json:
        # In a file or a pipe tables keep their full width.
        show_run(Console(highlight=False, width=None if sys.stdout.isatty() else 140), found)
    print(json.dumps(found), flush=True)
    if found["interrupted"]:
        return INTERRUPTED
    return int(bool(found["mismatches"]))


@app.command(epilog=_KERNELS_EXAMPLES, context_settings=_CONTEXT)
@o.takes(model=None)
def kernels(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help="floor, forward, prefill, decode, speculate; all if not given."),
    ] = None,
    *,
    model: str | None,
    draft: Annotated[
        str, typer.Option(help="A model that drafts for it.", metavar="SRC", rich_help_panel=_WHAT)
    ] = "off",
    lengths: Annotated[
        str | None, _one("--draft-tokens", "Lengths to draft; 2,4,6,8 if not given, 4 if quick.", "K,…", _WHAT)
    ] = None,
    contexts: Annotated[
        str, typer.Option("--context", help="Tokens before a forward.", metavar="N,…", rich_help_panel=_HOW)
    ] = "64",
    repeats: Annotated[
        int | None,
        _one("--repeats", "Forwards of each width; 20 if not given, 5 if quick. Replies a third.", "N", _HOW),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few repeats, two prompts, ten seconds a suite.", rich_help_panel=_HOW)
    ] = False,
    no_peer: Annotated[bool, typer.Option("--no-peer", help="Leave llama.cpp out.", rich_help_panel="Running")] = False,
    threads: int | None,
    out: Annotated[Path | None, _one("--out", "Write the JSON to a file as well.", "FILE", "Running")] = None,
) -> int:
    """Measure what this machine's kernels reach: reading, forwards of 1 to 32 tokens, prefill, decoding, short drafts,
    each against the floor and llama.cpp. Without --model: the default model quickly, then the Qwen pair if it is here.

    The exit code is 1 if a speculated reply differs from plain decoding. Ctrl-C keeps what was measured. The last line
    is one JSON object.
    """
    with importing():
        from paceline.bench.suites import Asked, bench_suites

    asked = Asked(
        tuple(suites or ()),
        model,
        draft,
        None if lengths is None else _numbers("--draft-tokens", lengths),
        _numbers("--context", contexts),
        repeats,
        quick,
        not no_peer,
        out,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit keeps what was measured, like Ctrl-C
    return bench_suites(asked, threads=threads, command=shlex.join(sys.argv[1:]))


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (0,)
    if not all(1 <= number <= 1 << 20 for number in numbers):
        raise UsageError(
            f"{option} must be whole numbers from 1 on with commas between, got `{text}`", hint=f"{option} 2,4,8"
        )
    return numbers


@app.command(epilog=_REPORT_EXAMPLES, context_settings=_CONTEXT)
def report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files that `bench run --out` wrote.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.", metavar="FILE")] = Path("report.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Write the summaries to stdout as well.")] = False,
) -> None:
    """Make one self-contained HTML page of one or more runs: speed-up, acceptance, v(M), where the time went.

    Needs matplotlib: pip install "paceline\\[plot]"
    """
    with importing():
        from paceline.bench.page import bench_report
    found = bench_report(files, out)
    print(json.dumps(found) if as_json else out)
