"""What was measured, as text: one small table a suite, and the bars with their marks."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from paceline.bench.show import show_measured
from paceline.core.aliases import Json

_COLOURS = {"aim": "green", "pass": "yellow", "fail": "red"}


def show_suite(console: Console, name: str, found: Json) -> None:
    """Print one suite; parts that were not measured are left out."""
    _TABLES[name](console, found)
    if found.get("over_time"):
        console.print(f"  took {found['seconds']:.0f} s, more than planned: what was left of the repeats is left out")
    busy = found.get("neighbour_cores")
    if busy is not None and busy > 0.1:
        console.print(f"  [red]meanwhile others kept {busy:.2f} cores busy[/red]", highlight=False)


def show_bars(console: Console, bars: list[Json]) -> None:
    """Print each bar beside its value."""
    if not bars:
        return
    table = Table(title="bars", title_justify="left", box=None)
    for heading in ("", "measured", "bar", "aim", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for bar in bars:
        limit = f"≥ {bar['at_least']:g}" if "at_least" in bar else f"≤ {bar['at_most']:g}"
        mark = bar["mark"]
        table.add_row(
            bar["says"], f"{bar['value']:.2f}", limit, f"{bar['aim']:g}", f"[{_COLOURS[mark]}]{mark}[/{_COLOURS[mark]}]"
        )
    console.print(table)


def spread(found: Json | None, digits: int = 1, unit: float = 1.0) -> str:
    """Return "median (min p25–p75)"."""
    if not found:
        return "–"
    median, least, low, high = (found[name] / unit for name in ("median", "min", "p25", "p75"))
    return f"{median:.{digits}f} ({least:.{digits}f}; {low:.{digits}f}–{high:.{digits}f})"


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", no_wrap=True)
    return table


def _floor(console: Console, found: Json) -> None:
    table = _table("floor", "", "median (min; p25–p75)", "best")
    for label, key, unit in (
        (f"read {found['memory_buffer_bytes'] / 1e6:.0f} MB, GB/s", "memory_bytes_per_second", 1e9),
        (f"read {found['weights_buffer_bytes'] / 1e6:.0f} MB as the weights, GB/s", "weights_bytes_per_second", 1e9),
        ("int8 products, G/s", "int8_products_per_second", 1e9),
    ):
        if found.get(key):
            table.add_row(label, spread(found[key], 1, unit), f"{found[key]['max'] / unit:.1f}")
    console.print(table)
    if found.get("rows_at_which_arithmetic_binds"):
        console.print(f"  arithmetic takes over from memory at M = {found['rows_at_which_arithmetic_binds']:.1f} rows")


def _forward(console: Console, found: Json) -> None:
    for context, at in found.items():
        if not isinstance(at, dict) or "widths" not in at:
            continue
        table = _table(
            f"forward, {context.replace('_', ' ')}", "M", "ms: median (min; p25–p75)", "v(M)", "floor ms", "÷ floor"
        )
        for width, row in at["widths"].items():
            v = spread(row["v"], 2) if row["v"] else "–"
            table.add_row(width, spread(row["ms"], 2), v, f"{row['floor_ms']:.2f}", f"{row['over_floor']:.2f}")
        console.print(table)
        if "decode_over_floor" in at:
            console.print(
                f"  t(1) ÷ reading weights and keys once: {at['decode_over_floor']:.2f}"
                f" (best ÷ best {at['decode_over_floor_best']:.2f})"
            )
        if "peer_t1_ms" in at:
            console.print(f"  llama.cpp t(1) ms: {spread(at['peer_t1_ms'], 2)}")
        if "t8_vs_peer_t1" in at:
            console.print(f"  t(8) ÷ llama.cpp t(1): {spread(at['t8_vs_peer_t1'], 2)}")


def _prefill(console: Console, found: Json) -> None:
    table = _table(f"prefill of {found['tokens']} tokens", "", "tokens/s: median (min; p25–p75)")
    _against_peer(table, found)
    console.print(table)


def _decode(console: Console, found: Json) -> None:
    table = _table(f"plain decode of {found['tokens']} tokens", "", "tokens/s: median (min; p25–p75)")
    _against_peer(table, found)
    console.print(table)
    console.print(
        f"  {found['ms_per_token']:.2f} ms a token, floor {found['floor_ms_per_token']:.2f} ms, "
        f"÷ floor {found['over_floor']:.2f}; other {spread(found['other_ms_per_round'], 3)} ms a round, "
        f"all outside the forward {spread(found['outside_forward_ms_per_round'], 3)} ms"
    )


def _against_peer(table: Table, found: Json) -> None:
    table.add_row("paceline", spread(found["tokens_per_second"]))
    if "vs_peer" in found:
        table.add_row("llama.cpp", spread(found["peer_tokens_per_second"]))
        table.add_row("ratio, pair by pair", spread(found["vs_peer"], 2))


_TABLES = {"floor": _floor, "forward": _forward, "prefill": _prefill, "decode": _decode, "speculate": show_measured}
