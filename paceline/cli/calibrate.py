"""`paceline calibrate`: measure this machine anew, and show the calibration that is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options as o

if TYPE_CHECKING:
    from rich.table import Table

QUIET = 0.1  # cores that other processes use; less shows as none

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

_EXAMPLES = """\
[bold]Examples[/bold]

  paceline calibrate --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b

  paceline calibrate --threads 4 --json
"""


@app.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@o.takes("model", "quant", "draft", "draft_quant", "draft_head", "verify", "threads")
def calibrate(
    given: o.Shared,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")] = False,
) -> None:
    """Measure anew what the target's forwards and draft steps take on this machine, and keep it in place of what was
    kept: best while nothing else runs. Give the options that you reply with: each choice of models, packing,
    verifier and threads is kept by itself.
    """
    from paceline.cli.terminal import importing

    config, _ = given.chosen()
    with importing():
        from paceline.engine.recalibrate import recalibrate

    result = recalibrate(config, progress=True)
    if as_json:
        print(json.dumps(result))
    else:
        show(result)


def show(result: Mapping[str, Any]) -> None:
    """Print what was measured, and where it is kept."""
    from rich.console import Console

    say = Console(highlight=False, markup=False, soft_wrap=True).print
    say(f"{result['model']} with {', '.join(result['drafters']) or 'no drafter'}, {result['threads']} threads")
    if result["quality"] is None:
        say("nothing to measure: where nothing drafts, no forward is priced")
        return
    plain, bottom = result["forward_seconds"]["1"], result["quality"]["floor_seconds"]
    against = f", {plain / bottom:.2f} times the floor of {bottom * 1e3:.1f} (weights read once)" if bottom else ""
    say(f"one token: {plain * 1e3:.1f} ms{against}")
    say(_curve(result))
    for name, seconds in result["step_seconds"].items():
        say(f"a step of {name}: {seconds * 1e3:.1f} ms, {seconds / plain:.2f} of a plain token")
    say(summary(result["quality"]))
    say(_counts(result["quality"]))
    say(f"kept in {result['path']}" if result["path"] else "not kept: the folder of measurements cannot be written")


def summary(quality: Mapping[str, Any]) -> str:
    """Return one line: when a calibration was made, and how far it can be trusted."""
    made = datetime.fromisoformat(quality["made"]).astimezone(UTC)
    when = f"calibrated {made:%Y-%m-%d %H:%M} UTC"
    if quality["doubts"]:
        return f"{when}, doubtful: {'; '.join(quality['doubts'])}"
    others = quality["neighbours"]
    how = "sound" if others is None or others >= QUIET else "quiet"
    return f"{when}, {how}, spread {100 * quality['spread']:.0f} %"


def _counts(quality: Mapping[str, Any]) -> str:
    others = quality["neighbours"]
    used = "" if others is None else f", {others:.1f} cores busy with other work"
    return (
        f"{quality['repeats']} repeats or more, spread {100 * quality['spread']:.0f} %, threads ran "
        f"{100 * quality['cpu_share']:.0f} % of the time, {quality['switches']} involuntary switches{used}"
    )


def _curve(result: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("tokens checked")
    rows = [rows for rows in result["v"] if int(rows) <= 16]
    for name in rows:
        table.add_column(name, justify="right")
    table.add_row("ms", *(f"{result['forward_seconds'][name] * 1e3:.1f}" for name in rows))
    table.add_row("v(M), one = 1", *(f"{result['v'][name]:.2f}" for name in rows))
    return table
