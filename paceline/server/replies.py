"""Replies as OpenAI's clients read them: whole ones, chunks, usage, log probabilities, and what speculation did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.core.request import Event, Logprobs
from paceline.engine.completion import LOWEST, Completion, named
from paceline.engine.metrics import SpeculationMetrics
from paceline.server.metrics import plain_seconds
from paceline.service.llm import LLM
from paceline.text.stream import IncrementalDecoder
from paceline.text.tokenizer import Tokenizer

Json = dict[str, Any]


def usage(completions: Sequence[Completion], cached: Sequence[int], *, each: int, predicted: bool) -> Json:
    """Return the tokens of a request's replies; a prompt counts once for the `each` replies to it."""
    prompt = sum(one.prompt_tokens for one in completions[::each])
    written = sum(len(one.token_ids) for one in completions)
    kept = [one.metrics.by_source.get("predicted", {"drafted": 0, "accepted": 0}) for one in completions]
    accepted = sum(one["accepted"] for one in kept) if predicted else 0
    drafted = sum(one["drafted"] for one in kept) if predicted else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(cached[::each])},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def speculation(completions: Sequence[Completion]) -> Json:
    """Return what speculation did for a request's replies, together."""
    every: list[SpeculationMetrics] = [one.metrics for one in completions]
    drafted, accepted = sum(one.drafted_tokens for one in every), sum(one.accepted_tokens for one in every)
    rounds, committed = sum(one.rounds for one in every), sum(one.committed_tokens for one in every)
    by_source: dict[str, dict[str, int]] = {}
    for metrics in every:
        for name, counts in metrics.by_source.items():
            own = by_source.setdefault(name, {"drafted": 0, "accepted": 0})
            own["drafted"] += counts["drafted"]
            own["accepted"] += counts["accepted"]
    return {
        "rounds": rounds,
        "drafted_tokens": drafted,
        "accepted_tokens": accepted,
        "acceptance_length": committed / rounds if rounds else 0.0,
        "by_source": by_source,
        "control_reason": completions[-1].control_reason if completions else "",
    }


def chat_logprobs(entries: Sequence[Logprobs], tokenizer: Tokenizer) -> Json:
    """Return log probabilities as a chat has them: each token's text and bytes, with alternatives."""
    return {
        "content": [
            {
                **named(one.token, one.logprob, tokenizer),
                "top_logprobs": [named(token, value, tokenizer) for token, value in one.top],
            }
            for one in entries
        ],
        "refusal": None,
    }


def text_logprobs(entries: Sequence[Logprobs], tokenizer: Tokenizer, offset: int) -> Json:
    """Return log probabilities as a plain completion has them; `offset`: characters of the text before."""
    tokens = [tokenizer.token_bytes(one.token).decode(errors="replace") for one in entries]
    offsets = []
    for text in tokens:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": tokens,
        "token_logprobs": [max(one.logprob, LOWEST) for one in entries],
        "top_logprobs": [
            {tokenizer.token_bytes(t).decode(errors="replace"): max(value, LOWEST) for t, value in one.top}
            for one in entries
        ],
        "text_offset": offsets,
    }


def trace(llm: LLM, event: Event, decoder: IncrementalDecoder) -> Json:
    """Return what a round did: each token with its source, and the draft with what was kept.

    Args:
        decoder: has read the reply's tokens so far.
    """
    sources = llm.engine.parts.drafter.sources
    tokenizer, plain = llm.tokenizer, plain_seconds(llm)
    draft, nodes = event.draft, event.nodes
    said: Json = {
        "tokens": [
            {
                "id": token,
                "text": decoder.push(token),
                "source": source,
                "depth": depth + 1,
                "probability": _odds(draft.acceptance_prob[nodes[depth]]) if draft and depth < len(nodes) else None,
            }
            for depth, (token, source) in enumerate(zip(event.tokens, event.sources, strict=False))
        ],
        "plain_tokens_per_second": 1 / plain if plain else None,
        "reason": llm.engine.parts.controller.reason,
    }
    if event.round is not None:
        said["round"] = {
            "drafted": list(event.round.drafted),
            "accepted": list(event.round.accepted),
            "by_source": {name: list(counts) for name, counts in event.round.by_source.items()},
        }
    if draft is not None and draft.drafted:
        said["tree"] = {
            "tokens": [_shown(tokenizer, token) for token in draft.tree.tokens.tolist()],
            "parents": draft.tree.parents.tolist(),
            "sources": ["", *(sources[source] for source in draft.source[1:].tolist())],
            "probabilities": [None, *map(_odds, draft.acceptance_prob[1:].tolist())],
            "accepted": list(nodes),
        }
    return said


def _shown(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token).decode(errors="replace")


def _odds(value: float) -> float:
    return round(float(value), 4)
