"""The ops a decoder is written in, over rows of floats, with two implementations.

`Tape` (native) records the ops once and replays them on every batch; `PlainOps` (numpy) runs them at once. A
decoder written against `Ops` therefore has one text for the fast path and for its twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.aliases import Floats

PAGE = 32  # tokens per page of keys and values; kPage in native/kernels.h
Rows = Any  # a handle to f32 [rows, width]; rows follow the batch


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight [out, in] in the form its `Ops` wants, and an optional bias float32 [out]."""

    weight: Any
    bias: Floats | None = None


@dataclass(frozen=True, slots=True)
class HeadShape:
    """How one layer's attention is cut into heads and which positions it sees."""

    heads: int
    kv_heads: int
    head_dim: int
    layer: int
    rope: int  # index of a table made by `rope`, -1 for none
    interleaved: bool
    window: int  # positions visible, itself included; 0 for all
    scale: float
    softcap: float
    growth: float = 0.0  # a query at position p is multiplied by 1 + growth * ln(1 + floor(p / period))
    period: int = 1


class Ops(Protocol):
    """Every op writes the rows it names as `out`, or adds to them where it says `accumulate`."""

    def rows(self, width: int, *, wanted: bool = False) -> Rows:
        """Make rows of `width`: one per token of the batch, or one per wanted row."""

    def rope(self, inverse_frequencies: Floats, multiplier: float) -> int:
        """Register float32 [rotary/2] inverse frequencies; return the table's index."""

    def embed(self, table: Any, *, scale: float, out: Rows) -> None: ...

    def rms_norm(self, x: Rows, weight: Floats, eps: float, *, out: Rows, accumulate: bool = False) -> None: ...

    def linear(self, x: Rows, parts: Sequence[tuple[Linear, Rows]], *, accumulate: bool = False) -> None:
        """Multiply one input by several weights, each into its own rows."""

    def gated(self, x: Rows, gate: Linear, up: Linear, activation: str, *, out: Rows) -> None:
        """out = activation(gate x) * (up x)."""

    def rotate_and_store(
        self, q: Rows, k: Rows, v: Rows, shape: HeadShape, *, q_norm: Floats | None, k_norm: Floats | None, eps: float
    ) -> None:
        """Norm and rotate the heads of q and k in place, let q grow, then put k and v into the cache."""

    def attention(self, q: Rows, shape: HeadShape, *, out: Rows) -> None:
        """Attend from every row to its committed tokens, its ancestors in the tree and itself."""

    def keep_peaks(self, x: Rows) -> None:
        """Keep the largest of each block of 64, for draws from these rows; see `Logits`."""

    def gather(self, x: Rows, *, out: Rows) -> None:
        """Copy the wanted rows."""

    def softcap(self, x: Rows, cap: float) -> None:
        """x = cap * tanh(x / cap)."""

    def forbid(self, x: Rows, ids: Sequence[int]) -> None:
        """Set these places of every row to -inf."""

    def tap(self, x: Rows, layer: int) -> None:
        """Keep x as the hidden state of `layer` when the batch asks for it."""
