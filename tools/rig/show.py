"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rig.machines import MACHINES


def table_of(result: Mapping[str, Any]) -> str:
    """Return a result of `judge` as text, a block for each machine."""
    lines = [f"{result['control']} with {result['draft']}, {len(result['sessions'])} sessions"]
    for machine, rows in result["machines"].items():
        lines += ["", f"{machine}: {_about(machine)}"]
        lines.append(
            f"  {'':10} {'tokens/s':>8} {'÷ plain':>8} {'÷ best price':>22} {'÷ best fixed':>18} {'÷ clairvoyant':>14}"
        )
        for workload, row in rows.items():
            price = f"{row['of_best_price']:.3f} ({row.get('price', '')})".replace(" ()", "")
            length = f"{row['of_best_fixed']:.3f} ({row.get('fixed', '')})".replace(" ()", "")
            lines.append(
                f"  {workload:10} {row['tokens_per_second']:8.1f} {row['speedup']:8.3f} {price:>22} {length:>18} "
                f"{row['of_clairvoyant']:>6.3f} of {row['clairvoyant']:.2f}"
            )
    return "\n".join(lines)


def _about(name: str) -> str:
    machine = MACHINES[name]
    v = ", ".join(f"v({rows}) {machine.target(rows) / machine.plain:.2f}" for rows in (2, 4, 8, 16))
    return f"t(1) {1e3 * machine.plain:.1f} ms, {v}, a step {machine.step:.2f}"


def ablation_of(found: Mapping[str, Any]) -> str:
    """Return an ablation as a table in Markdown, most harmful changes first."""
    machines = list(found["machines"])
    lines = [f"| change | {' | '.join(machines)} | all |", "|---|" + "---|" * (len(machines) + 1)]
    rows: Sequence[Mapping[str, Any]] = sorted(found["changes"], key=lambda row: row["all"])
    for row in rows:
        each = " | ".join(_percent(row["machines"][name]) for name in machines)
        lines.append(f"| {row['name']} | {each} | {_percent(row['all'])} |")
    return "\n".join(lines)


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")
