"""What the engine asks of a model: logits for a batch of trees, and a cache to go with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.model.cache import PagedCache
from paceline.model.spec import ModelSpec
from paceline.types import Batch, Forward


class Model(Protocol):
    """Tokens in trees to logits. Knows nothing of drafts: a tree is a tree."""

    @property
    def spec(self) -> ModelSpec: ...

    def new_cache(self, tokens: int) -> PagedCache:
        """Make a cache with room for `tokens` tokens."""

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        """Extend every sequence of the batch by its tree and return the wanted rows' logits.

        Keys and values of the whole tree are written behind the committed ones; `cache.commit` keeps a path of them.
        """
