"""Weights of tokens as whole numbers, so that a sum of them is the same in any order.

The weight of a token is its probability relative to the likeliest one's, in units of 2^-44: float32 arithmetic (1e-7),
then rounded. Sets that end where a sum reaches a share (top-p, typical-p) are thereby the same, bit for bit, in
every order of addition; the native draw does in blocks what is done here in one line.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats

Whole = npt.NDArray[np.int64]

UNIT = 2.0**44  # 2^18 weights fit 63 bits
FLOOR = -64.0  # lighter than 2^-45 weighs nothing
_TAYLOR = np.array(
    [1.54035304e-4, 1.33335581e-3, 9.61812911e-3, 5.55041087e-2, 2.40226507e-1, 6.93147181e-1, 1.0], np.float32
)


def depths(logits: Floats, top: np.float32, temperature: float) -> Floats:
    """Return float32 [n], at most 0: log2 of each token's probability over that of a token with logit `top`."""
    scale = np.float32(min(max(1.4426950408889634 / temperature, 1e-37), 1e37))
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum((logits - top) * scale, np.float32(FLOOR)))


def weigh(depth: Floats) -> tuple[Whole, Whole]:
    """Return int64 [n] weights and [n] weights times depth, both in units of 2^-44."""
    magic = np.float32(12582912.0)  # adding 1.5 * 2^23 rounds to a whole number
    whole = (depth + magic) - magic
    rest = depth - whole
    value = np.full_like(rest, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        value = value * rest + coefficient
    weight = np.ldexp(value, whole.astype(np.int32))
    real = weight.astype(np.float64)
    return (
        np.rint(real * UNIT).astype(np.int64),
        np.rint(real * depth.astype(np.float64) * UNIT).astype(np.int64),
    )


def share(total: int, part: float) -> int:
    """Return what `part` of a total weight is, at least 1 and never more than all of it, however floats round."""
    return min(max(int(np.ceil(part * float(total))), 1), total)
