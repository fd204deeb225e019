"""A draft model's cache of the texts, which it follows by comparing tokens, never by counting.

Knows how far each text is cached and what must be forwarded next. Drafters decide what the tokens mean and which noise
draws the guesses. A text longer than the model's context is read from the middle on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import takewhile
from time import perf_counter

from paceline.core.aliases import Floats, Ints
from paceline.core.round import LAG, Budget
from paceline.core.tree import TokenTree
from paceline.draft.model.reduced_head import Head
from paceline.errors import ContextOverflow
from paceline.model.base import Model, packed
from paceline.model.cache import PagedCache
from paceline.model.extend import read_on
from paceline.model.flatten import CHUNK, SLACK, flatten

BEGIN = 32  # tokens that are read in a round with little time before their seconds are known
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Text:
    cache: int
    start: int  # the cache holds the text from here on
    fixed: int = 0  # tokens at the beginning that are the same as when last read


class TextState:
    """Reads texts with `model`, one cache sequence for each name.

    Args:
        context: how much of a text is read.
        slots: how many texts at once.
        outputs: int32 [rows], the tokens worth guessing, most frequent first; `None` for all. Needs a native model.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int,
        slots: int,
        name: str,
        outputs: Ints | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model, self.name, self._clock = model, name, clock
        self.head: Head | None = None
        if outputs is not None:
            whole = packed(model)
            assert whole is not None, model
            self.head = Head(whole, outputs)
            self.model = self.head.model
        self.context = min(context, model.spec.context)
        self.cache: PagedCache = model.new_cache((self.context + SLACK) * slots)
        self.tokens_read = 0  # in all, without those that a step forwards anyway
        self._texts: dict[int, _Text] = {}
        self._found: dict[int, int] = {}  # of texts not read yet: tokens that other texts have cached
        self._is_warned = False
        self._until, self._pace = math.inf, 0.0  # when reading must stop; seconds of a token read

    def allow(self, budgets: Seq[Budget]) -> None:
        """Begin a round: texts are read no longer than its budgets say; what is left is read in the next ones."""
        seconds = min((budget.reading for budget in budgets), default=math.inf)
        self._until = self._clock() + seconds

    def read(self, text: int, tokens: Ints, ahead: int, *, fixed: int | None = None, salt: bytes = b"") -> Ints | None:
        """Bring the cache to a beginning of `tokens`, int32 [n >= 1], and make room for the rest and what comes next.

        Args:
            ahead: how many tokens may follow, at most `room`; of a longer text the latest half a context is read.
            fixed: how many tokens will be the same when the text is read again; `None` for all.
            salt: see `PagedCache.open`.

        Returns:
            The tokens left to be forwarded, from the last one to a chunk; `None` if other texts hold the room or the
            time was too short.
        """
        try:
            known = self._texts.get(text)
            if known is None or self._outgrows(known, tokens, ahead):
                known = self._open(text, tokens, ahead, salt)
            tokens = tokens[known.start :]
            first = min(max(known.fixed - known.start, 0), self.cache.length(known.cache), len(tokens) - 1)
            if self.head is not None:
                self.head.absorb(tokens[first:])
            # The model's last guesses may differ from the tokens committed since.
            both = zip(self.cache.tail(known.cache, first), tokens[first:-1].tolist(), strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
            self.cache.crop(known.cache, first + shared)
            known.fixed = known.start + len(tokens) if fixed is None else fixed
            if not self._read_on(known.cache, tokens):
                return None
            rest = tokens[self.cache.length(known.cache) :]
            self.tokens_read += len(rest) - 1 if len(rest) > LAG else 0
            self.cache.extend(known.cache, len(rest) + ahead - 1)
        except ContextOverflow:
            return None
        return rest

    def _read_on(self, sequence: int, tokens: Ints) -> bool:
        """Read until a chunk is left, or a step's worth in a round with little time; tell whether that is done."""
        if math.isinf(self._until):
            self.tokens_read += read_on(self.model, self.cache, sequence, tokens, left=CHUNK)
            return True
        while len(tokens) - self.cache.length(sequence) > LAG:
            started = self._clock()
            left = self._until - started
            if left <= 0:
                return False
            most = min(max(int(left / self._pace), 1) if self._pace else BEGIN, CHUNK)
            end = min(self.cache.length(sequence) + most, len(tokens) - 1)
            read = read_on(self.model, self.cache, sequence, tokens[: end + 1])
            self.tokens_read += read
            self._pace = (self._clock() - started) / read
        return True

    def room(self, text: int, tokens: Ints) -> int:
        """Return how many guesses may follow `tokens`, int32 [n]: near the context's end what is left, at least one."""
        known = self._texts.get(text)
        start = known.start if known is not None and not self._outgrows(known, tokens, 1) else self._start(tokens, 1)
        return self.context - (len(tokens) - start)

    def lag(self, text: int, tokens: Ints, salt: bytes = b"") -> int:
        """Return how many of `tokens`, int32 [n], `read` would leave or forward; refused guesses hide as many."""
        known = self._texts.get(text)
        if known is not None and not self._outgrows(known, tokens, 1):
            return max(len(tokens) - known.start - self.cache.length(known.cache), 0)
        start = self._start(tokens, 1)
        if text not in self._found:
            self._found[text] = 0 if start else self.cache.find(tokens.tolist(), salt)
        return len(tokens) - start - (0 if start else self._found[text])

    def forward(self, texts: Seq[int], trees: Seq[TokenTree], wanted: Seq[int]) -> Floats:
        """Extend each text by a tree; return the logits of the last `wanted` nodes of each, float32 [W, V].

        They may be the model's own memory, and are -inf where this reader has no output.
        """
        batch = flatten(self.cache, [self._texts[text].cache for text in texts], trees, wanted)
        return self.whole(self.model.forward(batch, self.cache).logits)

    def whole(self, logits: Floats) -> Floats:
        """Return the model's logits as those of all tokens."""
        return logits if self.head is None else self.head.whole(logits)

    def keep(self, text: int, nodes: Seq[int], tokens: Seq[int] | Ints) -> None:
        """Keep nodes of the tree just forwarded, in path order, and forget the others."""
        self.cache.commit(self._texts[text].cache, nodes, [int(token) for token in tokens])

    def handle(self, text: int) -> int:
        """Return the cache's handle of a text, for callers that forward and commit themselves."""
        return self._texts[text].cache

    def held(self, text: int) -> list[int]:
        """Return the tokens of a text that are cached."""
        return self.cache.tokens(self._texts[text].cache)

    def release(self, text: int) -> None:
        """Forget a text."""
        self._found.pop(text, None)
        known = self._texts.pop(text, None)
        if known is not None:
            self.cache.release(known.cache)

    def _outgrows(self, known: _Text, tokens: Ints, ahead: int) -> bool:
        return len(tokens) - known.start + ahead > self.context

    def _start(self, tokens: Ints, ahead: int) -> int:
        """Return where to begin to read a text."""
        return 0 if len(tokens) + ahead <= self.context else max(len(tokens) - self.context // 2, 0)

    def _open(self, text: int, tokens: Ints, ahead: int, salt: bytes) -> _Text:
        """Start over with a text: from its beginning, or from where half this model's context is left to go on."""
        self.release(text)
        start = self._start(tokens, ahead)
        if start and not self._is_warned:
            log.warning(
                "draft model `%s` reads %d tokens only; request %d, %d tokens long, is drafted from its end",
                self.name,
                self.context,
                text,
                len(tokens),
            )
            self._is_warned = True
        known = self._texts[text] = _Text(self.cache.open(tokens[start:].tolist(), salt), start)
        return known
