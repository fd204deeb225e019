"""From measurements to a verdict, and a prediction to hold against the measured speed-up."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.control.base import OFF
from paceline.control.optimal import OptimalController
from paceline.core.aliases import Json
from paceline.core.round import Round
from paceline.doctor.advice import advice
from paceline.doctor.family import proposals
from paceline.doctor.measure import DEPTH, Examination, speedup
from paceline.doctor.pair import companion_of, draft_models
from paceline.doctor.room import layer_bits, memory
from paceline.engine.calibrate import known
from paceline.engine.recalibrate import described
from paceline.plan.performance import Choice, Costs, best_chain, break_even, measured_curve
from paceline.service.llm import LLM


def report(llm: LLM, found: Examination, pairs: list[Json]) -> Json:
    """Return all that was found as plain data; `paceline plan --from` reads `measured`."""
    costs = costs_of(found)
    acceptance = found.acceptance
    best = best_chain(acceptance, costs) if acceptance else None
    measured, fixed = speedup(found.drafted), speedup(found.fixed)
    reading = found.reading_seconds / found.target_seconds[1]
    bits, beside = layer_bits(llm), companion_of(llm)
    result: Json = {
        "model": llm.setup.model,
        "drafters": list(llm.setup.drafters),
        "verify": llm.setup.verify,
        "control": llm.setup.control,
        "threads": llm.config.threads,
        "measured": {
            "target_seconds": {str(rows): seconds for rows, seconds in found.target_seconds.items()},
            "draft_step_seconds": found.draft_step_seconds,
            "draft_steps": dict(found.step_seconds),
            "reading_seconds": found.reading_seconds,
            "other_seconds": found.other_seconds,
            "acceptance": acceptance,
            "floor_seconds": found.floor_seconds,
            "row_seconds": found.row_seconds,
        },
        "v": {str(rows): seconds / found.target_seconds[1] for rows, seconds in found.target_seconds.items()},
        "v_floor": {str(rows): found.floor(rows) / found.target_seconds[1] for rows in found.target_seconds},
        "bits": bits,
        "memory": memory(llm, draft_models(llm)),
        "proposals": proposals(llm.setup.model, llm.target.model.spec, bits, costs),
        "plain_tokens_per_second": plain_rate(found),
        "break_even": break_even(costs),
        "best_chain": choice(best),
        "fixed": {
            "length": DEPTH,
            "predicted_speedup": predicted(found.rounds["fixed"], costs, reading),
            "measured_speedup": fixed,
        },
        "predicted_speedup": predicted(found.rounds["drafted"], costs, reading),
        "measured_speedup": measured,
        "controller": found.reason,
        "calibration": kept(llm),
        "pairs": pairs,
        "companion": None if beside is None else {"path": str(beside.path), "reason": beside.reason},
        "prompts": len(found.plain),
    }
    result["verdict"] = verdict(result)
    result["advice"] = advice(result, found)
    return result


def kept(llm: LLM) -> Json | None:
    """Return the calibration that is kept for what `llm` loaded; None where none is, or no controller asks for it."""
    if not isinstance(llm.engine.parts.controller, OptimalController):
        return None
    found = known(llm.calibration_key)
    return None if found is None else described(found)


def costs_of(found: Examination) -> Costs:
    """Return a round's costs in plain tokens, engine included."""
    curve = measured_curve(sorted(found.target_seconds.items()))
    plain = found.target_seconds[1]
    return Costs(found.draft_step_seconds / plain, curve, found.other_seconds / plain)


def predicted(rounds: Sequence[Round], costs: Costs, reading: float = 0.0) -> float | None:
    """Return the speed-up that the model of performance expects of rounds: their tokens over what they should take.

    v(M) of each round's rows, its draft steps, what a draft model had missed of the text, at `reading` plain tokens
    each, and the engine's share where something was drafted.
    """
    if not rounds:
        return None
    time = 0.0
    for round in rounds:
        steps = max((spent.steps for spent in round.spent.values()), default=0)
        missed = max((spent.read for spent in round.spent.values()), default=0)
        time += costs.curve(round.rows) + steps * costs.draft_step + missed * reading
        time += costs.overhead if round.drafted else 0.0
    return sum(round.committed for round in rounds) / time


def plain_rate(found: Examination) -> float | None:
    """Return tokens per second of plain decoding over all prompts."""
    tokens = sum(len(reply.token_ids) - 1 for reply in found.plain)
    seconds = sum(reply.timing.decode_seconds for reply in found.plain)
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def choice(best: Choice | None) -> Json | None:
    """Return the best fixed length and what the model of performance expects of it."""
    return None if best is None else {"length": best.nodes, "speedup": best.speedup}


def verdict(result: Json) -> str:
    """Say in one sentence whether speculation is worth it here."""
    gained = result["measured_speedup"]
    if not result["drafters"]:
        return "Nothing drafts: --draft off measures the target alone."
    if gained is None:
        return "The replies were too short to tell."
    drafters = " and ".join(result["drafters"])
    if OFF in result["controller"] or gained < 1.03:
        return f"Not worth it on these prompts: {gained:.2f}× plain decoding with {drafters}; {result['controller']}."
    return f"Worth it on these prompts: {gained:.2f}× plain decoding with {drafters}."
