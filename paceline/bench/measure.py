"""Measure ways against plain decoding: every prompt is played by all of them, one right after the other."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from paceline.bench.counts import counted, first_difference
from paceline.bench.machine import Neighbours
from paceline.bench.peer import Peer, PeerError
from paceline.bench.session import rotated
from paceline.bench.stats import rounded
from paceline.bench.ways import PLAIN, Played, Rig, Way
from paceline.bench.workloads import Ask
from paceline.core.aliases import Json
from paceline.core.request import SamplingParams

LONGEST_WARM_UP = 8

Show = Callable[[str], None]
"""Called with what is about to be played."""


def play(
    rig: Rig,
    todo: Sequence[tuple[Ask, float]],
    *,
    rng: random.Random | None,
    peers: Mapping[str, Peer] | None = None,
    show: Show = lambda doing: None,
) -> Iterator[Json]:
    """Yield a record for each prompt and temperature.

    The order changes from prompt to prompt, so that no way always follows the same other, or a busy moment.

    Args:
        rng: puts a number of its own in front of each prompt; `None` asks the same bytes every time.
        peers: by mode. One that is lost is left out from then on.
    """
    live = dict(peers or {})
    lost = _warm_up(rig, {temperature for _, temperature in todo}, live, show)
    for turn, (ask, temperature) in enumerate(todo):
        text = ask.text if rng is None else ask.fresh(rng)
        tokens = rig.llm.encode(text, chat=True)
        params = SamplingParams(temperature=temperature, seed=ask.index, max_tokens=ask.max_tokens)
        neighbours = Neighbours(*(peer.pid for peer in live.values()))
        record: Json = {
            "workload": ask.workload,
            "index": ask.index,
            "temperature": temperature,
            "seed": params.seed,
            "request": _number(text) if rng else None,
            "prompt_tokens": len(tokens),
            "replies": {},
            "peers": {},
        }
        plain, replies = _replies(rig, tokens, params, turn, show)
        record["replies"] = _compared(rig, plain, replies, temperature)
        count = len(plain.completion.token_ids)
        for mode in rotated(list(live), turn) if live and count > 1 else []:
            show(f"{ask.workload}, {mode}")
            try:
                record["peers"][mode] = _ask_peer(live[mode], tokens, count, params)
            except PeerError as error:
                lost[mode] = str(error)
                live.pop(mode).close()
        yield {**record, "lost": lost, "neighbour_cores": neighbours.cores()}
        lost = {}


def _replies(
    rig: Rig, tokens: list[int], params: SamplingParams, turn: int, show: Show
) -> tuple[Played, dict[str, Played]]:
    """Play plain decoding and every way, beginning with another one each turn."""
    order: list[Way | None] = rotated([None, *rig.ways], turn)
    found: dict[str, Played] = {}
    for way in order:
        name = PLAIN if way is None else way.name
        show(name)
        found[name] = rig.reply(way, tokens, params)
    return found[PLAIN], found


def _compared(rig: Rig, plain: Played, replies: Mapping[str, Played], temperature: float) -> Json:
    """Return each reply's numbers; those that must equal plain decoding have a `difference`, null if there is none."""
    found: Json = {PLAIN: counted(plain)}
    for way in rig.ways:
        found[way.name] = counted(replies[way.name])
        if rig.is_comparable(way, temperature):
            found[way.name]["difference"] = first_difference(plain.completion, replies[way.name].completion)
    return found


def _ask_peer(peer: Peer, tokens: Sequence[int], count: int, params: SamplingParams) -> Json:
    """Let a peer continue the same ids by at most as many tokens."""
    timings = peer.complete(tokens, count, temperature=params.temperature, seed=params.seed, ignore_eos=False)
    rate = 1 / timings.seconds_per_token if timings.seconds_per_token > 0 else 0.0
    return {
        "tokens_per_second": rounded(rate),
        "tokens": timings.tokens,
        "drafted": timings.drafted,
        "accepted": timings.accepted,
    }


def _warm_up(rig: Rig, temperatures: set[float], peers: dict[str, Peer], show: Show) -> dict[str, str]:
    """Play something short in every way; peers that fail at it are taken out and returned with the reason."""
    show("warming up")
    tokens = rig.llm.encode("Say hello.", chat=True)
    for temperature in sorted(temperatures):
        for way in (None, *rig.ways):
            rig.reply(way, tokens, SamplingParams(temperature=temperature, max_tokens=LONGEST_WARM_UP))
    lost: dict[str, str] = {}
    for mode, peer in list(peers.items()):
        try:
            peer.complete(tokens, LONGEST_WARM_UP)
        except PeerError as error:
            lost[mode] = str(error)
            peers.pop(mode).close()
    return lost


def _number(text: str) -> int:
    found = re.search(r"\d+", text)
    assert found, text
    return int(found[0])
