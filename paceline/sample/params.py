"""Sampling settings that cannot be meant are refused before anything runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable

import numpy as np

from paceline.core.request import Grammar, SamplingParams
from paceline.errors import UsageError

MOST_LOGPROBS = 20
FORMS = ("json_schema", "regex", "lark")


def validate(params: SamplingParams) -> None:
    """Raise `UsageError` naming the setting, what it may be, and what it was."""
    _real("temperature", params.temperature, 0, math.inf, "0 (greedy) or more")
    _real("top_p", params.top_p, 0, 1, "above 0 and at most 1", open_below=True)
    _real("min_p", params.min_p, 0, 1, "from 0 to 1")
    _real("typical_p", params.typical_p, 0, 1, "above 0 and at most 1", open_below=True)
    _real("repetition_penalty", params.repetition_penalty, 0.01, 100, "from 0.01 to 100; 1 is off")
    _real("presence_penalty", params.presence_penalty, -2, 2, "from -2 to 2; 0 is off")
    _real("frequency_penalty", params.frequency_penalty, -2, 2, "from -2 to 2; 0 is off")
    _whole("top_k", params.top_k, 0, 2**31 - 1, "0 (off) or a positive whole number")
    _whole("seed", params.seed, 0, 2**64 - 1, "a whole number from 0 to 2^64 - 1")
    for name in ("ignore_eos", "skip_special_tokens"):
        if not isinstance(getattr(params, name), (bool, np.bool_)):
            raise UsageError(f"{name} must be True or False, got `{getattr(params, name)!r:.80}`")
    _whole("max_tokens", params.max_tokens, 1, 2**31 - 1, "a whole number from 1 to 2147483647")
    _whole("min_tokens", params.min_tokens, 0, 2**31 - 1, "0 (off) or a positive whole number")
    if params.min_tokens > params.max_tokens:
        raise UsageError(f"min_tokens must be at most max_tokens, {params.max_tokens}, got `{params.min_tokens}`")
    if params.logprobs is not None:
        wanted = f"None or a whole number from 0 to {MOST_LOGPROBS}"
        _whole("logprobs", params.logprobs, 0, MOST_LOGPROBS, wanted)
    _texts("stop", params.stop)
    _texts("bad_words", params.bad_words)
    _bias(params.logit_bias)
    allowed = params.allowed_tokens
    if allowed is not None and (not isinstance(allowed, tuple) or not allowed or not all(map(_is_id, allowed))):
        raise UsageError(f"allowed_tokens must be None or at least one token id, got `{allowed!r:.80}`")
    form = params.grammar
    if form is not None and (not isinstance(form, Grammar) or not isinstance(form.text, str) or form.kind not in FORMS):
        raise UsageError(f"grammar must be None or a paceline.Grammar, got `{form!r:.80}`")
    processors = params.logits_processors
    if not isinstance(processors, tuple) or not all(map(callable, processors)):
        raise UsageError(f"logits_processors must be a sequence of callables, got `{processors!r:.80}`")


def check_ids(params: SamplingParams, vocab: int, padding: Collection[int] = ()) -> None:
    """Refuse settings with ids that are no tokens; see `check_known`."""
    check_known("logit_bias must hold token ids", dict(params.logit_bias), vocab, padding)
    check_known("allowed_tokens must hold token ids", params.allowed_tokens or (), vocab, padding)


def check_known(wanted: str, ids: Iterable[int], vocab: int, padding: Collection[int] = ()) -> None:
    """Refuse ids that are not from 0 to `vocab` - 1, and those of `padding`, which no token has."""
    absent = frozenset(padding)
    for token in ids:
        if not 0 <= token < vocab:
            raise UsageError(f"{wanted} from 0 to {vocab - 1}, got `{token}`")
        if token in absent:
            raise UsageError(f"{wanted} that stand for something, got `{token}`: no token has it")


def _bias(bias: object) -> None:
    """Check that a bias is pairs of an id and a finite number, each id once."""
    pairs = list(bias) if isinstance(bias, Iterable) and not isinstance(bias, str) else [bias]
    ids: list[object] = []
    for pair in pairs:
        token, value = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
        if not _is_id(token):
            raise UsageError(f"logit_bias must map token ids to numbers, got `{pair!r:.80}`")
        _real(f"logit_bias of token {token}", value, -100, 100, "from -100 to 100")
        ids.append(token)
    if len(set(ids)) < len(ids):
        twice = next(token for token in ids if ids.count(token) > 1)
        raise UsageError(f"logit_bias must name each token once, got twice `{twice}`")


def _texts(name: str, texts: object) -> None:
    if not isinstance(texts, (tuple, list)) or any(not isinstance(text, str) or not text for text in texts):
        raise UsageError(f"{name} must be a sequence of non-empty texts, got `{texts!r}`")


def _is_id(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= int(value) < 2**31


def _real(name: str, value: object, least: float, most: float, wanted: str, *, open_below: bool = False) -> None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not fits or not least <= value <= most or (open_below and value == least):  # type: ignore[operator]
        raise UsageError(f"{name} must be {wanted}, got `{value}`")


def _whole(name: str, value: object, least: int, most: int, wanted: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be {wanted}, got `{value}`")
