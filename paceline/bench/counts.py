"""What one reply says of itself, as numbers that add up over replies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.bench.stats import rounded
from paceline.bench.ways import Played
from paceline.core.aliases import Json
from paceline.core.round import Round
from paceline.engine.completion import Completion

SUMS = ("tokens", "rounds", "drafted", "accepted", "committed", "decode_rounds")
SECONDS = ("prefill_seconds", "reading_seconds", "decode_seconds", "draft_seconds", "verify_seconds", "other_seconds")


def counted(played: Played) -> Json:
    """Return a reply's numbers.

    `tokens_per_second` are those after the first by the seconds of decoding and of what drafters read before: the
    target reads its prompt with or without them, a draft model reads it for speculation's sake.
    `by_depth` is [tested, accepted] from depth 1 on: guesses count once their parent was accepted, rounds cut by the
    end of the reply not at all. `by_source` is [drafted, accepted, steps, their seconds, seconds of rounds in which it
    had missed some text and read it first], `by_rows` [forwards, seconds] of the target by the tokens it read; seconds
    are those of decoding.
    """
    reply, metrics, read = played.completion, played.completion.metrics, reading_seconds(played.rounds)
    after, seconds = len(reply.token_ids) - 1, reply.timing.decode_seconds + read
    decoding = [round for round in played.rounds if round.committed][1:]  # the first token's round counts as prefill
    return {
        "tokens_per_second": rounded(after / seconds) if after > 0 and seconds > 0 else 0.0,
        "tokens": len(reply.token_ids),
        "rounds": metrics.rounds,
        "decode_rounds": len(decoding),
        "drafted": metrics.drafted_tokens,
        "accepted": metrics.accepted_tokens,
        "committed": metrics.committed_tokens,
        **{name: rounded(getattr(reply.timing, name)) for name in SECONDS if name != "reading_seconds"},
        "reading_seconds": rounded(read),
        "by_depth": _by_depth(played.rounds),
        "by_source": _by_source(played.rounds, decoding),
        "by_rows": _by_rows(decoding),
        "reason": played.reason,
    }


def reading_seconds(rounds: Iterable[Round]) -> float:
    """Return what drafters took to read the prompt: all that they did before the first token."""
    rounds = list(rounds)
    first = next((i for i, round in enumerate(rounds) if round.committed), -1)
    return sum(round.draft_seconds for round in rounds[: first + 1])


def added(replies: Iterable[Json]) -> Json:
    """Add up the numbers of several replies; rates and reasons are left out."""
    total: Json = {
        **dict.fromkeys(SUMS, 0),
        **dict.fromkeys(SECONDS, 0.0),
        "by_depth": [],
        "by_source": {},
        "by_rows": {},
    }
    for reply in replies:
        for name in (*SUMS, *SECONDS):
            total[name] += reply[name]
        for depth, counts in enumerate(reply["by_depth"]):
            if depth == len(total["by_depth"]):
                total["by_depth"].append([0, 0])
            total["by_depth"][depth] = _plus(total["by_depth"][depth], counts)
        for table in ("by_source", "by_rows"):
            for key, counts in reply[table].items():
                total[table][key] = _plus(total[table].get(key, [0] * len(counts)), counts)
    return total


def first_difference(plain: Completion, reply: Completion) -> Json | None:
    """Say where two replies part; None if they do not."""
    ours, theirs = reply.token_ids, plain.token_ids
    if ours == theirs:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return {"position": at, "plain": theirs[at : at + 1], "speculated": ours[at : at + 1]}


def _plus(one: list[Any], other: list[Any]) -> list[Any]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _by_depth(rounds: Iterable[Round]) -> list[list[int]]:
    found: list[list[int]] = []
    for round in rounds:
        if round.censored:
            continue
        for depth, (drafted, accepted) in enumerate(zip(round.drafted, round.accepted, strict=True)):
            if not drafted or (depth and not round.accepted[depth - 1]):
                break
            if depth == len(found):
                found.append([0, 0])
            found[depth] = [found[depth][0] + 1, found[depth][1] + min(accepted, 1)]
    return found


def _by_source(rounds: Iterable[Round], decoding: Iterable[Round]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for round in rounds:
        for name in {*round.by_source, *round.spent}:
            drafted, accepted = round.by_source.get(name, (0, 0))
            found[name] = _plus(found.get(name, [0, 0, 0, 0.0, 0.0]), [drafted, accepted, 0, 0.0, 0.0])
    for round in decoding:
        for name, spent in round.spent.items():
            took = [0, 0.0, spent.seconds] if spent.read else [spent.steps, spent.seconds, 0.0]
            found[name] = _plus(found[name], [0, 0, *took])
    return {name: [*counts[:3], *map(rounded, counts[3:])] for name, counts in sorted(found.items())}


def _by_rows(rounds: Iterable[Round]) -> dict[str, list[Any]]:
    found: dict[int, list[Any]] = {}
    for round in rounds:
        found[round.rows] = _plus(found.get(round.rows, [0, 0.0]), [1, round.verify_seconds])
    return {str(rows): [count, rounded(seconds)] for rows, (count, seconds) in sorted(found.items())}
