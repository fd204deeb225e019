"""Sampling settings that cannot be meant are refused before anything runs."""

from __future__ import annotations

import math

from paceline.errors import UsageError
from paceline.types import SamplingParams


def validate(params: SamplingParams) -> None:
    """Raise `UsageError` naming the setting, what it may be, and what it was."""
    _real("temperature", params.temperature, 0, math.inf, "0 (greedy) or more")
    _real("top_p", params.top_p, 0, 1, "above 0 and at most 1", open_below=True)
    _real("min_p", params.min_p, 0, 1, "from 0 to 1")
    _whole("top_k", params.top_k, 0, 2**31 - 1, "0 (off) or a positive whole number")
    _whole("seed", params.seed, 0, 2**64 - 1, "a whole number from 0 to 2^64 - 1")
    _whole("max_tokens", params.max_tokens, 1, 2**31 - 1, "a whole number from 1 to 2147483647")
    if not isinstance(params.stop, (tuple, list)) or any(not isinstance(text, str) or not text for text in params.stop):
        raise UsageError(f"stop must be a sequence of non-empty texts, got `{params.stop!r}`")


def _real(name: str, value: object, least: float, most: float, wanted: str, *, open_below: bool = False) -> None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or not least <= value <= most or (open_below and value == least):  # type: ignore[operator]
        raise UsageError(f"{name} must be {wanted}, got `{value}`")


def _whole(name: str, value: object, least: int, most: int, wanted: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be {wanted}, got `{value}`")
