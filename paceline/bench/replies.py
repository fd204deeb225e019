"""Whole replies: reading a prompt, and decoding without speculation, each against the peer run by run."""

from __future__ import annotations

from paceline.bench.session import Progress, Session
from paceline.bench.stats import Spread, ratios, read_floor, rounded
from paceline.core.aliases import Json
from paceline.core.request import SamplingParams
from paceline.engine.completion import Completion

DECODE_PROMPT = 32


def prefill(session: Session, out: Json, progress: Progress) -> None:
    """Time to the first token of a fresh prompt, in the engine's own chunks."""
    plan, count = session.plan, session.plan.prefill_tokens
    ours: list[float] = []
    theirs: list[float] = []
    for repeat in range(-1, _repeats(session)):
        progress.show("prefill", repeat + 1, "of", _repeats(session))
        tokens = session.fresh_tokens(count)
        reply = session.llm.generate(tokens, SamplingParams(max_tokens=1, ignore_eos=True))
        assert isinstance(reply, Completion)
        peer = session.peer.complete(tokens, 1) if session.peer else None
        if repeat < 0:
            continue
        ours.append(count / reply.timing.prefill_seconds)
        out.update(tokens=plan.prefill_tokens, tokens_per_second=Spread.of(ours).to_json())
        if peer:
            theirs.append(peer.prompt_tokens / peer.prompt_seconds)
            out.update(
                peer_tokens_per_second=Spread.of(theirs).to_json(), vs_peer=Spread.of(ratios(ours, theirs)).to_json()
            )
        if session.is_late:
            break


def decode(session: Session, out: Json, progress: Progress) -> None:
    """Tokens after the first per second of the whole engine; the peer continues the same ids by as many."""
    count = session.plan.decode_tokens
    ours: list[float] = []
    theirs: list[float] = []
    other: list[float] = []
    outside: list[float] = []
    for repeat in range(-1, _repeats(session)):
        progress.show("decode", repeat + 1, "of", _repeats(session))
        tokens = session.fresh_tokens(DECODE_PROMPT)
        length = min(count, 16) if repeat < 0 else count
        reply = session.llm.generate(tokens, SamplingParams(max_tokens=length, ignore_eos=True))
        assert isinstance(reply, Completion)
        peer = session.peer.complete(tokens, length) if session.peer else None
        if repeat < 0:
            continue
        ours.append(reply.tokens_per_second)
        other.append(reply.timing.other_seconds / (len(reply.token_ids) - 1))
        outside.append((reply.timing.decode_seconds - reply.timing.verify_seconds) / (len(reply.token_ids) - 1))
        if peer:
            theirs.append(1 / peer.seconds_per_token)
        out.update(_decoded(session, ours, theirs, other, outside))
        if session.is_late:
            break


def _decoded(
    session: Session, ours: list[float], theirs: list[float], other: list[float], outside: list[float]
) -> Json:
    model, rate = session.model, Spread.of(ours)
    middle = DECODE_PROMPT + session.plan.decode_tokens // 2
    floor = read_floor(model.weight_bytes, model.kv_bytes(middle), session.bytes_per_second)
    found: Json = {
        "tokens": session.plan.decode_tokens,
        "tokens_per_second": rate.to_json(),
        "ms_per_token": rounded(1e3 / rate.median),
        "floor_ms_per_token": rounded(floor * 1e3),
        "over_floor": rounded(1 / rate.median / floor),
        "other_ms_per_round": Spread.of(other).scaled(1e3).to_json(),
        "outside_forward_ms_per_round": Spread.of(outside).scaled(1e3).to_json(),
    }
    if theirs:
        found["peer_tokens_per_second"] = Spread.of(theirs).to_json()
        found["vs_peer"] = Spread.of(ratios(ours, theirs)).to_json()
    return found


def _repeats(session: Session) -> int:
    return max(min(3, session.plan.repeats), session.plan.repeats // 3)
