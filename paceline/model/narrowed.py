"""A model limited to its first ids: rows of its output that no token of the tokenizer has are left out.

For models that cannot leave them out by themselves, as `NativeModel` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.core.batch import Batch, Forward
from paceline.model.base import Model
from paceline.model.cache import PagedCache


class NarrowedModel:
    """`model` with the first `vocab` of its ids."""

    def __init__(self, model: Model, vocab: int) -> None:
        assert vocab <= model.spec.vocab, (vocab, model.spec.vocab)
        self.spec = replace(model.spec, vocab=vocab)
        self.capabilities = replace(model.capabilities, native_loop=False)
        self._model = model

    @property
    def page_bytes(self) -> int:
        return self._model.page_bytes

    def new_cache(self, tokens: int) -> PagedCache:
        return self._model.new_cache(tokens)

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        """See `Model.forward`."""
        out = self._model.forward(batch, cache, taps=taps)
        return replace(out, logits=np.array(out.logits[:, : self.spec.vocab], np.float32, order="C"))
