"""`Ops` on the native kernels: recording is Python, replaying is one call without the interpreter lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.core.aliases import Floats, Ints
from paceline.core.batch import Batch
from paceline.kernels.native import native
from paceline.kernels.ops import HeadShape, Linear, Rows


class Tape:
    """A recorded forward pass. `pool` is shared by all models of a process; `isa` "" means the best there is."""

    def __init__(self, pool: native.Pool, isa: str = "") -> None:
        self.program = native.Program(pool, isa)

    def rows(self, width: int, *, wanted: bool = False) -> Rows:
        return self.program.buffer(width, wanted)

    def rope(self, inverse_frequencies: Floats, multiplier: float) -> int:
        return self.program.rope(inverse_frequencies.tolist(), multiplier)

    def embed(self, table: native.EmbedTable, *, scale: float, out: Rows) -> None:
        self.program.embed(table, scale, out)

    def rms_norm(self, x: Rows, weight: Floats, eps: float, *, out: Rows, accumulate: bool = False) -> None:
        self.program.rms_norm(x, weight.tolist(), eps, out, accumulate)

    def linear(self, x: Rows, parts: Sequence[tuple[Linear, Rows]], *, accumulate: bool = False) -> None:
        self.program.linear(x, [(part.weight, _floats(part.bias), out) for part, out in parts], accumulate)

    def gated(self, x: Rows, gate: Linear, up: Linear, activation: str, *, out: Rows) -> None:
        self.program.gated(x, gate.weight, up.weight, activation == "gelu_tanh", out)

    def rotate_and_store(
        self, q: Rows, k: Rows, v: Rows, shape: HeadShape, *, q_norm: Floats | None, k_norm: Floats | None, eps: float
    ) -> None:
        self.program.rotate_and_store(
            q,
            k,
            v,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            shape.layer,
            shape.rope,
            shape.interleaved,
            _floats(q_norm),
            _floats(k_norm),
            eps,
            shape.growth,
            shape.period,
        )

    def attention(self, q: Rows, shape: HeadShape, *, out: Rows) -> None:
        self.program.attention(
            q,
            out,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            shape.layer,
            shape.window,
            shape.scale,
            shape.softcap,
        )

    def keep_peaks(self, x: Rows) -> None:
        self.program.keep_peaks(x)

    def gather(self, x: Rows, *, out: Rows) -> None:
        self.program.gather(x, out)

    def softcap(self, x: Rows, cap: float) -> None:
        self.program.softcap(x, cap)

    def forbid(self, x: Rows, ids: Sequence[int]) -> None:
        self.program.forbid(x, list(ids))

    def tap(self, x: Rows, layer: int) -> None:
        self.program.tap(x, layer)

    def run(self, batch: Batch, store: native.KVStore, *, taps: Sequence[int], vocab: int) -> None:
        """Replay on one batch; rows read afterwards stay valid until the next run."""
        self.program.run(
            store,
            batch.tokens,
            batch.positions,
            batch.parents,
            batch.starts,
            batch.wanted,
            batch.tables,
            batch.lengths,
            list(taps),
            vocab,
        )

    def read(self, rows: Rows, count: int) -> Floats:
        """Return a view, float32 [count, width]."""
        return self.program.rows(rows, count)

    def read_peaks(self, rows: Rows, count: int) -> Ints | None:
        """Return a view, int32 [count, blocks], where peaks are kept."""
        return self.program.peaks(rows, count)

    def read_taps(self, taps: Sequence[int], count: int) -> Mapping[int, Floats]:
        """Return a view, float32 [count, width], for each requested layer."""
        return {layer: self.read(rows, count) for layer, rows in self.program.taps() if layer in taps}


def _floats(values: Floats | None) -> list[float]:
    return [] if values is None else np.asarray(values, np.float32).tolist()
