"""What one forward of a model reads and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.core.aliases import Floats, Ints


@dataclass(frozen=True, slots=True)
class Batch:
    """B sequences, each extended by a tree, laid flat over T tokens.

    `tokens`, `positions`, `parents` int32 [T] (parents count within their own tree); `starts` int32 [B+1];
    `wanted` int32 [W] flat rows whose logits are returned; `tables` int32 [B, P] page of each block of each
    sequence; `lengths` int32 [B] committed tokens already in the cache.
    """

    tokens: Ints
    positions: Ints
    parents: Ints
    starts: Ints
    wanted: Ints
    tables: Ints
    lengths: Ints


class Logits(np.ndarray[Any, np.dtype[np.float32]]):
    """float32 [n, V], and `peaks` int32 [n, V / 64]: the largest of each block of 64 of a row, as native/row.h has it.

    Rows taken with `part` keep theirs; any other view or copy is without, and a draw from it looks for itself.
    """

    peaks: Ints | None = None

    @staticmethod
    def of(values: Floats, peaks: Ints | None) -> Logits:
        logits = values.view(Logits)
        logits.peaks = peaks
        return logits

    def part(self, rows: slice) -> Logits:
        return Logits.of(self[rows], None if self.peaks is None else self.peaks[rows])


@dataclass(frozen=True, slots=True)
class Forward:
    """Logits float32 [W, V] of the wanted rows, owned by the model and valid until its next forward.

    `taps` float32 [T, D] per requested layer: the hidden states that layer put out. `beyond`: a layer for each flat row
    whose keys or values are too large for the cache.
    """

    logits: Floats
    taps: Mapping[int, Floats] = field(default_factory=dict)
    beyond: Mapping[int, int] = field(default_factory=dict)
