"""`paceline plan`: forecast the gain of speculation, without loading a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.finite import finite
from paceline.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

_EXAMPLES = """\
[bold]Examples[/bold]

  paceline plan --target 70b --draft 8b --bits 4 --hardware a100 --acceptance 0.75

  paceline plan --target qwen2.5-7b --draft qwen2.5-0.5b --hardware 4090 --bits 4.5 --batch 8 --plot plan.png

  paceline plan --cost 0.12 --v 4:1.3,8:1.6,16:2.9 --acceptance 0.8,0.75,0.7

  paceline doctor --model M --draft D --json > doctor.json; paceline plan --from doctor.json
"""
_BAR = 30


def _bits(said: str) -> Any:
    """Return an option for bits a weight that has no default of its own."""
    return typer.Option(help=said, metavar="N", min=1, max=32, callback=finite, show_default=False)


@app.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
def plan(
    target: Annotated[
        str | None,
        typer.Option(
            help="A known model (70b, qwen2.5-7b, …) or a model file; 8b if not given.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            help="The draft: a model as for --target, or `free` for look-up in the text; 1b if not given.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            help="A known machine (a100, b200, mi300x, 5090, m4-max, ryzen-9950x, laptop, …), or a JSON file with its "
            "bandwidth, flops and memory; a100 if not given.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(help="GB/s of your memory, for the machine's.", metavar="N", callback=finite, show_default=False),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(
            help="TFLOPS at 16 bits of your machine, for the other's.", metavar="N", callback=finite, show_default=False
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            help="Odds that a guess is right; by depth with commas: 0.8,0.75,0.7. If not given, what --from "
            "says, else 0.75.",
            metavar="A",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens in a sequence; 1024 if not given.", metavar="N", min=1, show_default=False),
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences at once.", metavar="B", min=1, max=65536)] = 1,
    bits: Annotated[
        float | None,
        _bits("Bits a weight of the target; a model file's own if not given, else 16."),
    ] = None,
    draft_bits: Annotated[
        float | None,
        _bits("Bits a weight of the draft; a model file's own if not given, else the target's."),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            help="Plain tokens a draft step takes, if you know better: 0.1 is a tenth.",
            metavar="C",
            min=0,
            callback=finite,
            show_default=False,
        ),
    ] = None,
    v: Annotated[
        str | None,
        typer.Option(
            "--v",
            help="The time to check M tokens over that of one, if you know better: 4:1.3,8:1.6.",
            metavar="M:V,…",
            show_default=False,
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A doctor's JSON: measured times and acceptance instead of models and a machine.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture: .png, .svg or .pdf.", metavar="FILE", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")] = False,
) -> None:
    """Forecast speculation: tokens a round, speed-up, best draft length and tree, break-even, memory, batch size.

    From model shapes and data sheets (a roofline: real machines reach less), or from what `paceline doctor` measured.
    """
    from paceline.plan.run import run_plan

    found = run_plan(
        target,
        draft,
        hardware=hardware,
        bandwidth=bandwidth,
        flops=flops,
        acceptance=None if acceptance is None else _odds(acceptance),
        context=context,
        batch=batch,
        bits=bits,
        draft_bits=draft_bits,
        measured=measured,
        cost=cost,
        v=None if v is None else _curve(v),
    )
    odds = found["acceptance"]
    title = f"{found['target']} with {found['draft']} on {found['hardware']}"
    if found["measured"]:
        title = f"times as measured, acceptance {', '.join(f'{value:g}' for value in odds)} as {found['acceptance_is']}"
    if plot:
        from paceline.plan.plot import draw

        what = title if found["measured"] else f"{title}, acceptance {odds[0]:g}"
        draw(found, plot, f"{what}, {batch} sequence{'s' if batch > 1 else ''}")
    if as_json:
        print(json.dumps(found))
    else:
        show(found, title)


def show(found: dict[str, Any], title: str) -> None:
    """Print a forecast."""
    from rich.console import Console

    console = Console(highlight=False)
    say = console.print
    say(
        f"[bold]{title}[/bold]"
        + ("" if found["measured"] else f"  [dim]({found['hardware_source']}; 75 % of it reached)[/dim]")
    )
    cost, v = (" (given)" if found[name] == "given" else "" for name in ("cost_is", "v_is"))
    say(
        f"plain {found['plain_seconds'] * 1e3:.2f} ms a step · "
        f"a draft step costs {found['draft_step']:.3f} of it{cost} · "
        f"v(4) {found['v']['4']:.2f}, v(8) {found['v']['8']:.2f}, v(16) {found['v']['16']:.2f}{v}"
    )
    say(_lengths(found))
    tree, least = found["best_tree"], found["break_even"]
    if tree["nodes"]:
        say(f"best tree: {tree['nodes']} nodes, {tree['depth']} deep: {tree['speedup']:.2f}× (siblings' odds assumed)")
    say("break-even acceptance: " + ("none: even perfect guesses would not pay" if least is None else f"{least:.1%}"))
    say(_batches(found))
    if found["memory"]:
        say(_memory(found))
    if found["pair"] and found["pair"]["note"]:
        say(f"[yellow]{found['pair']['note']}[/yellow]")
    seeds = found["seeds_formula"]
    say(
        f"[dim]The often quoted r K t_T / (t_D + t_T) says {seeds['speedup']:.2f}× at {seeds['length']}, right is "
        f"{seeds['right']:.2f}×: {seeds['why']}.[/dim]"
    )
    say(f"[bold]{found['verdict']}[/bold]")


def _memory(found: dict[str, Any]) -> str:
    memory = found["memory"]
    fits = "fits" if memory["fits"] else "[red]does not fit[/red]"
    kv = memory["target_kv"] + memory["draft_kv"]
    sizes = [f"{name} {memory[f'{name}_weights'] / 1e9:.1f}" for name in ("target", "draft")]
    sizes[0] += f" at {found['bits']:.3g} bits"
    if found["draft_bits"]:
        sizes[1] += f" at {found['draft_bits']:.3g} bits"
    return f"memory {memory['total'] / 1e9:.1f} GB, {fits}: {', '.join(sizes)}, keys and values {kv / 1e9:.2f}"


def _lengths(found: dict[str, Any]) -> Table:
    from rich.bar import Bar
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("draft length", "tokens a round", "speed-up"):
        table.add_column(name, justify="right")
    table.add_column("")
    longest = max(2.0, *(choice["speedup"] for choice in found["lengths"]))
    for choice in found["lengths"]:
        mark = "[green]" if choice["nodes"] == found["best_chain"]["nodes"] else ""
        bar = Bar(longest, 0, choice["speedup"], width=_BAR, color="green" if mark else "blue")
        table.add_row(str(choice["nodes"]), f"{choice['tokens']:.2f}", f"{mark}{choice['speedup']:.2f}", bar)
    return table


def _batches(found: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("sequences at once", "best draft length", "speed-up"):
        table.add_column(title, justify="right")
    for row in found["batches"]:
        table.add_row(str(row["batch"]), str(row["length"]), f"{row['speedup']:.2f}")
    return table


def _odds(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--acceptance must be numbers from 0 to 1, got `{text}`", hint="for example 0.8 or 0.8,0.7"
        ) from error


def _curve(text: str) -> dict[int, float]:
    """Read `M:V,M:V`."""
    found: dict[int, float] = {}
    try:
        for part in text.split(","):
            rows, _, value = part.partition(":")
            if int(rows) in found:
                raise ValueError(rows)
            found[int(rows)] = float(value)
    except ValueError as error:
        raise UsageError(
            f"--v must be M:V with commas between, each M once, got `{text}`", hint="for example 4:1.3,8:1.6"
        ) from error
    return found
