"""t(M): one whole forward of M new tokens, head included; v(M) = t(M) / t(1) is what speculation lives from."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from paceline.bench.session import Progress, Session, rotated
from paceline.bench.stats import Spread, forward_floor, ratios, read_floor, rounded
from paceline.core.aliases import Json
from paceline.core.tree import TokenTree
from paceline.model.cache import PagedCache
from paceline.model.flatten import flatten

PEER_TOKENS = 8  # decode steps of the peer per repeat


def measure(session: Session, out: Json, progress: Progress) -> None:
    """Measure every M inside each repeat, the peer's t(1) and a plain read of the weights' size among them."""
    for context in session.plan.contexts:
        _at_context(session, context, out.setdefault(f"context_{context}", {}), progress)


def _at_context(session: Session, context: int, out: Json, progress: Progress) -> None:
    plan, cache = session.plan, session.llm.engine.cache
    tokens = session.fresh_tokens(context)
    sequence = fill(session, cache, tokens)
    seconds: dict[int, list[float]] = {width: [] for width in plan.widths}
    peer: list[float] = []
    reads: list[float] = []
    try:
        for repeat in range(-1, plan.repeats):
            progress.show("forward, context", context, "repeat", repeat + 1, "of", plan.repeats)
            sample: dict[int, float] = {}
            if session.peer:
                sample[0] = session.peer.complete(tokens, PEER_TOKENS + 1, keep=True).seconds_per_token
            rate = session.read_weights_once()
            timed_forward(session, cache, sequence, 1)  # wakes the threads
            for width in rotated(plan.widths, repeat):
                sample[width] = timed_forward(session, cache, sequence, width)
            if repeat < 0:
                continue  # the warm-up
            reads.append(rate)
            for width in plan.widths:
                seconds[width].append(sample[width])
            if session.peer:
                peer.append(sample[0])
            out.update(summary(session, context, seconds, peer, reads))
            if session.is_late:
                break
    finally:
        cache.release(sequence)


def fill(session: Session, cache: PagedCache, tokens: list[int]) -> int:
    """Open a sequence whose cache holds the tokens."""
    sequence = cache.open()
    for start in range(0, len(tokens), 256):
        part = np.asarray(tokens[start : start + 256], np.int32)
        session.model.forward(flatten(cache, [sequence], [TokenTree.chain(part)], [0]), cache)
        cache.commit(sequence, range(len(part)), part.tolist())
    return sequence


def timed_forward(session: Session, cache: PagedCache, sequence: int, width: int) -> float:
    """Return the seconds of one forward of `width` tokens with logits for each."""
    chain = np.asarray([session.rng.randrange(1, session.model.spec.vocab) for _ in range(width)], np.int32)
    batch = flatten(cache, [sequence], [TokenTree.chain(chain)], [width])
    started = perf_counter()
    session.model.forward(batch, cache)
    return perf_counter() - started


def summary(
    session: Session, context: int, seconds: dict[int, list[float]], peer: list[float], reads: list[float]
) -> Json:
    """Return times, ratios and floors of what has been measured."""
    model = session.model
    products = model.products()
    rate, best = float(np.median(reads)), max(reads)
    read = read_floor(model.weight_bytes, model.kv_bytes(context), rate)
    one = seconds.get(1, [])
    widths = {}
    for width, samples in seconds.items():
        floor = forward_floor(read, products * width, session.products_per_second)
        widths[str(width)] = {
            "ms": Spread.of(samples).scaled(1e3).to_json(),
            "v": Spread.of(ratios(samples, one)).to_json() if one else None,
            "floor_ms": rounded(floor * 1e3),
            "over_floor": rounded(float(np.median(samples)) / floor),
        }
    found: Json = {
        "bytes_per_step": model.weight_bytes + model.kv_bytes(context),
        "read_floor_ms": rounded(read * 1e3),
        "widths": widths,
    }
    if one:
        found["decode_over_floor"] = rounded(float(np.median(one)) / read)
        quickest = read_floor(model.weight_bytes, model.kv_bytes(context), best)
        found["decode_over_floor_best"] = rounded(min(one) / quickest)
    if peer:
        found["peer_t1_ms"] = Spread.of(peer).scaled(1e3).to_json()
        if seconds.get(8):
            found["t8_vs_peer_t1"] = Spread.of(ratios(seconds[8], peer)).to_json()
    return found
