"""Cut text into the tokens of a SentencePiece BPE vocabulary, the way llama.cpp does.

There is no list of merges: two neighbours merge when their text is a token, the highest score first and the leftmost of
equals. Characters without a token become byte tokens. Knows nothing of control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

SPACE = "▁"
_CACHED_WORDS = 65_536


class SentencePieceEncoder:
    """Encode text with scored tokens; remembers the words it has met."""

    def __init__(
        self, ids: Mapping[str, int], scores: Sequence[float], *, byte_ids: Sequence[int | None], unknown: int | None
    ) -> None:
        self._ids = ids
        self._scores = scores
        self._byte_ids = byte_ids
        self._unknown = unknown
        # A text may be cut before a space when no token continues over it: merging then never crosses the cut.
        joined = {text[i - 1] for text in ids if SPACE in text[1:] for i in range(1, len(text)) if text[i] == SPACE}
        glue = "".join(re.escape(c) for c in sorted(joined | {SPACE}))
        self._word = re.compile(f"(?<=[^{glue}])(?={SPACE})")
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, whose spaces are written as they come."""
        ids: list[int] = []
        for word in self._word.split(text.replace(" ", SPACE)):
            known = self._cache.get(word)
            if known is None:
                known = self._merge(word)
                if len(self._cache) >= _CACHED_WORDS:
                    self._cache.clear()
                if len(word) <= 64:
                    self._cache[word] = known
            ids += known
        return ids

    def _merge(self, word: str) -> list[int]:
        count = len(word)
        ends = list(range(1, count + 1))  # ends[i]: where the symbol that starts at i ends; 0 once it is merged away
        before = list(range(-1, count - 1))
        ids, scores = self._ids, self._scores
        queue: list[tuple[float, int, int, int]] = []  # (-score, left, middle, end)

        for left in range(count - 1):
            token = ids.get(word[left : left + 2])
            if token is not None:
                queue.append((-scores[token], left, left + 1, left + 2))
        heapify(queue)
        while queue:
            _, left, middle, end = heappop(queue)
            if ends[left] != middle or ends[middle] != end:
                continue  # one of the two has grown or gone since
            ends[left], ends[middle] = end, 0
            if end < count:
                before[end] = left
                token = ids.get(word[left : ends[end]])
                if token is not None:
                    heappush(queue, (-scores[token], left, end, ends[end]))
            if left > 0:
                previous = before[left]
                token = ids.get(word[previous:end])
                if token is not None:
                    heappush(queue, (-scores[token], previous, left, end))
        found: list[int] = []
        start = 0
        while start < count:
            end = ends[start]
            token = ids.get(word[start:end])
            if token is None:
                found += self._bytes(word[start:end])
            else:
                found.append(token)
            start = end
        return found

    def _bytes(self, text: str) -> list[int]:
        found = [self._byte_ids[byte] for byte in text.encode()]
        return [i for i in (self._unknown if i is None else i for i in found) if i is not None]
