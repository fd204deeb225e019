"""Speculation at fixed lengths against plain decoding, prompt by prompt, with the tokens compared while measuring."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.bench.prompts import chosen, fresh_prompt
from paceline.bench.session import Progress, Session
from paceline.bench.stats import Spread, geometric_mean, rounded
from paceline.draft.base import Drafter
from paceline.draft.model import ModelDrafter
from paceline.draft.ngram import NgramDrafter
from paceline.engine.completion import Completion
from paceline.types import Json, SamplingParams


@dataclass(slots=True)
class Sums:
    """One drafter at one length and temperature, added up over prompts."""

    speedups: list[float] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    plain_rates: list[float] = field(default_factory=list)
    rounds: int = 0
    decode_rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    committed: int = 0
    draft_seconds: float = 0.0
    draft_forward_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    decode_seconds: float = 0.0

    def add(self, kind: str, reply: Completion, plain: Completion, draft_forward_seconds: float) -> None:
        """Add one prompt's pair of replies."""
        tally, timing = reply.tally, reply.timing
        if min(len(reply.token_ids), len(plain.token_ids)) < 2:
            return  # nothing was decoded after the first token
        self.kinds.append(kind)
        self.rates.append(reply.tokens_per_second)
        self.plain_rates.append(plain.tokens_per_second)
        self.speedups.append(reply.tokens_per_second / plain.tokens_per_second)
        self.rounds += tally.rounds
        self.decode_rounds += tally.rounds - 1  # the round of the first token counts as prefill
        self.drafted += tally.drafted_tokens
        self.accepted += tally.accepted_tokens
        self.committed += tally.committed_tokens
        self.draft_seconds += timing.draft_seconds
        self.draft_forward_seconds += draft_forward_seconds
        self.verify_seconds += timing.verify_seconds
        self.other_seconds += timing.other_seconds
        self.decode_seconds += timing.decode_seconds

    def to_json(self) -> Json:
        """Return speed-up, acceptance (the bonus counts in its length) and where a round's time went."""
        if not self.speedups:
            return {"prompts": 0}
        rounds = max(self.decode_rounds, 1)
        outside = self.decode_seconds - self.verify_seconds - self.draft_forward_seconds
        by_kind = {
            kind: rounded(geometric_mean([s for s, k in zip(self.speedups, self.kinds, strict=True) if k == kind]))
            for kind in sorted(set(self.kinds))
        }
        return {
            "prompts": len(self.speedups),
            "speedup": Spread.of(self.speedups).to_json(),
            "speedup_geometric_mean": rounded(geometric_mean(self.speedups)),
            "speedup_by_kind": by_kind,
            "tokens_per_second": Spread.of(self.rates).to_json(),
            "plain_tokens_per_second": Spread.of(self.plain_rates).to_json(),
            "acceptance_length": rounded(self.committed / max(self.rounds, 1)),
            "acceptance_rate": rounded(self.accepted / max(self.drafted, 1)),
            "ms_per_round": {
                "draft": rounded(self.draft_seconds / rounds * 1e3),
                "verify": rounded(self.verify_seconds / rounds * 1e3),
                "other": rounded(self.other_seconds / rounds * 1e3),
                "outside_forwards": rounded(outside / rounds * 1e3),
            },
        }


def measure(session: Session, out: Json, progress: Progress) -> None:
    """Play every prompt plainly and with each drafter in turn, at each length and temperature."""
    plan = session.plan
    drafters = _drafters(session)
    sums: dict[str, Sums] = {}
    out.update(reply_tokens=plan.reply_tokens, compared=0, mismatches=[], setups={})
    prompts = chosen(plan.quick)
    _warm_up(session, drafters)
    for index, (kind, prompt) in enumerate(prompts):
        for length in plan.draft_tokens:
            for temperature in plan.temperatures:
                progress.show("speculate, prompt", index + 1, "of", len(prompts), "K", length, "T", temperature)
                params = SamplingParams(temperature=temperature, seed=index, max_tokens=plan.reply_tokens)
                tokens = session.llm.encode(fresh_prompt(session.dice, prompt), chat=True)
                order: list[str] = ["plain", *drafters]
                replies = {}
                for name in order if index % 2 == 0 else order[::-1]:
                    replies[name] = _reply(session, tokens, params, drafters.get(name), length)
                plain, _ = replies["plain"]
                for name in drafters:
                    reply, forward_seconds = replies[name]
                    key = f"{name} K={length} T={temperature:g}"
                    sums.setdefault(key, Sums()).add(kind, reply, plain, forward_seconds)
                    out["compared"] += 1
                    if reply.token_ids != plain.token_ids:
                        out["mismatches"].append({"setup": key, "prompt": prompt, **first_difference(plain, reply)})
                    out["setups"][key] = sums[key].to_json()
                if session.is_late:
                    return


def first_difference(plain: Completion, reply: Completion) -> Json:
    """Say where two replies part."""
    ours, theirs = reply.token_ids, plain.token_ids
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return {"position": at, "plain": theirs[at : at + 1], "speculated": ours[at : at + 1]}


def best_speedup(out: Json, name: str) -> float | None:
    """Return the best length's geometric mean over prompts and temperatures; None if it was not measured."""
    by_length: dict[str, list[float]] = {}
    for key, found in out.get("setups", {}).items():
        drafter, length, _ = key.rsplit(" ", 2)
        if (drafter == "ngram") == (name == "ngram") and found["prompts"]:
            by_length.setdefault(length, []).append(found["speedup_geometric_mean"])
    return max((geometric_mean(values) for values in by_length.values()), default=None)


def _drafters(session: Session) -> dict[str, Drafter]:
    """Return the draft model the session was loaded with, if any, and look-up."""
    found: dict[str, Drafter] = {}
    loaded = session.drafter
    if isinstance(loaded, ModelDrafter):
        found[loaded.name] = loaded
    found["ngram"] = NgramDrafter()
    return found


def _warm_up(session: Session, drafters: dict[str, Drafter]) -> None:
    tokens = session.llm.encode("Say hello.", chat=True)
    for drafter in (None, *drafters.values()):
        _reply(session, tokens, SamplingParams(max_tokens=8), drafter, 4)


def _reply(
    session: Session, tokens: list[int], params: SamplingParams, drafter: Drafter | None, length: int
) -> tuple[Completion, float]:
    """Return a reply and the seconds the draft model's forwards took."""
    own = drafter if isinstance(drafter, ModelDrafter) else None
    before = own.forward_seconds if own else 0.0
    session.play_with(drafter, length)
    try:
        reply = session.llm.generate(tokens, params)
    finally:
        session.play_with(None)
    assert isinstance(reply, Completion)
    return reply, own.forward_seconds - before if own else 0.0
