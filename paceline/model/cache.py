"""Which sequence owns which page of keys and values.

A page holds `PAGE` tokens. A sequence owns a list of pages; pages are counted, so sequences share a common prefix, and
full pages stay findable by their content until their room is needed. Knows slots, never what is stored in them.

Invariant: a sequence's last committed token is not in the cache; its next forward brings it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Ints
from paceline.errors import ContextOverflow
from paceline.kernels.ops import PAGE


class Store(Protocol):
    """The memory behind the pages; `pages` is their number."""

    @property
    def pages(self) -> int: ...

    def copy_tokens(self, source: npt.NDArray[np.int64], to: npt.NDArray[np.int64]) -> None: ...

    def copy_page(self, source: int, to: int) -> None: ...


@dataclass(slots=True)
class _Entry:
    pages: list[int]
    tokens: list[int]  # committed and cached, in order
    keys: list[bytes] = field(default_factory=list)  # content key of each full page
    salt: bytes = b""  # pages are found by sequences of the same salt only


class PagedCache:
    """Pages for many sequences over one `Store`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._free = list(range(store.pages - 1, -1, -1))
        self._count = [0] * store.pages  # sequences holding each page
        self._entries: dict[int, _Entry] = {}
        self._by_key: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # findable pages no sequence holds, oldest first
        self._next = 0

    # ---- sequences

    def open(self, tokens: Seq[int] = (), salt: bytes = b"") -> int:
        """Start a sequence, holding the longest run of full pages already known for a prefix of `tokens`.

        The last of `tokens` is never taken from the cache, for its logits are wanted. `length` tells what was found.
        Pages of sequences with another `salt` are not.
        """
        entry = _Entry([], [], salt=salt)
        for key, page in self._known(tokens, salt):
            self._take(page)
            entry.pages.append(page)
            entry.keys.append(key)
        entry.tokens.extend(int(token) for token in tokens[: len(entry.pages) * PAGE])
        self._entries[self._next] = entry
        self._next += 1
        return self._next - 1

    def find(self, tokens: Seq[int], salt: bytes = b"") -> int:
        """Return how many of `tokens` are known already; see `open`, which would take them."""
        return PAGE * sum(1 for _ in self._known(tokens, salt))

    def length(self, sequence: int) -> int:
        """Return how many committed tokens of the sequence are cached."""
        return len(self._entries[sequence].tokens)

    def tokens(self, sequence: int) -> list[int]:
        """Return the cached tokens."""
        return list(self._entries[sequence].tokens)

    def tail(self, sequence: int, start: int) -> list[int]:
        """Return the cached tokens from position `start` on."""
        return self._entries[sequence].tokens[start:]

    def extend(self, sequence: int, count: int) -> None:
        """Make room for `count` tokens after the committed ones; a page other sequences hold too is copied first.

        Raises:
            ContextOverflow: the store has too few pages left; the sequence keeps what it had.
        """
        entry = self._entries[sequence]
        filled = len(entry.tokens)
        needed = pages_of(filled + count) - len(entry.pages)
        partial = filled // PAGE if filled % PAGE else None
        split = partial is not None and self._count[entry.pages[partial]] > 1
        if needed + split > self.free_pages:
            raise ContextOverflow(
                f"the cache has room for {self.store.pages * PAGE} tokens, {self.held()} are held, "
                f"and a sequence asked for `{count}` more",
                hint="shorten the prompt, run fewer requests at once, or give the cache more room (--context)",
            )
        if split and partial is not None:
            page = self._new_page()
            self.store.copy_page(entry.pages[partial], page)
            self._drop(entry.pages[partial])
            entry.pages[partial] = page
        elif partial is not None:
            self._unindex(entry.pages[partial])  # about to be overwritten: not to be found by what it held
        for _ in range(max(needed, 0)):
            entry.pages.append(self._new_page())

    def commit(self, sequence: int, nodes: Seq[int], tokens: Seq[int]) -> None:
        """Keep the nodes of the tree just forwarded, in path order, and forget the others.

        Args:
            nodes: indices into that tree, ascending; node i lies at slot `length + i`.
            tokens: their token ids.
        """
        entry = self._entries[sequence]
        start = len(entry.tokens)
        assert len(nodes) == len(tokens), (nodes, tokens)
        assert sorted({*nodes}) == [*nodes], nodes
        assert not nodes or start + nodes[-1] < len(entry.pages) * PAGE, (nodes, len(entry.pages))
        moved = [i for i, node in enumerate(nodes) if node != i]
        if moved:
            source = [self._slot(entry, start + nodes[i]) for i in moved]
            to = [self._slot(entry, start + i) for i in moved]
            self.store.copy_tokens(np.array(source, np.int64), np.array(to, np.int64))
        entry.tokens.extend(map(int, tokens))
        self._index_full_pages(entry)
        self._trim(entry)

    def fork(self, sequence: int) -> int:
        """Start a sequence that shares everything another has committed."""
        source = self._entries[sequence]
        for page in source.pages:
            self._take(page)
        self._entries[self._next] = _Entry(list(source.pages), list(source.tokens), list(source.keys), source.salt)
        self._next += 1
        return self._next - 1

    def crop(self, sequence: int, length: int) -> None:
        """Forget all but the first `length` tokens."""
        entry = self._entries[sequence]
        assert 0 <= length <= len(entry.tokens), (length, len(entry.tokens))
        del entry.tokens[length:]
        del entry.keys[length // PAGE :]
        self._trim(entry)

    def release(self, sequence: int) -> None:
        """Give the sequence's pages back; full ones stay findable while their room is not needed."""
        for page in self._entries.pop(sequence).pages:
            self._drop(page)

    # ---- what a batch needs

    def table(self, sequences: Seq[int]) -> Ints:
        """Return int32 [B, P]: the pages of each sequence, padded with 0."""
        rows = [self._entries[sequence].pages for sequence in sequences]
        table = np.zeros((len(rows), max(1, *(len(row) for row in rows)) if rows else 1), np.int32)
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
        return table

    def slots(self, sequence: int) -> list[int]:
        """Return the slot (page * 32 + offset) of every cached token, in order."""
        entry = self._entries[sequence]
        return [self._slot(entry, position) for position in range(len(entry.tokens))]

    @property
    def free_pages(self) -> int:
        """How many pages no sequence holds."""
        return len(self._free) + len(self._idle)

    def pages(self, sequence: int) -> int:
        """Return how many pages a sequence holds."""
        return len(self._entries[sequence].pages)

    def held(self) -> int:
        """Return how many tokens' room is held by sequences."""
        return sum(count > 0 for count in self._count) * PAGE

    def check(self) -> None:
        """Recount everything; raise `AssertionError` with the numbers that disagree."""
        count = [0] * self.store.pages
        for entry in self._entries.values():
            for page in entry.pages:
                count[page] += 1
            assert len(entry.pages) * PAGE >= len(entry.tokens), (len(entry.pages), len(entry.tokens))
            key = entry.salt
            for i, known in enumerate(entry.keys):
                key = _content_key(key, entry.tokens[i * PAGE : (i + 1) * PAGE])
                assert key == known, f"page {i} of a sequence is filed under another content"
        assert count == self._count, [
            (p, a, b) for p, (a, b) in enumerate(zip(count, self._count, strict=True)) if a != b
        ]
        free, idle = set(self._free), set(self._idle)
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & idle, f"pages both free and idle: {free & idle}"
        held = {page for page, holders in enumerate(count) if holders}
        assert not held & (free | idle), f"pages held and free: {held & (free | idle)}"
        assert len(held) + len(free) + len(idle) == self.store.pages, (len(held), len(free), len(idle))
        assert {k: p for p, k in self._key_of.items()} == self._by_key, "the content index disagrees with itself"
        assert idle <= set(self._key_of), "an idle page cannot be found"

    # ---- pages

    def _slot(self, entry: _Entry, position: int) -> int:
        return entry.pages[position // PAGE] * PAGE + position % PAGE

    def _known(self, tokens: Seq[int], salt: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield key and page of the full pages known for a prefix of `tokens`, never with the last one."""
        key = salt
        for end in range(PAGE, len(tokens), PAGE):
            key = _content_key(key, tokens[end - PAGE : end])
            page = self._by_key.get(key)
            if page is None:
                return
            yield key, page

    def _new_page(self) -> int:
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            self._unindex(page)
        self._count[page] = 1
        return page

    def _take(self, page: int) -> None:
        self._idle.pop(page, None)
        self._count[page] += 1

    def _drop(self, page: int) -> None:
        self._count[page] -= 1
        assert self._count[page] >= 0, page
        if self._count[page] == 0:
            if page in self._key_of:
                self._idle[page] = None
            else:
                self._free.append(page)

    def _trim(self, entry: _Entry) -> None:
        """Give back pages past the committed tokens: what a refused branch had filled."""
        keep = pages_of(len(entry.tokens))
        while len(entry.pages) > keep:
            self._drop(entry.pages.pop())

    def _index_full_pages(self, entry: _Entry) -> None:
        while (len(entry.keys) + 1) * PAGE <= len(entry.tokens):
            i = len(entry.keys)
            key = _content_key(entry.keys[-1] if entry.keys else entry.salt, entry.tokens[i * PAGE : (i + 1) * PAGE])
            entry.keys.append(key)
            page = entry.pages[i]
            if key not in self._by_key and page not in self._key_of:
                self._by_key[key] = page
                self._key_of[page] = key

    def _unindex(self, page: int) -> None:
        key = self._key_of.pop(page, None)
        if key is not None:
            del self._by_key[key]


def pages_of(tokens: int) -> int:
    """Return how many pages so many tokens take."""
    return -(-tokens // PAGE)


def _content_key(before: bytes, tokens: Seq[int]) -> bytes:
    return hashlib.blake2b(before + np.asarray(tokens, np.int32).tobytes(), digest_size=16).digest()
