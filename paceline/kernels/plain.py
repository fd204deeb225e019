"""The numpy twins of the native kernels: slow, short, and right by reading.

`PlainOps` implements the same `Ops` as `Tape`, at once instead of recorded, in float32 or float64; with
`quantized` it rounds activations to int8 as the packed kernels do, without it computes what the file itself says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats, Ints
from paceline.core.batch import Batch
from paceline.kernels.ops import PAGE, HeadShape, Linear, Rows

Array = npt.NDArray[Any]
GROUP, STRETCH, OUTLIERS = 32, 1024, 4


def rounded(x: Array) -> Array:
    """Return rows [T, K] as the packed kernels see them.

    Each group of 32 is rounded to int8 codes with one scale, x ~ scale * code, after the largest input of the four
    groups with the largest inputs in each stretch of 1024 was set apart; those stay as they are.
    """
    return np.concatenate([_rounded_stretch(x[:, i : i + STRETCH]) for i in range(0, x.shape[1], STRETCH)], 1)


def _rounded_stretch(x: Array) -> Array:
    groups = x.reshape(len(x), -1, GROUP)
    largest = np.abs(groups).max(-1)
    chosen = np.argsort(-largest, 1, kind="stable")[:, :OUTLIERS, None]
    at = np.take_along_axis(np.abs(groups).argmax(-1)[..., None], chosen, 1)
    apart = np.zeros(groups.shape, bool)
    apart[np.arange(len(x))[:, None, None], chosen, at] = True
    rest = np.where(apart, 0, groups)
    largest = np.abs(rest).max(-1, keepdims=True)
    inverse = np.where(largest > 0, 127 / np.where(largest > 0, largest, 1), 0)
    codes = np.rint(rest * inverse)
    return np.asarray(np.where(apart, groups, codes * (largest / 127)).reshape(x.shape), x.dtype)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight)


def rotate(x: Array, positions: Array, inverse_frequencies: Array, multiplier: float, interleaved: bool) -> Array:
    """Rotate heads [T, H, D] by their positions [T] (RoPE, 2104.09864); columns past the table stay."""
    angle = positions[:, None, None] * inverse_frequencies.astype(np.float64)
    cos, sin = (np.cos(angle) * multiplier).astype(x.dtype), (np.sin(angle) * multiplier).astype(x.dtype)
    rotary = 2 * len(inverse_frequencies)
    out = x.copy()
    first, second = (
        (slice(0, rotary, 2), slice(1, rotary, 2))
        if interleaved
        else (slice(0, rotary // 2), slice(rotary // 2, rotary))
    )
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def activate(x: Array, name: str) -> Array:
    """SiLU, or GELU in its tanh form."""
    if name == "silu":
        return np.asarray(x / (1 + np.exp(-x)))
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    weights = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def ancestors(parents: Ints) -> npt.NDArray[np.bool_]:
    """Return bool [N, N]: row i marks node i and every node above it."""
    seen = np.eye(len(parents), dtype=bool)
    for node in range(1, len(parents)):
        seen[node] |= seen[parents[node]]
    return seen


class PlainStore:
    """Keys and values by slot, [layers, slots, kv_heads, head_dim], unrounded."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, pages: int, dtype: Any) -> None:
        self.pages = pages
        self.keys = np.zeros((layers, pages * PAGE, kv_heads, head_dim), dtype)
        self.values = np.zeros_like(self.keys)

    def copy_tokens(self, source: npt.NDArray[np.int64], to: npt.NDArray[np.int64]) -> None:
        for a, b in zip(source, to, strict=True):  # one by one: a slot may be both
            self.keys[:, b], self.values[:, b] = self.keys[:, a], self.values[:, a]

    def copy_page(self, source: int, to: int) -> None:
        a, b = (slice(PAGE * page, PAGE * (page + 1)) for page in (source, to))
        self.keys[:, b], self.values[:, b] = self.keys[:, a], self.values[:, a]


@dataclass(slots=True)
class _Rows:
    width: int
    wanted: bool
    value: Array | None = None


class PlainOps:
    """One forward pass over one batch."""

    def __init__(self, batch: Batch, store: PlainStore, *, dtype: Any = np.float32, quantized: bool = True) -> None:
        self.batch, self.store, self.dtype, self.quantized = batch, store, dtype, quantized
        self.ropes: list[tuple[Array, float]] = []
        self.taps: dict[int, Array] = {}

    def rows(self, width: int, *, wanted: bool = False) -> Rows:
        return _Rows(width, wanted)

    def rope(self, inverse_frequencies: Floats, multiplier: float) -> int:
        self.ropes.append((inverse_frequencies, multiplier))
        return len(self.ropes) - 1

    def embed(self, table: Any, *, scale: float, out: Rows) -> None:
        out.value = table[self.batch.tokens].astype(self.dtype) * self.dtype(scale)

    def rms_norm(self, x: Rows, weight: Floats, eps: float, *, out: Rows, accumulate: bool = False) -> None:
        y = rms_norm(x.value, weight.astype(self.dtype), eps).astype(self.dtype)
        out.value = out.value + y if accumulate else y

    def linear(self, x: Rows, parts: Sequence[tuple[Linear, Rows]], *, accumulate: bool = False) -> None:
        value = rounded(x.value) if self.quantized else x.value
        for part, out in parts:
            y = value @ part.weight.astype(self.dtype).T
            if part.bias is not None:
                y = y + part.bias.astype(self.dtype)
            out.value = out.value + y if accumulate else y

    def gated(self, x: Rows, gate: Linear, up: Linear, activation: str, *, out: Rows) -> None:
        a, b = _Rows(0, False), _Rows(0, False)
        self.linear(x, [(gate, a), (up, b)])
        assert a.value is not None
        assert b.value is not None
        out.value = activate(a.value, activation) * b.value

    def rotate_and_store(
        self, q: Rows, k: Rows, v: Rows, shape: HeadShape, *, q_norm: Floats | None, k_norm: Floats | None, eps: float
    ) -> None:
        for rows, heads, norm in ((q, shape.heads, q_norm), (k, shape.kv_heads, k_norm)):
            y = rows.value.reshape(-1, heads, shape.head_dim)
            if norm is not None:
                y = rms_norm(y, norm.astype(self.dtype), eps)
            if shape.rope >= 0:
                y = rotate(y, self.batch.positions, *self.ropes[shape.rope], shape.interleaved)
            if shape.growth and rows is q:
                y = y * (1 + shape.growth * np.log(1 + self.batch.positions // shape.period))[:, None, None]
            rows.value = y.reshape(len(y), -1).astype(self.dtype)
        for sequence, rows in enumerate(self._spans()):
            slots = self._slots(sequence)[self.batch.lengths[sequence] :]
            for stored, new in ((self.store.keys, k), (self.store.values, v)):
                stored[shape.layer, slots] = new.value[rows].reshape(-1, shape.kv_heads, shape.head_dim)

    def attention(self, q: Rows, shape: HeadShape, *, out: Rows) -> None:
        group = shape.heads // shape.kv_heads
        out.value = np.empty_like(q.value)
        for sequence, rows in enumerate(self._spans()):
            length, own = int(self.batch.lengths[sequence]), self.batch.positions[rows]
            positions = np.concatenate([np.arange(length), own])
            seen = np.concatenate([np.ones((len(own), length), bool), ancestors(self.batch.parents[rows])], 1)
            if shape.window:
                seen &= own[:, None] - positions < shape.window
            slots = self._slots(sequence)
            keys = self.store.keys[shape.layer, slots].repeat(group, 1).transpose(1, 2, 0)
            values = self.store.values[shape.layer, slots].repeat(group, 1).transpose(1, 0, 2)
            queries = q.value[rows].reshape(len(own), shape.heads, -1).transpose(1, 0, 2)
            scores = queries @ keys.astype(self.dtype) * self.dtype(shape.scale)
            if shape.softcap:
                scores = shape.softcap * np.tanh(scores / shape.softcap)
            mixed = softmax(np.where(seen, scores, -np.inf)) @ values.astype(self.dtype)
            out.value[rows] = mixed.transpose(1, 0, 2).reshape(len(own), -1)

    def gather(self, x: Rows, *, out: Rows) -> None:
        out.value = x.value[self.batch.wanted]

    def keep_peaks(self, x: Rows) -> None:
        """Keep nothing: a draw from plain rows reads all of a row."""

    def softcap(self, x: Rows, cap: float) -> None:
        x.value = cap * np.tanh(x.value / cap)

    def forbid(self, x: Rows, ids: Sequence[int]) -> None:
        x.value[:, list(ids)] = -np.inf

    def tap(self, x: Rows, layer: int) -> None:
        self.taps[layer] = x.value.copy()

    def _spans(self) -> list[slice]:
        """The flat rows of each sequence."""
        return [slice(int(a), int(b)) for a, b in zip(self.batch.starts, self.batch.starts[1:], strict=False)]

    def _slots(self, sequence: int) -> npt.NDArray[np.int64]:
        """The slots of a sequence's committed tokens, then of its tree's nodes."""
        rows = self._spans()[sequence]
        places = np.arange(self.batch.lengths[sequence] + rows.stop - rows.start)
        pages = self.batch.tables[sequence, places // PAGE].astype(np.int64)
        return np.asarray(pages * PAGE + places % PAGE)
