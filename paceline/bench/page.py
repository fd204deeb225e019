"""`bench report`: runs as one self-contained HTML page. No script, nothing loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import paceline
from paceline.bench import figures
from paceline.bench.records import read
from paceline.bench.show import notes
from paceline.bench.summary import ALL, summarise
from paceline.core.aliases import Json
from paceline.errors import UsageError

_CSS = """
:root { color-scheme: light dark; --ink: #1d2127; --soft: #5d6570; --line: #d9dde2; --card: #f4f6f8; --good: #2b7d53;
  --bad: #b3362f; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #9aa3ad; --line: #343a42; --card: #1f242a;
  --good: #63c08f; --bad: #ee7d74; --paper: #15181c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2.2rem 1.2rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .2rem; } p { margin: .3rem 0 .8rem; } .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.card { background: var(--card); border-radius: .6rem; padding: .8rem 1rem; } .card b { display: block;
  font-size: 1.55rem; line-height: 1.25; font-weight: 650; } .card span { color: var(--soft); font-size: .88rem; }
.good { color: var(--good); } .bad { color: var(--bad); } svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: right; padding: .28rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; } th { color: var(--soft);
  font-weight: 500; } tr.first td { border-top: 2px solid var(--line); } td.best { font-weight: 650;
  color: var(--good); }
details { margin: 1rem 0; } summary { cursor: pointer; } pre { background: var(--card); padding: .9rem;
  border-radius: .6rem; overflow-x: auto; font-size: .82rem; } li { margin: .2rem 0; }
"""


def bench_report(files: Sequence[Path], out: Path) -> list[Json]:
    """Write the page and return the summaries it shows.

    Raises:
        UsageError: a file is not a run's or holds no prompt, matplotlib is missing, or the page cannot be written.
    """
    summaries = []
    for path in files:
        found = read(path)
        if not found.prompts:
            raise UsageError(f"`{path}` holds no prompt yet", hint="go on with it: paceline bench run … --resume --out")
        summaries.append(summarise(found.settings, found.starts, found.prompts))
    figures.need_matplotlib()
    try:
        out.write_text(page(summaries), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write `{out}`: {error.strerror}", hint="choose another -o") from error
    return summaries


def page(summaries: Sequence[Json]) -> str:
    """Return the page of these summaries."""
    title = "Speculation, measured"
    body = "\n".join(_run(found, number) for number, found in enumerate(summaries, 1))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_CSS}</style></head>\n<body>\n'
        f"<h1>{title}</h1>\n<p class=soft>paceline {escape(paceline.__version__)} bench report. Speed-up is tokens/s "
        "of a way to speculate ÷ tokens/s of plain decoding of the same prompt, one right after the other.</p>\n"
        f"{body}\n</body></html>\n"
    )


def _run(found: Json, number: int) -> str:
    start = found["starts"][-1]
    machine = start["machine"]
    about = (
        f"{start['file']} · {start['weight_bytes'] / 1e6:.0f} MB of weights · {machine['cpu']}, "
        f"{start['threads']} threads, {machine['isa']} · {start['started']} · commit {machine['commit'] or 'unknown'}"
    )
    parts = [f"<h2>{escape(found['settings']['model'])}</h2>", f"<p class=soft>{escape(about)}</p>", _cards(found)]
    for temperature, at in found["temperatures"].items():
        parts.append(_temperature(temperature, at, number))
    parts += [
        "<h3>What verifying costs: v(M)</h3>",
        "<p class=soft>One whole forward of M tokens against one of a single token, and the time that reading the "
        "weights once, or the arithmetic, takes at least. Measured before the prompts, with 256 tokens of context.</p>",
        figures.curve(start, f"v of M, run {number}"),
        _identity(found),
        _notes(found),
        f"<details><summary>Configuration</summary><pre>{escape(_configuration(found))}</pre></details>",
    ]
    return "\n".join(parts)


def _cards(found: Json) -> str:
    cards = []
    for temperature, at in found["temperatures"].items():
        best = at[ALL]["best"]
        gain = at[ALL]["ways"][best]["speedup_geometric_mean"]
        cards.append((f"{gain:.2f}×", f"{best}, geometric mean over workloads, temperature {temperature}", ""))
    peers = [(t, at[ALL]) for t, at in found["temperatures"].items() if "vs_peer_geometric_mean" in at[ALL]]
    for temperature, cell in peers:
        gain, peer = cell["ways"][cell["best"]]["vs_peer_geometric_mean"], cell["best_peer"].partition(" ")[0]
        cards.append((f"{gain:.2f}×", f"{cell['best']} ÷ {peer}'s best mode, temperature {temperature}", ""))
    forward = found["starts"][-1]["forward"]
    cards.append(
        (
            f"{forward['decode_over_floor']:.2f}×",
            f"the floor: one token takes {forward['widths']['1']['ms']['median']:.1f} ms, reading the weights "
            f"{forward['read_floor_ms']:.1f} ms",
            "",
        )
    )
    wrong = len(found["mismatches"])
    cards.append((f"{wrong} of {found['compared']}", "replies differ from plain decoding", "bad" if wrong else "good"))
    return (
        "<div class=cards>"
        + "".join(
            f'<div class=card><b class="{kind}">{escape(big)}</b><span>{escape(small)}</span></div>'
            for big, small, kind in cards
        )
        + "</div>"
    )


def _temperature(temperature: str, at: Json, number: int) -> str:
    label = f"temperature {temperature}, run {number}"
    left_out = len(at[ALL]["ways"]) - len(figures.best_ways(at))
    more = f" {left_out} further ways are in the table." if left_out else ""
    return "\n".join(
        [
            f"<h2>Temperature {escape(temperature)}</h2>",
            "<h3>Speed-up by workload</h3>",
            "<p class=soft>Bars: geometric mean over prompts. Lines: the middle half of the prompts. Below the dashed "
            f"line, speculation made the reply slower.{more}</p>",
            figures.speedups(at, f"speed-up, {label}"),
            "<h3>Tokens per second</h3>",
            "<p class=soft>Medians over prompts, after the first token. Best: the one of each workload, which one "
            "would have to know beforehand.</p>",
            figures.rates(at, f"tokens per second, {label}"),
            "<h3>What is accepted</h3>",
            "<p class=soft>Left: a guess at this depth, given that all before it were right; depths with fewer than "
            "five guesses are left out. Right: of everything drafted, colours as on the left.</p>",
            figures.acceptance(at, f"acceptance, {label}"),
            "<h3>Where a round's time goes</h3>",
            "<p class=soft>A round is one forward of the target with what comes before and after it.</p>",
            figures.times(at, f"time of a round, {label}"),
            f"<details><summary>All numbers at temperature {escape(temperature)}</summary>{_table(at)}</details>",
        ]
    )


def _table(at: Json) -> str:
    heads = (
        "workload",
        "way",
        "speed-up",
        "median (p25–p75)",
        "÷ peer",
        "tokens/s",
        "length",
        "rate",
        "draft",
        "verify",
        "other",
    )
    rows = ["<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"]
    for kind, cell in [*at["workloads"].items(), (ALL, at[ALL])]:
        rows.append(_row("first", [kind, "plain", "", "", "", *_numbers(cell["plain"])]))
        for name, way in cell["ways"].items():
            gain = way["speedup"]
            spread = f"{gain['median']:.2f} ({gain['p25']:.2f}–{gain['p75']:.2f})" if gain else "–"
            mean = f"{way['speedup_geometric_mean']:.2f}"
            against = f"{way['vs_peer_geometric_mean']:.2f}" if "vs_peer_geometric_mean" in way else ""
            rows.append(_row("", ["", name, mean, spread, against, *_numbers(way)], best=name == cell["best"]))
        for name, mode in cell["peers"].items():
            rate = "" if mode["acceptance_rate"] is None else f"{mode['acceptance_rate']:.0%}"
            speed = f"{mode['tokens_per_second']['median']:.1f}"
            mean = f"{mode['vs_plain_geometric_mean']:.2f}"
            rows.append(_row("", ["", name, mean, "", "", speed, "", rate, "", "", ""]))
    legend = "<p class=soft>÷ peer: against the peer's best mode of the workload; a peer's speed-up is over our plain "
    legend += "decoding; length: tokens committed per round, the bonus included; times are ms per round.</p>"
    return f"<div class=scroll><table>{''.join(rows)}</table></div>{legend}"


def _numbers(cell: Json) -> list[str]:
    speed, ms = cell["tokens_per_second"], cell["ms_per_round"]
    return [
        f"{speed['median']:.1f}" if speed else "–",
        f"{cell['acceptance_length']:.2f}",
        f"{cell['acceptance_rate']:.0%}" if "speedup" in cell else "",
        *(f"{ms[part]:.2f}" for part in ("draft", "verify", "other")),
    ]


def _row(kind: str, cells: Iterable[str], *, best: bool = False) -> str:
    shown = "".join(
        f"<td{' class=best' if best and i in (1, 2) else ''}>{escape(cell)}</td>" for i, cell in enumerate(cells)
    )
    return f'<tr class="{kind}">{shown}</tr>' if kind else f"<tr>{shown}</tr>"


def _identity(found: Json) -> str:
    wrong = found["mismatches"]
    if not wrong:
        said = f"All {found['compared']} replies that must equal plain decoding do, token for token."
        return f"<h3>Is the output the same?</h3><p>{said}</p>"
    rows = "".join(
        f"<li>{escape(entry['way'])}: {escape(entry['workload'])} {entry['index']} at temperature "
        f"{entry['temperature']:g}, token {entry['position']}: {entry['plain']} became {entry['speculated']}</li>"
        for entry in wrong
    )
    return (
        f"<h3>Is the output the same?</h3><p class=bad>{len(wrong)} of {found['compared']} replies differ from plain "
        f"decoding.</p><ul>{rows}</ul>"
    )


def _notes(found: Json) -> str:
    first: Json = next(iter(found["temperatures"].values()))
    by_kind = ", ".join(f"{kind} {cell['prompts']}" for kind, cell in first["workloads"].items())
    lines = [
        f"{found['prompts']} prompts measured, counting each temperature: {by_kind} at each.",
        "Times are wall-clock on one machine. A way's speed-up holds for this model, this machine and these prompts.",
        *notes(found),
    ]
    if any(at[ALL]["peers"] for at in found["temperatures"].values()):
        lines.append(
            "The peer reads the same file with as many threads, continues the same token ids by at most as many "
            "tokens, and may end earlier; its text may differ, as its arithmetic does."
        )
    return "<h3>Notes</h3><ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _configuration(found: Json) -> str:
    start = {key: value for key, value in found["starts"][-1].items() if key not in ("floor", "forward")}
    return json.dumps({"settings": found["settings"], "start": start}, indent=2, ensure_ascii=False)
