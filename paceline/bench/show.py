"""A run's summary, as text: one table a temperature, then what is to be known about it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from paceline.bench.summary import ALL
from paceline.core.aliases import Json

MOST_MISMATCHES = 5


def show_machine(console: Console, machine: Json) -> None:
    """State what the numbers hold for."""
    cores = machine["cores"]
    console.print(f"[bold]{machine['cpu']}[/bold], {cores} core{'' if cores == 1 else 's'}, {machine['isa']}")
    load = machine["load_average"][0]
    console.print(
        f"load at start {load:.2f}" + (": [red]others are at work, expect noise[/red]" if load > 0.3 else ""),
        highlight=False,
    )


def show_run(console: Console, found: Json) -> None:
    """Print a summary; nothing measured is said as well."""
    if found["starts"]:
        start = found["starts"][-1]
        show_machine(console, start["machine"])
        widths = start["forward"]["widths"]
        curve = ", ".join(f"v({m}) {row['v']['median']:.2f}" for m, row in widths.items() if row["v"] and m != "1")
        console.print(
            f"{start['file']}, {start['threads']} threads; one token: floor "
            f"{start['forward']['read_floor_ms']:.1f} ms, measured {widths['1']['ms']['median']:.1f} ms; {curve}",
            soft_wrap=True,
        )
    if not found["prompts"]:
        console.print("no prompt was measured")
        return
    show_measured(console, found)
    for line in notes(found):
        console.print(f"  {line}", markup=False)


def show_measured(console: Console, found: Json) -> None:
    """Print the tables of a summary, and whether the replies were the same."""
    for temperature, at in found["temperatures"].items():
        console.print(_table(temperature, at, found["settings"]["ways"]))
        if "vs_peer_geometric_mean" in at[ALL]:
            pairs = ", ".join(f"{kind} {cell['best_peer']}" for kind, cell in at["workloads"].items() if cell["peers"])
            console.print(
                f"  ÷ peer: against its best mode of each workload ({pairs});\n"
                "  with our best way of each workload, too: "
                f"[bold]{at[ALL]['vs_peer_geometric_mean']:.2f}[/bold]. A peer's mean is over our plain decoding",
                soft_wrap=True,
            )
    console.print(
        "  speed-up: median over prompts (middle half), then geometric mean; length: tokens committed per round,"
        "\n  the bonus included; ms are per round; all: workloads weigh the same in the mean"
    )
    _identity(console, found)


def notes(found: Json) -> list[str]:
    """Return what a reader must know before trusting the numbers."""
    said: list[str] = []
    commits = {start["machine"]["commit"] for start in found["starts"]}
    if len(commits) > 1:
        said.append(f"measured in {len(found['starts'])} starts, by different commits: {', '.join(sorted(commits))}")
    for start in found["starts"]:
        if start.get("too_long"):
            said.append(f"left out, longer than the model's context: {', '.join(start['too_long'])}")
        for name, reason in start.get("missing_peers", {}).items():
            said.append(f"without {name}: {reason}")
    busy = found["neighbour_cores"]
    if busy is not None and busy["max"] > 0.1:
        said.append(
            f"others kept {busy['median']:.2f} cores busy (median over prompts, at most {busy['max']:.2f}): "
            "expect noise"
        )
    for name in found["lost_peers"]:
        said.append(f"{name} was lost on the way")
    if found["settings"]["replay"]:
        said.append("prompts were asked without a number of their own: what caches remember of them counts")
    if found.get("interrupted"):
        said.append("interrupted: what was measured until then")
    return said


def _table(temperature: str, at: Json, ways: list[str]) -> Table:
    table = Table(title=f"temperature {temperature}", title_justify="left", box=None)
    for i, heading in enumerate(
        ("", "", "speed-up", "mean", "÷ peer", "tokens/s", "length", "rate", "draft + verify + other, ms")
    ):
        table.add_column(heading, justify="right" if i > 1 else "left", no_wrap=True)
    for kind, cell in [*at["workloads"].items(), (ALL, at[ALL])]:
        table.add_row(f"[bold]{kind}[/bold]", "plain", "", "", "", *_rate(cell["plain"]), "", "", _times(cell["plain"]))
        for name in ways:
            way = cell["ways"].get(name)
            if way is None or not way["speedup"]:
                continue
            gain = way["speedup"]
            mean = f"{way['speedup_geometric_mean']:.2f}"
            table.add_row(
                "",
                name,
                f"{gain['median']:.2f} ({gain['p25']:.2f}–{gain['p75']:.2f})",
                f"[green]{mean}[/green]" if name == cell["best"] else mean,
                f"{way['vs_peer_geometric_mean']:.2f}" if "vs_peer_geometric_mean" in way else "",
                *_rate(way),
                f"{way['acceptance_length']:.2f}",
                f"{way['acceptance_rate']:.0%}",
                _times(way),
            )
        for name, mode in cell["peers"].items():
            mean = f"{mode['vs_plain_geometric_mean']:.2f}"
            rate = "" if mode["acceptance_rate"] is None else f"{mode['acceptance_rate']:.0%}"
            table.add_row("", f"[dim]{name}[/dim]", "", mean, "", *_rate(mode), "", rate, "")
    return table


def _rate(cell: Json) -> tuple[str]:
    return (f"{cell['tokens_per_second']['median']:.1f}" if cell["tokens_per_second"] else "–",)


def _times(cell: Json) -> str:
    ms = cell["ms_per_round"]
    return f"{ms['draft']:.1f} + {ms['verify']:.1f} + {ms['other']:.2f}"


def _identity(console: Console, found: Json) -> None:
    wrong = found["mismatches"]
    if not wrong:
        console.print(f"  all {found['compared']} replies that must equal plain decoding do, token for token")
        return
    console.print(f"  [red bold]{len(wrong)} of {found['compared']} replies differ from plain decoding[/red bold]")
    for entry in wrong[:MOST_MISMATCHES]:
        console.print(
            f"    {entry['way']}: {entry['workload']} {entry['index']} at temperature {entry['temperature']:g}, "
            f"token {entry['position']}: {entry['plain']} became {entry['speculated']}",
            markup=False,
        )
