"""The forecast as a picture: speed-up against draft length, and against batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.errors import UsageError

KINDS = (".png", ".svg", ".pdf")
BLUE, GREY, RED = "#2a6fbb", "#888888", "#c0392b"


def draw(found: dict[str, Any], path: Path, title: str) -> None:
    """Write a forecast's picture.

    Raises:
        UsageError: the file's kind is not one of `KINDS`, matplotlib is missing, or the file cannot be written.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"a plot must be a {', '.join(KINDS)} file, got `{path.name}`")
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("a plot needs matplotlib", hint='pip install "paceline[plot]"') from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    lengths = found["lengths"]
    left.plot([0, *(c["nodes"] for c in lengths)], [1, *(c["speedup"] for c in lengths)], "o-", color=BLUE, ms=4)
    best = found["best_chain"]
    left.annotate(
        f"{best['speedup']:.2f}× at {best['nodes']}",
        (best["nodes"], best["speedup"]),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        color=BLUE,
    )
    left.set(
        xlabel="draft length",
        ylabel="speed-up over plain decoding",
        ylim=(0, 1.15 * max(c["speedup"] for c in (*lengths, best))),
    )
    batches = found["batches"]
    right.plot([b["batch"] for b in batches], [b["speedup"] for b in batches], "o-", color=BLUE, ms=4)
    for b in batches:
        right.annotate(
            str(b["length"]), (b["batch"], b["speedup"]), xytext=(0, 7), textcoords="offset points", ha="center"
        )
    right.set(xlabel="sequences at once (numbers: best draft length)", xscale="log", ylim=(0, left.get_ylim()[1]))
    right.set_xticks([b["batch"] for b in batches], [str(b["batch"]) for b in batches])
    right.minorticks_off()
    for axes in (left, right):
        axes.axhline(1, color=GREY, lw=1, ls="--")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    left.text(left.get_xlim()[1], 1, " plain", color=GREY, va="bottom", ha="right", fontsize=9)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from error
    finally:
        pyplot.close(figure)
