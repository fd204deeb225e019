"""`paceline doctor`: is it worth it for my model, and why is it slower?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options as o
from paceline.cli.calibrate import summary
from paceline.cli.finite import finite

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

_EXAMPLES = """\
[bold]Examples[/bold]

  paceline doctor --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b

  paceline doctor --prompts ours.txt --json > doctor.json; paceline plan --from doctor.json --plot gain.png
"""


@app.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*o.LOADING, "max_tokens", "temperature", "seed", "threads", max_tokens=128)
def doctor(
    given: o.Shared,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="Your prompts: one a line, or a JSON list. Some of ours if not given.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Seconds to measure replies for.", metavar="S", min=1, callback=finite)
    ] = 40.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")] = False,
) -> int:
    """Measure what speculation gains here and say why: v(M) against the floor, draft cost, acceptance by depth,
    break-even, what the controller does, the speed on your prompts, and advice.
    """
    from paceline.audit.prompts import OURS, read
    from paceline.cli.main import INTERRUPTED
    from paceline.cli.terminal import importing

    asked = list(OURS) if prompts is None else read(prompts)
    config, params = given.chosen()
    with importing():
        from paceline.doctor.measure import Examination
        from paceline.doctor.run import conclude, run_doctor
        from paceline.engine.progress import counting
        from paceline.service.llm import LLM

    llm = LLM(**asdict(config), progress=True)
    found, interrupted = Examination(), False
    try:
        with counting("examining", len(asked), True) as show:
            result = run_doctor(llm, asked, params, seconds=seconds, found=found, progress=show)
    except KeyboardInterrupt:
        interrupted = True
        if not found.drafted:
            return INTERRUPTED
        result = conclude(llm, found)
    if as_json:
        print(json.dumps(result))
    else:
        show_report(result)
    if interrupted:
        print("interrupted: fewer prompts than asked for", file=sys.stderr)
    return INTERRUPTED if interrupted else 0


def show_report(result: dict[str, Any]) -> None:
    """Print the report."""
    from rich.console import Console

    console = Console(highlight=False)
    say = console.print
    measured = result["measured"]
    plain, bottom = measured["target_seconds"]["1"], measured["floor_seconds"]
    say(f"[bold]{result['model']}[/bold] with {', '.join(result['drafters']) or 'no drafter'}")
    against = f", {plain / bottom:.2f} times the floor of {bottom * 1e3:.1f} (weights read once)" if bottom else ""
    say(f"one token: {plain * 1e3:.1f} ms{against}")
    say(_curve(result))
    if edge := _edge(measured):
        say(edge)
    if result["calibration"]:
        say(_calibration(result["calibration"]))
    say(_memory(result["memory"]))
    for name, seconds in measured["draft_steps"].items():
        say(f"a step of {name}: {seconds * 1e3:.1f} ms, {seconds / plain:.2f} of a plain token")
    if measured["acceptance"]:
        say(_acceptance(result))
    if result["drafters"]:
        for line in _drafting(result):
            say(line)
    if companion := result["companion"]:
        say(f"auto drafts with {companion['path']}: it has {companion['reason']}")
    for pair in result["pairs"]:
        same = (
            "the same tokens"
            if pair["same"]
            else f"{pair['first_difference']}; {100 * pair['overlap']:.0f} % in common"
        )
        say(f"{pair['draft']} against {pair['target']}: {same}")
    for line in result["advice"]:
        say(f"• {line}")
    say(f"[bold]{result['verdict']}[/bold]")


def _calibration(calibration: dict[str, Any]) -> str:
    from rich.markup import escape

    cure = "; paceline calibrate measures again" if calibration["is_doubtful"] else ""
    return escape(summary(calibration["quality"]) + cure)


def _drafting(result: dict[str, Any]) -> Iterator[str]:
    """Yield the break-even acceptance and the speed-ups; the latter are missing where nothing drafts."""
    least = result["break_even"]
    yield "break-even acceptance: " + ("none, guesses cannot pay here" if least is None else f"{least:.0%}")
    fixed = result["fixed"]
    for what, hoped, gained in (
        (f"up to {fixed['length']} guesses every round", fixed["predicted_speedup"], fixed["measured_speedup"]),
        (f"control {result['control']}", result["predicted_speedup"], result["measured_speedup"]),
    ):
        if hoped and gained:
            yield f"{what}: {hoped:.2f}× expected, {gained:.2f}× measured"
    if result["controller"]:
        yield f"controller: {result['controller']}"


def _curve(result: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("tokens checked")
    rows = [rows for rows in result["v"] if int(rows) <= 16]
    for name in rows:
        table.add_column(name, justify="right")
    table.add_row("v(M), one = 1", *(f"{result['v'][name]:.2f}" for name in rows))
    if result["measured"]["floor_seconds"]:
        table.add_row("its floor", *(f"{result['v_floor'][name]:.2f}" for name in rows))
    return table


def _edge(measured: dict[str, Any]) -> str:
    """Return the rows at which the floor of v(M) passes from memory to arithmetic."""
    read, row = measured["floor_seconds"], measured["row_seconds"]
    if not read or not row:
        return "the floor is reading the weights once" if read else ""
    if row >= read:
        return "the floor is the products of the weights' numbers: arithmetic, not memory, is the limit"
    return f"the floor is reading the weights once up to {int(read / row)} tokens, then their products"


def _memory(memory: dict[str, Any]) -> str:
    kv = memory["target_kv"] + memory["draft_kv"]
    fits = {None: "", True: ", fits", False: ", does not fit"}[memory["fits"]]
    room = "" if memory["room"] is None else f" of {memory['room'] / 1e9:.1f} free{fits}"
    return (
        f"memory {memory['needed'] / 1e9:.1f} GB{room}: target {memory['target_weights'] / 1e9:.2f}, "
        f"draft {memory['draft_weights'] / 1e9:.2f}, keys and values of {memory['context']} tokens {kv / 1e9:.2f}"
    )


def _acceptance(result: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("depth")
    odds = result["measured"]["acceptance"]
    for depth in range(1, len(odds) + 1):
        table.add_column(str(depth), justify="right")
    table.add_row("right, once its parent was", *(f"{100 * value:.0f} %" for value in odds))
    return table
