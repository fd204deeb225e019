"""A draft model's own reading of the texts: a cache that follows them by comparing tokens, never by counting.

Knows how far each text is cached and what must be forwarded next; what the tokens mean, and whose noise draws the
guesses, is for the drafters to say.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from paceline.model.base import Model
from paceline.model.cache import PagedCache
from paceline.model.extend import read_on
from paceline.model.flatten import CHUNK, SLACK, flatten
from paceline.types import Floats, Ints, TokenTree

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Text:
    cache: int
    tokens: Ints  # int32 [room]; as many of them as the cache is long are in it
    is_full: bool = False  # the text has outgrown this model's context


class Reader:
    """Reads texts with `model`, one cache sequence for each name."""

    def __init__(self, model: Model, *, context: int, slots: int, name: str) -> None:
        self.model, self.name = model, name
        self.context = min(context, model.spec.context)
        self.cache: PagedCache = model.new_cache((self.context + SLACK) * slots)
        self._texts: dict[int, _Text] = {}

    def has_room(self, text: int, length: int) -> bool:
        """Tell whether a text of `length` tokens fits; once one did not, its room is given back for good."""
        known = self._texts.get(text)
        if known is not None and known.is_full:
            return False
        if length <= self.context:
            return True
        log.warning("`%s` reads %d tokens only; request %d goes on without it", self.name, self.context, text)
        self.release(text)
        self._texts[text] = _Text(self.cache.open(), np.empty(0, np.int32), is_full=True)
        return False

    def read(self, text: int, tokens: Ints) -> Ints:
        """Bring the cache to a beginning of `tokens`, int32 [n >= 1]; return the rest, at least the last one."""
        known = self._texts.get(text)
        if known is None:
            known = _Text(self.cache.open(tokens.tolist()), np.empty(self.context + SLACK, np.int32))
            known.tokens[: len(tokens)] = tokens  # what the cache has of it already among them
            self._texts[text] = known
        shared = min(self.cache.length(known.cache), len(tokens) - 1)
        differs = np.flatnonzero(known.tokens[:shared] != tokens[:shared])
        self.cache.crop(known.cache, int(differs[0]) if len(differs) else shared)
        read_on(self.model, self.cache, known.cache, tokens, left=CHUNK)
        read = self.cache.length(known.cache)
        known.tokens[:read] = tokens[:read]
        return tokens[read:]

    def forward(self, texts: Seq[int], trees: Seq[TokenTree], wanted: Seq[int]) -> Floats:
        """Extend each text by a tree; return the logits of the last `wanted` nodes of each, the model's own memory."""
        batch = flatten(self.cache, [self._texts[text].cache for text in texts], trees, wanted)
        return self.model.forward(batch, self.cache).logits

    def keep(self, text: int, nodes: Seq[int], tokens: Seq[int] | Ints) -> None:
        """Keep nodes of the tree just forwarded, in path order, and forget the others."""
        known = self._texts[text]
        start = self.cache.length(known.cache)
        known.tokens[start : start + len(nodes)] = tokens
        self.cache.commit(known.cache, nodes, [int(token) for token in tokens])

    def held(self, text: int) -> list[int]:
        """Return the tokens of a text that are cached."""
        return self.cache.tokens(self._texts[text].cache)

    def release(self, text: int) -> None:
        """Forget a text."""
        known = self._texts.pop(text, None)
        if known is not None:
            self.cache.release(known.cache)
