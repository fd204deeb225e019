"""Guesses from a model of any vocabulary, by way of text (SLEM, Timor et al. 2502.05202).

The draft model reads and continues the text in its own tokens; its output is cut into the target's tokens.
These are functions of the text alone, so any verifier takes them; committed ids are never cut anew. The last token of a
guess is left out where more text might have changed it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from time import perf_counter

import numpy as np

from paceline.core.aliases import Ints
from paceline.core.request import View
from paceline.core.round import Budget, Spent, spent_on
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, Loaded, named
from paceline.draft.lengths import DepthRecord
from paceline.draft.model.state import TextState
from paceline.draft.vocab.token_map import Speller, roles
from paceline.errors import PacelineError
from paceline.sample.distribution import check_logits
from paceline.text.tokenizer import Tokenizer

SEGMENT, LONGEST = 48, 768  # bytes: of the text that is cut together, and where a word that never ends is broken
SPARE = 4  # draft tokens beyond twice the guesses wanted, before a round gives up

log = logging.getLogger(__name__)


class Retokenised:
    """One text of the target's in another tokenizer's ids.

    It is cut into segments of whole words, each encoded by itself, so that only the last one changes as the text
    grows. Where the cuts fall depends on the text alone, not on how it came.
    """

    def __init__(self, target: Tokenizer, draft: Tokenizer) -> None:
        self._target, self._draft = target, draft
        self.seen: Ints = np.empty(0, np.int32)
        self._fixed: list[int] = []
        self._tail = b""
        self._is_first = True

    def follow(self, tokens: Ints) -> None:
        """Follow a text that continues the one seen before; start anew for any other."""
        if not np.array_equal(self.seen, tokens[: len(self.seen)]):
            self.__init__(self._target, self._draft)  # type: ignore[misc]
        bos = self._target.bos_id
        new = tokens[len(self.seen) :].tolist()
        self._tail += b"".join(
            self._target.token_bytes(token) for token in new if token != bos and token < self._target.vocab_size
        )
        self.seen = tokens.copy()
        while cut := _cut(self._tail):
            self._fixed += self._encode(self._tail[:cut])
            self._tail, self._is_first = self._tail[cut:], False

    def ids(self) -> Ints:
        """Return int32 [n]: the text, without the bytes of a character that is not complete."""
        whole = len(self._tail) - len(self.partial)
        return np.array([*self._fixed, *self._encode(self._tail[:whole])], np.int32)

    @property
    def fixed(self) -> int:
        """How many of the ids stay as they are however the text goes on."""
        return len(self._fixed)

    @property
    def partial(self) -> bytes:
        """The bytes at the end that begin a character."""
        for count in range(1, min(4, len(self._tail)) + 1):
            byte = self._tail[-count]
            if byte >= 0xC0:
                size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                return self._tail[-count:] if count < size else b""
            if byte < 0x80:
                break
        return b""

    def _encode(self, segment: bytes) -> list[int]:
        text = segment.decode(errors="replace")
        if self._is_first:
            return self._draft.encode(text, parse_special=True)
        if self._draft.add_space_prefix:  # it puts the space back
            text = text.removeprefix(" ")
        return self._draft.encode(text, parse_special=True, add_bos=False)


def _cut(tail: bytes) -> int:
    """Return where the first segment of a text ends: before the space of a word; 0 if it may not have ended yet."""
    at = tail.find(b" ", SEGMENT)
    while 0 < at < LONGEST and tail[at - 1 : at].isspace():
        at = tail.find(b" ", at + 1)
    if 0 < at < LONGEST:
        return at
    if len(tail) < LONGEST:
        return 0
    return next(i for i in range(SEGMENT, LONGEST) if tail[i] & 0xC0 != 0x80 or i == LONGEST - 1)


class RetokenisingDrafter(Drafter):
    """Drafts chains through text; `draft` may have any tokenizer."""

    def __init__(self, target: Loaded, draft: Loaded, *, slots: int, name: str, outputs: Ints | None = None) -> None:
        self.name = name
        self.sources: tuple[str, ...] = (name,)
        self.spent: dict[str, Spent] = {}
        self.reader = TextState(draft.model, context=draft.context, slots=slots, name=draft.name, outputs=outputs)
        self._target, self._draft = target.tokenizer, draft.tokenizer
        self._speller = Speller(target.tokenizer)
        self._controls = {theirs: ours for ours, theirs in roles(target.tokenizer, draft.tokenizer)}
        self._texts: dict[int, Retokenised] = {}
        self._record = DepthRecord()
        self.experience = named(name, self._record.experience)

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Let the draft model write on greedily until its text makes enough tokens of the target's."""
        started, before, steps = perf_counter(), self.reader.tokens_read, 0
        self.reader.allow(budgets)
        lengths = [self._record.length(budget, self.name) for budget in budgets]
        most = [self._most(view, length) for view, length in zip(views, lengths, strict=True)]
        pending = {i: ids for i, view in enumerate(views) if most[i] and len(ids := self._read(view, most[i]))}
        written: dict[int, list[int]] = {i: [] for i in pending}
        guesses: dict[int, list[int]] = {i: [] for i in pending}
        while pending:
            names, feeds = [views[i].id for i in pending], list(pending.values())
            logits = self.reader.forward(names, [TokenTree.chain(feed) for feed in feeds], [1] * len(feeds))
            steps += 1
            for name, feed in zip(names, feeds, strict=True):
                self.reader.keep(name, range(len(feed)), feed)
            for row, i in enumerate(list(pending)):
                try:
                    check_logits(logits[row])
                    token = int(logits[row].argmax())
                    written[i].append(token)
                    guesses[i], is_end = self._cut(views[i], written[i])
                except PacelineError:  # a broken draft guesses nothing; the target goes on alone
                    del pending[i]
                    continue
                if is_end or len(guesses[i]) >= lengths[i] or len(written[i]) >= most[i]:
                    del pending[i]
                else:
                    pending[i] = np.array([token], np.int32)
        self.spent = spent_on(self.name, steps, perf_counter() - started, self.reader.tokens_read - before)
        return self._record.drafts(views, {i: found[: lengths[i]] for i, found in guesses.items()})

    def check(self) -> None:
        """See `Drafter.check`."""
        self.reader.cache.check()

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        texts = [(view, self._ids(view)) for view in views]
        return {self.name: [self.reader.lag(v.id, ids, v.cache_salt) if len(ids) else 0 for v, ids in texts]}

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by depth."""
        self._record.observe(draft, verified)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._texts.pop(sequence_id, None)
        self.reader.release(sequence_id)

    def _most(self, view: View, length: int) -> int:
        """Return the most draft tokens to write for `length` guesses."""
        return min(2 * length + SPARE, self.reader.room(view.id, self._ids(view))) if length else 0

    def _read(self, view: View, most: int) -> Ints:
        """Bring the draft's cache to the text; return the tokens to forward first, none if there is no room."""
        ids, fixed = self._ids(view), self._texts[view.id].fixed
        if not len(ids):
            return ids
        rest = self.reader.read(view.id, ids, most, fixed=fixed, salt=view.cache_salt)
        return ids[:0] if rest is None else rest

    def _ids(self, view: View) -> Ints:
        """Return a text in the draft's ids; nothing if a tokenizer fails on it, which costs only guesses."""
        text = self._texts.setdefault(view.id, Retokenised(self._target, self._draft))
        try:
            text.follow(view.tokens)
            return text.ids()
        except PacelineError as error:
            log.debug("draft `%s` does not read request %d: %s", self.name, view.id, error)
            return view.tokens[:0]

    def _cut(self, view: View, written: list[int]) -> tuple[list[int], bool]:
        """Return `written` in the target's tokens, and whether a control token ended it."""
        is_end = self._draft.is_special(written[-1])
        words = written[:-1] if is_end else written
        text = b"".join(self._draft.token_bytes(token) for token in words)
        partial = self._texts[view.id].partial
        if not text.startswith(partial[: len(text)]):
            return [], True
        ids = self._tokens(text[len(partial) :])
        if not is_end:
            return ids[:-1], False
        return ids + ([self._controls[written[-1]]] if written[-1] in self._controls else []), True

    def _tokens(self, text: bytes) -> list[int]:
        """Return the target's ids of a continuation, which may begin inside a character or word."""
        start = next((i for i, byte in enumerate(text) if byte & 0xC0 != 0x80), len(text))
        if self._target.add_space_prefix and text[start : start + 1] != b" ":
            start = text.find(b" ") if b" " in text else len(text)
        rest = text[start:].decode(errors="ignore")
        if self._target.add_space_prefix:
            rest = rest.removeprefix(" ")
        return [*self._speller.spell(text[:start]), *(self._target.encode(rest, add_bos=False) if rest else [])]
