"""Rotation frequencies for RoPE: plain, linear, YaRN, Llama-3, LongRoPE. Knows no positions and rotates nothing.

Formulas as in the models' own code: YaRN (arXiv 2309.00071, section 3), LongRoPE (2402.13753), Llama 3.1's bands of
wavelengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

RopeKind = Literal["plain", "linear", "yarn", "llama3", "longrope"]


@dataclass(frozen=True)
class Rope:
    """Describe one table of frequencies. `factor` is how many times longer than `original_context` it reaches.

    `divisors` (GGUF `rope_freqs.weight`) divide the plain frequencies, one for each; `long_divisors` are those for
    texts beyond the original context.
    """

    base: float
    dimensions: int
    kind: RopeKind = "plain"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()

    def reading(self, context: int) -> Rope:
        """Return this table as a text of up to `context` tokens is read: with one set of divisors throughout."""
        if not self.long_divisors or context <= self.original_context:
            return replace(self, long_divisors=())
        return replace(self, divisors=self.long_divisors, long_divisors=())


def longrope_factor(factor: float, original: int) -> float:
    """Return what cosine and sine are multiplied by where nothing says it; `factor` is the reach of `original`."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0


def inverse_frequencies(rope: Rope) -> tuple[NDArray[np.float32], float]:
    """Work out float32 [dimensions / 2] angles per position, and what cosine and sine are multiplied by."""
    powers = np.arange(0, rope.dimensions, 2, dtype=np.float64) / rope.dimensions
    plain = rope.base**-powers
    if rope.divisors:
        plain = plain / np.array(rope.divisors)
    if rope.kind == "yarn":
        multiplier = rope.attention_factor
        if multiplier is None:
            multiplier = 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0
        return _yarn(rope, plain).astype(np.float32), multiplier
    if rope.kind == "longrope":
        return plain.astype(np.float32), 1.0 if rope.attention_factor is None else rope.attention_factor
    if rope.kind == "linear":
        plain = plain / rope.factor
    elif rope.kind == "llama3":
        plain = _llama3(rope, plain)
    return plain.astype(np.float32), 1.0


def _yarn(rope: Rope, plain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep fast dimensions, slow down slow ones by the factor, and blend linearly between."""

    def dimension(turns: float) -> float:  # the one that turns so often over the original context
        return rope.dimensions * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low = max(math.floor(dimension(rope.beta_fast)), 0)
    high = min(math.ceil(dimension(rope.beta_slow)), rope.dimensions - 1)
    ramp = np.clip((np.arange(rope.dimensions // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def _llama3(rope: Rope, plain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep short wavelengths, slow down long ones by the factor, and blend between."""
    turns = rope.original_context * plain / (2 * math.pi)
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return plain / rope.factor * (1 - kept) + plain * kept
