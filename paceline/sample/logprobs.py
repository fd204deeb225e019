"""Log probabilities of tokens under the model itself, before any setting changed them.

They do not depend on temperature, penalties or bans, and rows are the same bits however they were computed, so neither
do they depend on speculation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core.aliases import Floats
from paceline.core.request import Logprobs


def logprobs_of(logits: Floats, nodes: Sequence[int], tokens: Sequence[int], count: int) -> tuple[Logprobs, ...]:
    """Return the log probabilities of emitted tokens and of the `count` likeliest in their place.

    Args:
        logits: float32 [N, V], after each node.
        nodes: after which node each token came.
    """
    return tuple(_logprobs(logits[node], token, count) for node, token in zip(nodes, tokens, strict=True))


def _logprobs(row: Floats, token: int, count: int) -> Logprobs:
    exact = row.astype(np.float64)
    top = exact.max()
    norm = top + np.log(np.exp(exact - top).sum())
    best = np.zeros(0, np.int64)
    if count:
        least = np.partition(row, -count)[-count] if count < len(row) else row.min()
        best = np.flatnonzero(row >= least)
        best = best[np.argsort(-row[best], kind="stable")][:count]  # ties go to the lower id, as in the distribution
    return Logprobs(int(token), float(exact[token] - norm), tuple((int(i), float(exact[i] - norm)) for i in best))
