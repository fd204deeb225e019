"""A short run on code and mathematics at fixed lengths, for the bars; `paceline bench run` is the whole thing."""

from __future__ import annotations

from paceline.bench.measure import play
from paceline.bench.session import Progress, Session
from paceline.bench.summary import ALL, summarise
from paceline.bench.ways import Rig, ways_of
from paceline.bench.workloads import asks
from paceline.core.aliases import Json

WORKLOADS = ("code", "math")
LOOKUP = "ngram"


def measure(session: Session, out: Json, progress: Progress) -> None:
    """Play prompts plainly and with the draft model and look-up, at each length and temperature."""
    plan = session.plan
    drafts = dict.fromkeys(draft for draft in (session.draft, LOOKUP) if draft not in ("off", "auto"))
    ways = ways_of(drafts, [f"fixed:{length}" for length in plan.draft_tokens], ["coupled"], max(plan.draft_tokens))
    rig = Rig(session.llm, session.pool, ways, plan.temperatures)
    settings: Json = {"ways": [way.name for way in ways], "reply_tokens": plan.reply_tokens, "replay": False}
    todo = [(ask, t) for ask in asks(WORKLOADS, 1 if plan.quick else 5, plan.reply_tokens) for t in plan.temperatures]
    prompts: list[Json] = []
    for record in play(rig, todo, rng=session.rng, show=lambda doing: progress.show("speculate,", doing)):
        prompts.append(record)
        out.update(summarise(settings, [], prompts))
        if session.is_late:
            break


def best_speedup(out: Json, draft: str) -> float | None:
    """Return the best length's geometric mean over workloads and temperatures; None if it was not measured."""
    if draft in ("off", "auto", LOOKUP) or not out.get("temperatures"):
        return None
    by_length: dict[str, float] = {}
    for at in out["temperatures"].values():
        for name, way in at[ALL]["ways"].items():
            if name.startswith(f"{draft} "):
                by_length[name] = by_length.get(name, 1.0) * way["speedup_geometric_mean"]
    return float(max(by_length.values()) ** (1 / len(out["temperatures"]))) if by_length else None
