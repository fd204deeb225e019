"""Sort a row of logits, the one costly step of reading a distribution in full."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats


def best_first(logits: Floats) -> npt.NDArray[np.int32]:
    """Return int32 [V]: the tokens by falling logit, float32 [V] without NaN, ties by lower id.

    The same as a stable argsort of the negated row in a tenth of its time: whole numbers that carry the id in their
    lower half sort without being compared as pairs.
    """
    bits = (0 - logits).view(np.uint32)  # 0 - x, so that both zeros come out as +0
    rank = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    keys = (rank << np.uint64(32)) | np.arange(len(logits), dtype=np.uint64)
    keys.sort()
    return keys.astype(np.uint32).astype(np.int32)
