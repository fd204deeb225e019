"""A named block of packed numbers and the ggml formats it may be in. Knows no file and no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from paceline.errors import UnsupportedModel


class GgmlType(IntEnum):
    """Number formats by ggml's own codes; most are only named, see `SUPPORTED`."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39

    @property
    def block(self) -> int:
        """Count the numbers of one block."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        return _BLOCKS[self][1]


_BLOCKS: dict[GgmlType, tuple[int, int]] = {
    GgmlType.F32: (1, 4),
    GgmlType.F16: (1, 2),
    GgmlType.Q4_0: (32, 18),
    GgmlType.Q4_1: (32, 20),
    GgmlType.Q5_0: (32, 22),
    GgmlType.Q5_1: (32, 24),
    GgmlType.Q8_0: (32, 34),
    GgmlType.Q8_1: (32, 36),
    GgmlType.Q2_K: (256, 84),
    GgmlType.Q3_K: (256, 110),
    GgmlType.Q4_K: (256, 144),
    GgmlType.Q5_K: (256, 176),
    GgmlType.Q6_K: (256, 210),
    GgmlType.Q8_K: (256, 292),
    GgmlType.IQ2_XXS: (256, 66),
    GgmlType.IQ2_XS: (256, 74),
    GgmlType.IQ3_XXS: (256, 98),
    GgmlType.IQ1_S: (256, 50),
    GgmlType.IQ4_NL: (32, 18),
    GgmlType.IQ3_S: (256, 110),
    GgmlType.IQ2_S: (256, 82),
    GgmlType.IQ4_XS: (256, 136),
    GgmlType.I8: (1, 1),
    GgmlType.I16: (1, 2),
    GgmlType.I32: (1, 4),
    GgmlType.I64: (1, 8),
    GgmlType.F64: (1, 8),
    GgmlType.IQ1_M: (256, 56),
    GgmlType.BF16: (1, 2),
    GgmlType.TQ1_0: (256, 54),
    GgmlType.TQ2_0: (256, 66),
    GgmlType.MXFP4: (32, 17),
}

SUPPORTED = (
    GgmlType.F32,
    GgmlType.F16,
    GgmlType.BF16,
    GgmlType.Q4_0,
    GgmlType.Q4_1,
    GgmlType.Q5_0,
    GgmlType.Q5_1,
    GgmlType.Q8_0,
    GgmlType.Q4_K,
    GgmlType.Q5_K,
    GgmlType.Q6_K,
    GgmlType.Q2_K,
    GgmlType.Q3_K,
    GgmlType.IQ4_NL,
)


@dataclass(frozen=True, eq=False)
class Tensor:
    """Name a packed tensor; `data` is uint8 [nbytes], read-only, and belongs to the open file.

    `shape` is outermost first: a linear layer is (outputs, inputs), blocks run along inputs.
    """

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    data: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    @property
    def rows(self) -> int:
        """Count the vectors: one for a norm's or a bias's."""
        return self.shape[0] if len(self.shape) > 1 else 1

    @property
    def cols(self) -> int:
        return self.shape[-1]

    def rows_of(self, name: str, start: int, count: int) -> Tensor:
        """Look at some of the outermost entries: a part of the same bytes under another name."""
        each = self.nbytes // self.shape[0]
        return Tensor(name, (count, *self.shape[1:]), self.type, self.data[start * each : (start + count) * each])

    def require_supported(self) -> None:
        """Raise UnsupportedModel unless the kernels know this tensor's format."""
        if self.type not in SUPPORTED:
            raise unsupported_type(self.name, self.type.name)


def unsupported_type(tensor: str, name: str) -> UnsupportedModel:
    """Make the error for a tensor in a format that no kernel reads."""
    known = ", ".join(kind.name for kind in SUPPORTED)
    return UnsupportedModel(
        f"tensor `{tensor}` wants one of the types {known}; got `{name}`",
        hint="choose another quantisation of the same model, Q4_K_M for example",
    )
