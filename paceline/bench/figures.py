"""The pictures of a report, as SVG to put into a page: their ink is the page's own, light or dark.

matplotlib draws them, and is imported when the first one is asked for.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable
from typing import Any

from paceline.bench.summary import ALL
from paceline.core.aliases import Json
from paceline.errors import UsageError

INK, FAINT = "#010203", "#010204"  # stand for the page's own ink, which CSS sets
COLOURS = ("#3f7fbf", "#dd8a2e", "#3d9b6d", "#9268bd", "#c9534f", "#2f9aa5", "#b08f3a", "#8a8f98")
GREY = COLOURS[-1]
MOST_WAYS = 6  # bars side by side that an eye can tell apart
WIDTH = 9.4  # inches

_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.alpha": 0.18,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def need_matplotlib() -> Any:
    """Return matplotlib, told to draw without a screen.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("a report needs matplotlib", hint='pip install "paceline[plot]"') from error
    matplotlib.use("Agg")
    return matplotlib


def drawn(draw: Callable[[Any, Any], None], height: float, label: str, *, columns: int = 1) -> str:
    """Return what `draw` puts on the axes (one, or an array of `columns`) as an SVG element."""
    matplotlib = need_matplotlib()
    from matplotlib import pyplot

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": label}):
        figure, axes = pyplot.subplots(1, columns, figsize=(WIDTH, height), layout="constrained")
        try:
            draw(figure, axes)
            out = io.StringIO()
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        finally:
            pyplot.close(figure)
    return _for_page(out.getvalue(), label)


def _for_page(svg: str, label: str) -> str:
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(FAINT, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'font: ([\d.]+)px [^;"]*', r"font: \1px system-ui, sans-serif", svg)
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", svg, count=1)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", svg, count=1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def best_ways(at: Json) -> list[str]:
    """Return the ways to show, the best over all workloads first."""
    ways = at[ALL]["ways"]
    return sorted(ways, key=lambda name: -ways[name]["speedup_geometric_mean"])[:MOST_WAYS]


def speedups(at: Json, label: str) -> str:
    """Draw the speed-up of each way by workload, the middle half of its prompts as a whisker."""
    names, kinds = best_ways(at), list(at["workloads"])

    def draw(figure: Any, axes: Any) -> None:
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            cells = [at["workloads"][kind]["ways"].get(name) for kind in kinds]
            at_x = [k + (i - (len(names) - 1) / 2) * width for k in range(len(kinds))]
            found = [(x, cell) for x, cell in zip(at_x, cells, strict=True) if cell and cell["speedup"]]
            means = [cell["speedup_geometric_mean"] for _, cell in found]
            axes.bar([x for x, _ in found], means, width * 0.88, color=COLOURS[i], label=name)
            for (x, cell), _ in zip(found, means, strict=True):
                axes.plot([x, x], [cell["speedup"]["p25"], cell["speedup"]["p75"]], color=INK, lw=1, alpha=0.7)
                if len(names) <= 2:
                    top = max(cell["speedup"]["p75"], cell["speedup_geometric_mean"])
                    axes.annotate(
                        f"{cell['speedup_geometric_mean']:.2f}",
                        (x, top),
                        xytext=(0, 3),
                        textcoords="offset points",
                        ha="center",
                        fontsize=9,
                    )
        axes.axhline(1, color=INK, lw=1, ls=(0, (4, 3)))
        axes.set(ylabel="speed-up over plain decoding", xlim=(-0.6, len(kinds) - 0.4))
        axes.set_xticks(range(len(kinds)), kinds)
        _legend(figure, axes)

    return drawn(draw, 3.8, label)


def rates(at: Json, label: str) -> str:
    """Draw tokens/s of plain decoding, the workload's best way and the peer's best mode."""
    cells = at["workloads"]
    kinds = [kind for kind in cells if cells[kind]["plain"]["tokens_per_second"]]
    best = {kind: cells[kind]["ways"][cells[kind]["best"]] for kind in kinds if cells[kind]["best"]}
    peers = {kind: cells[kind]["peers"][cells[kind]["best_peer"]] for kind in kinds if cells[kind].get("best_peer")}
    series = [("plain", {kind: cells[kind]["plain"] for kind in kinds}, GREY), ("best way", best, COLOURS[0])]
    if peers:
        peer = next(iter(cells[kind]["best_peer"] for kind in peers)).partition(" ")[0]
        series.append((f"{peer}, best mode", peers, COLOURS[1]))

    def draw(figure: Any, axes: Any) -> None:
        width = 0.8 / len(series)
        for i, (name, found, colour) in enumerate(series):
            shown = [(k, found[kind]["tokens_per_second"]) for k, kind in enumerate(kinds) if _has_rate(found, kind)]
            xs = [k + (i - (len(series) - 1) / 2) * width for k, _ in shown]
            axes.bar(xs, [rate["median"] for _, rate in shown], width * 0.9, color=colour, label=name)
            for x, (_, rate) in zip(xs, shown, strict=True):
                axes.plot([x, x], [rate["p25"], rate["p75"]], color=INK, lw=1, alpha=0.7)
        axes.set(ylabel="tokens/s", xlim=(-0.6, len(kinds) - 0.4))
        axes.set_xticks(range(len(kinds)), kinds)
        _legend(figure, axes)

    return drawn(draw, 3.4, label)


def acceptance(at: Json, label: str) -> str:
    """Draw acceptance by depth, and by source."""
    names, ways = best_ways(at), at[ALL]["ways"]
    sources = [(name, source, row) for name in names for source, row in ways[name]["by_source"].items()][:12]

    def draw(figure: Any, both: Any) -> None:
        left, right = both
        for name, colour in zip(names, COLOURS, strict=False):
            rows = [row for row in ways[name]["by_depth"] if row["tested"] >= 5]
            left.plot(range(1, len(rows) + 1), [row["rate"] for row in rows], "o-", ms=4, color=colour, label=name)
        left.set(xlabel="depth", ylabel="accepted, once its parent was", ylim=(0, 1.03))
        left.xaxis.get_major_locator().set_params(integer=True)
        for i, (name, _, row) in enumerate(sources):
            colour = COLOURS[names.index(name) % len(COLOURS)]
            right.barh(i, row["rate"], 0.7, color=colour)
            right.annotate(
                f"{row['rate']:.0%} of {row['drafted']}",
                (row["rate"], i),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        right.set(xlabel="accepted of drafted, by source", xlim=(0, 1.25))
        right.set_xticks([0, 0.5, 1])
        right.set_yticks(range(len(sources)), [source for _, source, _ in sources])
        right.invert_yaxis()
        right.grid(axis="x")
        right.grid(visible=False, axis="y")
        _legend(figure, left)

    return drawn(draw, 3.4, label, columns=2)


def curve(start: Json, label: str) -> str:
    """Draw v(M), the price of verifying M tokens in tokens, with the floor below which no forward can stay."""
    widths = start["forward"]["widths"]
    xs = [int(width) for width in widths]
    one = widths["1"]["ms"]["median"]

    def draw(figure: Any, axes: Any) -> None:
        v = [widths[str(x)]["v"] for x in xs]
        axes.fill_between(xs, [row["p25"] for row in v], [row["p75"] for row in v], color=COLOURS[0], alpha=0.25, lw=0)
        axes.plot(xs, [row["median"] for row in v], "o-", ms=4, color=COLOURS[0], label="v(M), measured")
        floors = [widths[str(x)]["floor_ms"] / one for x in xs]
        axes.plot(xs, floors, color=GREY, ls=(0, (4, 3)), label="floor: memory or arithmetic")
        for x, row in zip(xs, v, strict=True):
            if x in (1, 4, 8, 16):
                axes.annotate(
                    f"{row['median']:.2f}", (x, row["median"]), xytext=(0, 6), textcoords="offset points", ha="center"
                )
        axes.set(xlabel="M, tokens in one forward", ylabel="× the time of one token")
        axes.set_xticks(xs)
        axes.set_ylim(0)
        _legend(figure, axes)

    return drawn(draw, 3.0, label)


def times(at: Json, label: str) -> str:
    """Draw where a round's time goes, plain decoding first."""
    rows = [("plain", at[ALL]["plain"]), *((name, at[ALL]["ways"][name]) for name in best_ways(at))]
    parts = (("verify", COLOURS[0]), ("draft", COLOURS[1]), ("other", GREY))

    def draw(figure: Any, axes: Any) -> None:
        for i, (_, row) in enumerate(rows):
            ends = [0.0, *itertools.accumulate(row["ms_per_round"][part] for part, _ in parts)]
            for (part, colour), start, end in zip(parts, ends, ends[1:], strict=False):
                axes.barh(i, end - start, 0.62, left=start, color=colour, label=part if i == 0 else None)
            axes.annotate(
                f"{ends[-1]:.1f} ms for {row['acceptance_length']:.2f} tokens",
                (ends[-1], i),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.set(xlabel="ms per round, mean")
        axes.set_xlim(0, 1.3 * max(sum(row["ms_per_round"][part] for part, _ in parts) for _, row in rows))
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x")
        _legend(figure, axes)

    return drawn(draw, 0.9 + 0.34 * len(rows), label)


def _has_rate(found: Json, kind: str) -> bool:
    return kind in found and found[kind]["tokens_per_second"] is not None


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(len(labels), 4), fontsize=9)
