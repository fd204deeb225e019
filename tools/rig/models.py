"""Two models made of a recording: they say what was recorded and let a virtual clock pass; all else is the product's.

Both read their texts back through the cache, as a model does, and fail where they are asked about a text that was not
recorded. After a token that the target refused its row is the latest that it had for that token, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.core.batch import Batch, Forward
from paceline.formats.spec import ModelSpec
from paceline.kernels.ops import PAGE
from paceline.model.base import Capabilities
from paceline.model.cache import PagedCache
from rig.machines import Clock
from rig.recording import DEEP, LIKELY, SURE, Array, Recording, Text

CONTEXT = 8192


class Memory:
    """The token of each slot."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.tokens = np.full(pages * PAGE, -1, np.int32)

    def copy_tokens(self, source: np.ndarray[Any, Any], to: np.ndarray[Any, Any]) -> None:
        self.tokens[to] = self.tokens[source]

    def copy_page(self, source: int, to: int) -> None:
        self.tokens[PAGE * to : PAGE * (to + 1)] = self.tokens[PAGE * source : PAGE * (source + 1)]


class _Recorded:
    """Reads texts one at a time; `text` is the one being replied to."""

    kind = ""
    capabilities = Capabilities(row_independent=True, trees=True)
    page_bytes = 4 * PAGE

    def __init__(self, recording: Recording, clock: Clock) -> None:
        vocab = len(recording.vocabulary)
        self.spec = ModelSpec("recorded", 1, 1, 1, 1, 1, 1, vocab, CONTEXT, 1e-6, "silu", False, (0,), (-1,), (), 1.0)
        self.text: Text | None = None
        self._whole = np.zeros(0, np.int32)  # the text's prompt and reply
        self._clock = clock

    def tell(self, text: Text) -> None:
        """Reply to this prompt from now on."""
        self.text, self._whole = text, text.tokens

    def new_cache(self, tokens: int) -> PagedCache:
        return PagedCache(Memory(-(-tokens // PAGE)))

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        """See `Model.forward`; of one sequence."""
        assert len(batch.lengths) == 1, "a recorded model reads one text at a time"
        assert not taps, taps
        store = cache.store
        assert isinstance(store, Memory), store
        length, rows = int(batch.lengths[0]), len(batch.tokens)
        places = np.arange(length + rows)
        slots = batch.tables[0][places // PAGE] * PAGE + places % PAGE
        store.tokens[slots[length:]] = batch.tokens
        self._clock.forward(self.kind, rows)
        return Forward(self._logits(store.tokens[slots[:length]], batch))

    def _logits(self, known: Array, batch: Batch) -> Array:
        raise NotImplementedError


class RecordedTarget(_Recorded):
    """Finds likely what the target did at each place of its reply."""

    kind = "target"

    def __init__(self, recording: Recording, clock: Clock) -> None:
        super().__init__(recording, clock)
        self._latest: dict[int, Array] = {}  # what was likely after a token
        self._rows = np.full((128, self.spec.vocab), -np.inf, np.float32)
        self._set: list[tuple[int, Array]] = []
        self._values = np.arange(LIKELY, 0, -1, dtype=np.float32)

    def _logits(self, known: Array, batch: Batch) -> Array:
        assert self.text is not None
        length, whole, start = len(known), self._whole, len(self.text.prompt)
        assert np.array_equal(known, whole[:length]), f"{self.text.name}: another text is cached"
        for row, likely in self._set:
            self._rows[row, likely] = -np.inf
        self._set.clear()
        tokens, parents, positions = batch.tokens.tolist(), batch.parents.tolist(), batch.positions.tolist()
        wanted = {row: i for i, row in enumerate(batch.wanted.tolist())}
        right = list[bool]()
        for node, (token, parent, position) in enumerate(zip(tokens, parents, positions, strict=True)):
            is_right = (parent < 0 or right[parent]) and position < len(whole) and token == whole[position]
            right.append(bool(is_right))
            if node not in wanted:
                continue
            if is_right:
                self._latest[token] = self.text.likely[position + 1 - start]
            if token in self._latest:
                likely = self._latest[token][self._latest[token] >= 0]
                self._rows[wanted[node], likely] = self._values[: len(likely)]
                self._set.append((wanted[node], likely))
        return self._rows[: len(wanted)]


class RecordedDraft(_Recorded):
    """Is as sure of the same guesses as the draft was, along a reply and along its own chains."""

    kind = "draft"

    def __init__(self, recording: Recording, clock: Clock) -> None:
        super().__init__(recording, clock)
        self._row = np.zeros((1, self.spec.vocab), np.float32)

    def _logits(self, known: Array, batch: Batch) -> Array:
        if not len(batch.wanted):
            return self._row[:0]
        assert batch.wanted.tolist() == [len(batch.tokens) - 1], "a draft is asked after its last token"
        assert self.text is not None
        seen, start = np.concatenate([known, batch.tokens]), len(self.text.prompt)
        shared = min(len(seen), len(self._whole))
        differs = np.flatnonzero(seen[:shared] != self._whole[:shared])
        end = int(differs[0]) if len(differs) else shared
        place, depth = end - start, len(seen) - end
        chain = self.text.guesses[place]
        assert place >= 0, (self.text.name, place)
        assert depth < DEEP, (self.text.name, place, depth)
        assert np.array_equal(seen[end:], chain[:depth]), f"{self.text.name}: not a chain of place {place}"
        self._say(int(chain[depth]), self.text.sure[place, depth] / SURE, self.text.beside[place, depth])
        return self._row

    def _say(self, token: int, sure: float, beside: Array) -> None:
        """Make the row in which the guess has this share and its runners-up follow; the others share the rest."""
        others, vocab = beside[beside >= 0].tolist(), self.spec.vocab
        left, share, shares = max(1 - sure, 1e-6), sure, list[float]()
        for _ in others:
            share = min(0.99 * share, left / 2)
            shares.append(share)
            left -= share
        self._row[:] = np.log(min(left / max(vocab - 1 - len(others), 1), 0.99 * share))
        self._row[0, token] = np.log(sure)
        for other, share in zip(others, shares, strict=True):
            self._row[0, other] = np.log(share)
