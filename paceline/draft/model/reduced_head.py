"""A draft's output matrix cut down to the tokens that texts are made of.

Most of a small model's time goes into logits of tokens that hardly ever occur (FR-Spec, 2502.14856). Dropping their
rows costs guesses, never exactness: drafts do not enter the distribution. The last rows follow the text: tokens that
    were read
or committed and have no row take over the oldest of these.
"""

from __future__ import annotations

import numpy as np

from paceline.core.aliases import Floats, Ints
from paceline.model.base import PackedModel

SPARE = 512


class Head:
    """The rows that `model`, a cut-down copy, computes.

    Args:
        model: the whole model; its packed weights are shared.
        ids: int32 [rows], the token of each row, each once; the last `spare` may be replaced.
    """

    def __init__(self, model: PackedModel, ids: Ints, *, spare: int = SPARE) -> None:
        self.ids = np.array(ids, np.int32)
        self.model = model.with_outputs(self.ids)
        self.loop = self.model.loop(self.ids)
        self._whole = model.weights.head.weight
        self._first, self._next = max(len(self.ids) - spare, 0), 0
        self._known = np.zeros(model.spec.vocab, np.bool_)
        self._known[self.ids] = True

    def absorb(self, tokens: Ints) -> int:
        """Give rows to tokens of a text that have none; return how many there were."""
        lacking = tokens[~self._known[tokens]]
        if not len(lacking):
            return 0
        spare = len(self.ids) - self._first
        fresh = list(dict.fromkeys(lacking[::-1].tolist()))[:spare][::-1]  # the latest of too many
        for token in fresh:
            row = self._first + self._next
            self._next = (self._next + 1) % spare
            self._known[self.ids[row]] = False
            self._known[token] = True
            self.ids[row] = token
            self.model.weights.head.weight.copy_row(row, self._whole, token)
            self.loop.assign(row, token)
        return len(fresh)

    def whole(self, logits: Floats) -> Floats:
        """Return the logits float32 [..., V] that stand for those of the rows; -inf where there is no row."""
        found = np.full((*logits.shape[:-1], len(self._known)), -np.inf, np.float32)
        found[..., self.ids] = logits
        return found
