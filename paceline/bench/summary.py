"""From a run's records to what they say: by temperature, workload and way. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.bench.counts import added
from paceline.bench.stats import Spread, geometric_mean, ratios, rounded
from paceline.bench.ways import PLAIN
from paceline.core.aliases import Json

ALL = "all"


def summarise(settings: Json, starts: Sequence[Json], prompts: Sequence[Json]) -> Json:
    """Return the whole summary; `prompts` are records of `measure.play`."""
    mismatches = [
        {
            "way": way,
            **{key: prompt[key] for key in ("workload", "index", "temperature", "seed", "request")},
            **reply["difference"],
        }
        for prompt in prompts
        for way, reply in prompt["replies"].items()
        if reply.get("difference")
    ]
    compared = sum("difference" in reply for prompt in prompts for reply in prompt["replies"].values())
    temperatures = sorted({prompt["temperature"] for prompt in prompts})
    busy = [prompt["neighbour_cores"] for prompt in prompts if prompt["neighbour_cores"] is not None]
    return {
        "paceline_bench_run": 1,
        "settings": settings,
        "starts": list(starts),
        "prompts": len(prompts),
        "compared": compared,
        "mismatches": mismatches,
        "neighbour_cores": Spread.of(busy).to_json() if busy else None,
        "lost_peers": sorted({mode for prompt in prompts for mode in prompt.get("lost", {})}),
        "temperatures": {
            f"{t:g}": _at([prompt for prompt in prompts if prompt["temperature"] == t]) for t in temperatures
        },
    }


def _at(prompts: Sequence[Json]) -> Json:
    """Sum up one temperature: each workload, and all of them with equal weights."""
    kinds = list(dict.fromkeys(prompt["workload"] for prompt in prompts))
    by_kind = {kind: _cell([p for p in prompts if p["workload"] == kind]) for kind in kinds}
    whole = _cell(prompts)
    # Equal weights: a workload counts once, however many of its prompts were measured.
    for name, way in whole["ways"].items():
        means = [cell["ways"][name]["speedup_geometric_mean"] for cell in by_kind.values() if name in cell["ways"]]
        way["speedup_geometric_mean"] = rounded(geometric_mean(means))
        if "vs_peer_geometric_mean" in way:
            cells = [cell["ways"].get(name, {}) for cell in by_kind.values()]
            against = [cell["vs_peer_geometric_mean"] for cell in cells if cell.get("vs_peer_geometric_mean")]
            way["vs_peer_geometric_mean"] = rounded(geometric_mean(against))
    whole["best"] = _best(whole["ways"])
    if whole["peers"]:
        means = [cell["vs_peer_geometric_mean"] for cell in by_kind.values() if cell.get("vs_peer_geometric_mean")]
        whole["vs_peer_geometric_mean"] = rounded(geometric_mean(means))
    return {"workloads": by_kind, ALL: whole}


def _cell(prompts: Sequence[Json]) -> Json:
    """Sum up some prompts: plain decoding, each way against it, each mode of the peer, best against best."""
    names = dict.fromkeys(name for prompt in prompts for name in prompt["replies"] if name != PLAIN)
    modes = dict.fromkeys(mode for prompt in prompts for mode in prompt["peers"])
    plain = [prompt["replies"][PLAIN] for prompt in prompts]
    cell: Json = {
        "prompts": len(prompts),
        "plain": {**_rates(plain), **_shape(plain)},
        "ways": {name: _way(prompts, name) for name in names},
        "peers": {mode: _peer(prompts, mode) for mode in modes},
    }
    cell["best"] = _best(cell["ways"])
    best_mode = max(modes, key=lambda mode: cell["peers"][mode]["vs_plain_geometric_mean"], default=None)
    if best_mode is not None:
        for name, way in cell["ways"].items():
            way["vs_peer_geometric_mean"] = _against(prompts, name, best_mode)
        cell["best_peer"] = best_mode
        # Both sides' best of this workload, which a user would have to know.
        cell["vs_peer_geometric_mean"] = _against(prompts, cell["best"] or PLAIN, best_mode)
    return cell


def _against(prompts: Sequence[Json], name: str, mode: str) -> float:
    """Return a way's tokens/s ÷ a peer mode's, as a geometric mean over prompts."""
    both = [(p["replies"][name], p["peers"][mode]) for p in prompts if name in p["replies"] and mode in p["peers"]]
    ours, theirs = ([pair[side]["tokens_per_second"] for pair in both] for side in (0, 1))
    return rounded(geometric_mean(ratios(ours, theirs)))


def _best(ways: dict[str, Json]) -> str | None:
    return max(ways, key=lambda name: ways[name]["speedup_geometric_mean"], default=None)


def _way(prompts: Sequence[Json], name: str) -> Json:
    pairs = [(p["replies"][name], p["replies"][PLAIN]) for p in prompts if name in p["replies"]]
    gains = [
        a["tokens_per_second"] / b["tokens_per_second"]
        for a, b in pairs
        if a["tokens_per_second"] > 0 and b["tokens_per_second"] > 0
    ]
    replies = [reply for reply, _ in pairs]
    return {
        **_rates(replies),
        "speedup": Spread.of(gains).to_json() if gains else None,
        "speedup_geometric_mean": rounded(geometric_mean(gains)),
        **_shape(replies),
        "reason": replies[-1]["reason"],
    }


def _rates(replies: Sequence[Json]) -> Json:
    rates = [reply["tokens_per_second"] for reply in replies if reply["tokens_per_second"] > 0]
    return {"prompts": len(rates), "tokens_per_second": Spread.of(rates).to_json() if rates else None}


def _shape(replies: Sequence[Json]) -> Json:
    """Return acceptance (the bonus counts in its length), where a round's time went, and v of the forwards met."""
    total = added(replies)
    rounds = max(total["decode_rounds"], 1)
    guessing = sum(seconds + reading for *_, seconds, reading in total["by_source"].values())
    return {
        "acceptance_length": rounded(total["committed"] / max(total["rounds"], 1)),
        "acceptance_rate": rounded(total["accepted"] / max(total["drafted"], 1)),
        "drafted_per_round": rounded(total["drafted"] / max(total["rounds"], 1)),
        "ms_per_round": {
            "draft": rounded(total["draft_seconds"] / rounds * 1e3),
            "verify": rounded(total["verify_seconds"] / rounds * 1e3),
            "other": rounded(total["other_seconds"] / rounds * 1e3),
            "outside": rounded(max(total["decode_seconds"] - total["verify_seconds"] - guessing, 0.0) / rounds * 1e3),
        },
        "by_depth": [
            {"tested": tested, "accepted": accepted, "rate": rounded(accepted / tested)}
            for tested, accepted in total["by_depth"]
        ],
        "by_source": {
            name: {
                "drafted": drafted,
                "accepted": accepted,
                "rate": rounded(accepted / max(drafted, 1)),
                "step_ms": rounded(seconds / steps * 1e3) if steps else None,
            }
            for name, (drafted, accepted, steps, seconds, _) in total["by_source"].items()
        },
        "by_rows": {
            rows: {"forwards": count, "ms": rounded(seconds / count * 1e3)}
            for rows, (count, seconds) in sorted(total["by_rows"].items(), key=lambda item: int(item[0]))
        },
    }


def _peer(prompts: Sequence[Json], mode: str) -> Json:
    found: list[tuple[Json, Any]] = [
        (p["peers"][mode], p["replies"][PLAIN]["tokens_per_second"]) for p in prompts if mode in p["peers"]
    ]
    rates = [reply["tokens_per_second"] for reply, _ in found]
    against = [gain for gain in ratios(rates, [plain for _, plain in found]) if gain > 0]
    drafted, accepted = (sum(reply[name] for reply, _ in found) for name in ("drafted", "accepted"))
    return {
        "prompts": len(found),
        "tokens_per_second": Spread.of(rates).to_json(),
        "vs_plain_geometric_mean": rounded(geometric_mean(against)),
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": rounded(accepted / drafted) if drafted else None,
    }
