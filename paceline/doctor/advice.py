"""What would make it faster: advice from a report's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paceline.core.aliases import Json
from paceline.doctor.measure import Examination

SLOW = 1.35  # times the floor: plain decoding has room left
STEEP = 2.0  # v(4) from which checking is dear
DEAR = 0.3  # plain tokens a draft step may cost
LARGE = 7.5  # bits a weight from which fewer are worth a word
SMALL = 5.0  # bits a weight takes with --quant q4
TIGHT = 0.9  # of the room there is
LIKELY = 0.7  # the acceptance that a model of the same family may well have


def advice(result: Json, found: Examination) -> list[str]:
    """Say what would make it faster, the most telling first."""
    return [*_memory(result), *_target(result, found), *_draft(result, found), *_vocabulary(result)]


def _memory(result: Json) -> Iterator[str]:
    memory = result.get("memory")
    if not memory or memory["fits"] is None or memory["needed"] <= TIGHT * memory["room"]:
        return
    needed, room = memory["needed"] / 1e9, memory["room"] / 1e9
    says = "does not fit" if not memory["fits"] else "hardly fits"
    yield (
        f"Target, draft, keys and values of {memory['context']} tokens take {needed:.1f} GB, which {says} into the "
        f"{room:.1f} GB that are free: a smaller --context, --quant q4, or a smaller draft."
    )


def _target(result: Json, found: Examination) -> Iterator[str]:
    v: Mapping[str, float] = result["v"]
    plain, bits = found.target_seconds[1], result.get("bits")
    if found.floor_seconds and plain > SLOW * found.floor_seconds:
        yield (
            f"Plain decoding takes {plain / found.floor_seconds:.2f} times what reading the weights takes: other "
            "programs use the memory or the cores, or there are more threads than cores (--threads)."
        )
    if bits and bits > LARGE and found.is_memory_bound:
        gain = found.floor_seconds / max(found.floor_seconds * SMALL / bits, found.row_seconds)
        yield (
            f"A weight of the target takes {bits:.1f} bits, and reading them is what a token waits for: --quant q4 "
            f"may be up to {gain:.1f} times as fast. That is another model with its own replies, unlike speculation, "
            "which changes none."
        )
    if v.get("4", 1.0) > STEEP:
        yield (
            f"Checking four tokens costs {v['4']:.2f} times one: this processor's arithmetic is the limit; short "
            "drafts and sure ones pay, trees do not."
        )


def _draft(result: Json, found: Examination) -> Iterator[str]:
    plain, best = found.target_seconds[1], result["best_chain"]
    for name, seconds in found.step_seconds.items():
        if seconds > DEAR * plain:
            yield (
                f"A step of {name} costs {seconds / plain:.2f} of a plain token: take a smaller draft, or --draft "
                "auto, which asks it only where it pays."
            )
    if best and not best["length"] and found.acceptance:
        bar = result["break_even"]
        wanted = "no acceptance would pay" if bar is None else f"it pays from {bar:.0%} on"
        yield f"The first guess is right {found.acceptance[0]:.0%} of the time; {wanted}: take another draft."
    if not found.step_seconds and (named := _proposed(result)):
        yield f"No model drafts here. {named}"
    if best and best["length"] and result["control"] == "fixed":
        yield (
            f"The best fixed length is --draft-tokens {best['length']} ({best['speedup']:.2f}×); --control optimal "
            "finds it."
        )
    hoped, measured = result["predicted_speedup"], result["measured_speedup"]
    if result["drafters"] and hoped and measured and abs(hoped / measured - 1) > 0.1:
        yield (
            f"{hoped:.2f}× was expected of these rounds and {measured:.2f}× measured: the machine was busy, or times "
            "change with the length of the text."
        )


def _vocabulary(result: Json) -> Iterator[str]:
    for pair in result["pairs"]:
        if not pair["same"]:
            better = _proposed(result) or "A smaller model of the target's family does better."
            yield (
                f"`{pair['draft']}` has another vocabulary ({100 * pair['overlap']:.0f} % in common): its drafts are "
                f"translated, exactly, and fewer are right. {better}"
            )


def _proposed(result: Json) -> str:
    """Name a draft of the target's family that is likely to pay; nothing if none is."""
    for one in result.get("proposals", []):
        if one["break_even"] is not None and one["break_even"] < LIKELY:
            fetch = f" (paceline pull {one['name']})" if one["fetch"] else ""
            return (
                f"{one['name']}{fetch} has the target's vocabulary; a step should cost about {one['cost']:.2f} of a "
                f"plain token, which pays from an acceptance of {one['break_even']:.0%} on."
            )
    return ""
