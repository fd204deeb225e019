"""A model with another number of ids: vocabularies of one family are padded to different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.core.batch import Batch, Forward
from paceline.model.base import Model
from paceline.model.cache import PagedCache


class PaddedModel:
    """`model` with `vocab` ids, of which the first `shared` are its own; the others have probability 0.

    It reads ids it does not have as 0: that makes guesses worse and nothing else.
    """

    def __init__(self, model: Model, *, vocab: int, shared: int) -> None:
        self.spec = replace(model.spec, vocab=vocab)
        self.capabilities = replace(model.capabilities, native_loop=False)
        self._model, self._shared = model, min(shared, vocab, model.spec.vocab)

    @property
    def page_bytes(self) -> int:
        return self._model.page_bytes

    def new_cache(self, tokens: int) -> PagedCache:
        return self._model.new_cache(tokens)

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        """See `Model.forward`."""
        if (batch.tokens >= self._model.spec.vocab).any():
            known = np.where(batch.tokens < self._model.spec.vocab, batch.tokens, 0).astype(np.int32)
            batch = replace(batch, tokens=known)
        out = self._model.forward(batch, cache, taps=taps)
        logits = np.full((len(out.logits), self.spec.vocab), -np.inf, np.float32)
        logits[:, : self._shared] = out.logits[:, : self._shared]
        return Forward(logits, out.taps)
