"""Chooses the sequences of the next round and their rows: by priority, of equals the first come.

Pages of the cache are a pool that all sequences share, and rows of a round are shared too: decoding goes on while
prompts are read beside it. A prompt holds a reply up for a short time only, if that reply had begun before the prompt
came; those that come together are read together, and then replied to together. Knows sequences and the pages each of
them holds, nothing of drafts or models.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque

from paceline.core.round import Load
from paceline.draft.check import MOST_NODES
from paceline.engine.sequence import WAITING, Sequence
from paceline.estimate.numbers import lower_median
from paceline.model.cache import PagedCache, pages_of
from paceline.model.flatten import CHUNK, SLACK

ROWS = CHUNK  # tokens of all texts that one round reads; guesses come on top, at their own price
READING = 4  # one row of so many is kept for prompts, however many sequences decode
PAUSE = 2.0  # usual rounds that reading may add to a round beside replies, where no more texts are read than go on
UNSEEN = 0.010  # seconds that reading may add in any case
BEGIN = 32  # rows that are read beside replies before their time is known
LEARN = 0.5  # weight of the latest round in what a row usually takes
WINDOW = 15  # rounds that a usual one is the median of: some are long, for guesses are many


class Scheduler:
    """Runs at most `slots` sequences over the pages of `cache`, which must hold at least one whole sequence."""

    def __init__(self, cache: PagedCache, slots: int) -> None:
        self.slots = slots
        self._cache = cache
        self._waiting: list[Sequence] = []  # by rank; a preempted sequence is before all that came after it
        self._running: list[Sequence] = []  # by rank
        self._arrived = self._turns = self._round = 0
        self._rounds = deque[float](maxlen=WINDOW)  # seconds of recent rounds that read no prompt
        self._row: float | None = None  # and of a row that is read

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn; it holds nothing until then."""
        self._arrived += 1
        sequence.rank = sequence.rank[0], self._arrived
        insort(self._waiting, sequence, key=_rank)

    def admit(self) -> list[Sequence]:
        """Let waiting sequences run, in order, while there are slots and pages for their texts; return them.

        Where there are none, the first one waiting takes the place of a running one of less priority.
        """
        admitted = []
        while self._waiting:
            if len(self._running) < self.slots and self._opens(self._waiting[0]):
                admitted.append(self._waiting.pop(0))
                admitted[-1].entered = self._round
                insort(self._running, admitted[-1], key=_rank)
            elif self._running and self._running[-1].rank[0] > self._waiting[0].rank[0]:
                self._preempt()
            else:
                break
        return admitted

    def choose(self, free_pages: int, row_budget: int) -> list[tuple[Sequence, int]]:
        """Return the sequences of the next round, by rank, each with the tokens of its text it may read.

        A sequence that has only its last token to read takes one row, and its guesses come on top; longer
        texts share what is left. Where pages run out the last one gives its own back and waits, to be read again
        later, or pauses if it is the one that lacks them; so the first always goes on.

        Args:
            free_pages: how many pages the round may take.
            row_budget: how many rows, at least 2.
        """
        turns = []
        self._round += 1
        for sequence, rows in self._shares(row_budget):
            if sequence.cache == WAITING:  # preempted for one before it
                continue
            needed = self._needed(sequence, rows)
            while needed > free_pages and self._running[-1] is not sequence:
                free_pages += self._preempt()
            if needed <= free_pages:
                free_pages -= needed
                sequence.has_played = True
                turns.append((sequence, rows))
        assert turns or not self._running, (free_pages, row_budget, len(self._running))
        return turns

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and give its pages back."""
        if sequence in self._running:
            self._running.remove(sequence)
            self._close(sequence)
        else:
            self._waiting.remove(sequence)

    def find(self, request: int) -> Sequence | None:
        """Return the sequence of a request that has not ended."""
        return next((s for s in (*self._running, *self._waiting) if s.id == request), None)

    @property
    def running(self) -> list[Sequence]:
        """The sequences that hold pages, by rank."""
        return list(self._running)

    @property
    def sequences(self) -> list[Sequence]:
        """All sequences that have not ended, those that hold pages first."""
        return [*self._running, *self._waiting]

    def load(self) -> Load:
        return Load(len(self._running), len(self._waiting))

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting

    def check(self) -> None:
        """Recount the pages that each sequence holds; raise `AssertionError` with what disagrees."""
        assert len(self._running) <= self.slots, (len(self._running), self.slots)
        assert all(one.cache != WAITING for one in self._running), [one.id for one in self._running]
        assert all(one.cache == WAITING for one in self._waiting), [one.id for one in self._waiting]
        holders = [one.cache for one in self._running]
        assert len(set(holders)) == len(holders), holders
        for line in (self._running, self._waiting):
            assert sorted(line, key=_rank) == line, [one.rank for one in line]
        self._cache.check()

    # ---- rows

    def _shares(self, row_budget: int) -> list[tuple[Sequence, int]]:
        """Return how many rows each running sequence gets, by rank; those that get none are left out."""
        lacking = {one.id: len(one) - self._cache.length(one.cache) for one in self._running}
        reading = [one for one in self._running if lacking[one.id] > 1]
        others = [one for one in self._running if lacking[one.id] == 1]
        most = row_budget - (max(row_budget // READING, 1) if reading else 0)
        if len(others) > most:
            others = sorted(others, key=lambda one: one.turn)[:most]
            for one in others:
                self._turns += 1
                one.turn = self._turns
        rows = dict.fromkeys((one.id for one in others), 1)
        for one in others:
            one.spoke = min(one.spoke, self._round)
        begun = min((one.spoke for one in others), default=math.inf)
        late = [one for one in reading if one.entered >= begun]
        left = row_budget - len(rows)
        beside = self._beside(len(others), len(late)) if late else 0  # rows of those that hold a reply up
        for one in reading:
            rows[one.id] = min(lacking[one.id], left, beside if one in late else left)
            left, beside = left - rows[one.id], beside - rows[one.id] * (one in late)
        return [(one, rows[one.id]) for one in self._running if rows.get(one.id)]

    def patience(self, sequences: int, reading: int) -> float:
        """Return the seconds that draft models may read in a round, where so many of its sequences wait for that."""
        others = sequences - reading
        return max(PAUSE * max(reading / others, 1.0) * self._usual, UNSEEN) if reading and others else math.inf

    def _beside(self, others: int, reading: int) -> int:
        """Return how many rows may be read in a round in which other texts go on, so that these are not held up."""
        if self._row is None:
            return BEGIN
        seconds = self.patience(others + reading, reading)
        return max(int(seconds / max(self._row, 1e-9)), 1)

    @property
    def _usual(self) -> float:
        """Usual seconds of a round that reads no prompt, 0 before there was one."""
        return lower_median(self._rounds) if self._rounds else 0.0

    def saw(self, turns: list[tuple[Sequence, int]], seconds: float) -> None:
        """Learn what a round took, by its forward's seconds."""
        read, others = sum(rows for _, rows in turns if rows > 1), sum(rows == 1 for _, rows in turns)
        if not read:
            self._rounds.append(seconds)
            return
        row = max(seconds - self._usual * (others > 0), seconds / 10) / read
        self._row = row if self._row is None else self._row + LEARN * (row - self._row)

    # ---- pages

    def _needed(self, sequence: Sequence, rows: int) -> int:
        """Return how many more pages a round may take for a sequence; a sequence that still reads gets no guesses."""
        filled = self._cache.length(sequence.cache)
        tree = MOST_NODES if len(sequence) - filled == 1 else 0
        return max(pages_of(filled + rows + tree) - self._cache.pages(sequence.cache), 0)

    def _opens(self, sequence: Sequence) -> bool:
        """Give a sequence the cached pages of its text if the rest of it, and of all running texts, finds room."""
        sequence.cache = self._cache.open(sequence.tokens.tolist(), sequence.cache_salt)
        if sequence.cached is None:
            sequence.cached = self._cache.length(sequence.cache)
        if sum(map(self._lacking, (*self._running, sequence))) <= self._cache.free_pages:
            return True
        self._close(sequence)
        return False

    def _lacking(self, sequence: Sequence) -> int:
        return max(pages_of(len(sequence) + SLACK) - self._cache.pages(sequence.cache), 0)

    def _preempt(self) -> int:
        """Let the last of those that run wait again; return how many pages that frees."""
        before, last = self._cache.free_pages, self._running.pop()
        self._close(last)
        insort(self._waiting, last, key=_rank)
        return self._cache.free_pages - before

    def _close(self, sequence: Sequence) -> None:
        self._cache.release(sequence.cache)
        sequence.cache = WAITING


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
