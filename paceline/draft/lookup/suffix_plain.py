"""`native/suffix.cpp` in plain Python, by searching everywhere: the readable copy, and the reference of its tests."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

import numpy as np

from paceline.core.aliases import Floats, Ints, Probabilities

CONTEXT, FAN, LEVELS = 32, 8, 3  # longest context; successors looked at; contexts tried at every node
LENGTHS, PERCENTS = (2, 3, 4, 5, 7, 10, 16), (10, 25, 50, 75, 95)
SHARES = len(PERCENTS) + 2
KINDS = 2 * (len(LENGTHS) + 1) * SHARES


class PlainAutomaton:
    """A text and, for any context of at most `CONTEXT` tokens, what followed it. -1 separates texts."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int] | Ints) -> None:
        self.tokens += [int(token) for token in tokens]

    def follow(self, tokens: Sequence[int] | Ints) -> None:
        """Take a text for this one's continuation, or for another."""
        self.tokens = [int(token) for token in tokens]

    def ends(self, context: Sequence[int]) -> list[int]:
        """Return the positions behind each occurrence, ascending."""
        n = len(context)
        return [end for end in range(n, len(self.tokens) + 1) if self.tokens[end - n : end] == list(context)]

    def count(self, tokens: Sequence[int] | Ints) -> int:
        return len(self.ends([int(token) for token in tokens]))

    def successors(self, context: Sequence[int]) -> list[tuple[int, int]]:
        """Return (token, how often it followed): those first seen latest, and behind them the most frequent one."""
        after = [self.tokens[end] for end in self.ends(context) if end < len(self.tokens)]
        counts, latest = Counter(after), {token: place for place, token in enumerate(after)}
        newest = list(dict.fromkeys(after))[::-1][:FAN]
        heavy = max(counts, key=lambda token: (counts[token], latest[token]))
        return [(token, counts[token]) for token in (newest if heavy in newest else [*newest, heavy])]

    def levels(self, text: Sequence[int]) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return (context length, successors) of the longest suffixes of a text that were followed by something."""
        found: list[tuple[int, list[tuple[int, int]]]] = []
        known = 0
        for n in range(min(len(text), CONTEXT), 0, -1):
            ends = self.ends(text[len(text) - n :])
            if len(ends) > known and len(found) < LEVELS:
                known = len(ends)
                if ends[0] < len(self.tokens):
                    found.append((n, self.successors(text[len(text) - n :])))
        return found

    def grow(
        self, shared: Sequence[PlainAutomaton], rates: Probabilities, *, nodes: int, depth: int, chain: bool
    ) -> tuple[Ints, Floats]:
        """Return the likeliest continuations, best first.

        Args:
            shared: other texts to look into.
            rates: float64 [KINDS], how often a candidate of each kind is right.

        Returns:
            int32 [3, n], token, parent and kind, and float32 [2, n], rate and value; the root comes first.
        """
        books = [self, *shared]
        tree: list[tuple[int, int, int, float, float]] = [(self.tokens[-1] if self.tokens else -1, -1, -1, 1.0, 1.0)]
        paths: list[list[int]] = [[]]
        heap: list[tuple[float, int, int, int, int, float]] = []
        order = 0
        while True:
            index = len(tree) - 1
            candidates: dict[int, tuple[float, int]] = {}
            for b, book in enumerate(books):
                if len(paths[index]) < depth:
                    for n, successors in book.levels(self.tokens[-CONTEXT:] + paths[index]):
                        total = sum(count for _, count in _all(book, self.tokens[-CONTEXT:] + paths[index], n))
                        for token, count in successors:
                            kind = kind_of(n, count, total, is_shared=b > 0)
                            if token >= 0 and rates[kind] > candidates.get(token, (-1.0, 0))[0]:
                                candidates[token] = (float(rates[kind]), kind)
            for token, (rate, kind) in candidates.items():
                heapq.heappush(heap, (-tree[index][4] * rate, order, index, token, kind, rate))
                order += 1
            if not heap or len(tree) > nodes:
                break
            value, _, parent, token, kind, rate = heapq.heappop(heap)
            tree.append((token, parent, kind, rate, -value))
            paths.append([*paths[parent], token])
            if chain:
                heap = []
        columns = list(zip(*tree, strict=True))
        return np.array(columns[:3], np.int32), np.array(columns[3:], np.float32)


def kind_of(length: int, count: int, total: int, *, is_shared: bool) -> int:
    """Return the bucket of a candidate that followed `count` of a context's `total` occurrences."""
    of_length = sum(length >= bound for bound in LENGTHS)
    of_share = 0 if total == 1 else 1 + sum(100 * count >= percent * total for percent in PERCENTS)
    return (is_shared * (len(LENGTHS) + 1) + of_length) * SHARES + of_share


def _all(book: PlainAutomaton, text: Sequence[int], n: int) -> list[tuple[int, int]]:
    after = Counter(book.tokens[end] for end in book.ends(text[len(text) - n :]) if end < len(book.tokens))
    return list(after.items())
