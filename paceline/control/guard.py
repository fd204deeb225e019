"""Never slower: a purse of plain rounds that drafting draws on, filled and emptied by real seconds alone.

A drafting round of B sequences that commits n tokens does what n / B plain rounds do. What it takes beyond their real
seconds is drawn from the purse, what it takes less is put back, and a small share of all time is put in besides. With
an empty purse nothing is drafted. No prediction decides what a round lost, so a wrong table is paid for from the purse.

Not charged: what a draft model takes to read a text, which `debts` weighs by predictions, and what one round loses
beyond `DISTURBED` or its rows beyond `STEEP`, which is taken for a stall. Later rounds may lose what earlier ones
put in.

What a plain round takes is measured on this machine in the last while: plain rounds are played in between where there
are none, and before the purse counts as empty.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from paceline.control.pending import Pending
from paceline.estimate.numbers import lower_median

START = 3.0  # plain rounds in the purse at first: what learning a text may cost; a third of it starves dear drafters
CAUTIOUS = 2.0  # the same where the calibration is doubtful
MOST = 6.0  # plain rounds in it at most; with 3 a draft that gains a fifth is stopped by bad luck every few replies
WIDE = 2.0  # drafting rounds that there may be besides: long ones win and lose more at once
SHARE = 0.01  # of all time that is put in: what never being slower costs for good where nothing can be gained
DISTURBED = 4.0  # plain rounds that one round may lose, or all may owe: a stall of the machine says nothing of drafting
STEEP = 1.5  # plain rounds that each of a forward's rows may cost at most: what takes longer is a stall
LONGEST = 8.0  # plain rounds that a drafting round is taken for at most
KEPT = 3  # plain rounds that the reference is the median of
AGE = 160  # rounds after which it is measured again; at a gain of 2 that costs half a per cent
MOVED = 1.4  # times what was expected: a machine that has changed, or a table that is wrong
SOON = 16  # rounds that a reference holds whatever forwards take
PROOF = 2  # plain rounds in a row from which on they are a reference: one may be a stall, or behind a draft


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A round that drafted: how many sequences, how many plain rounds it stands for, and its real seconds.

    Of the forward, which had so many `rows`, and `beside` it.
    """

    sequences: int
    rounds: float
    rows: int
    forward: float
    beside: float
    plain: float  # seconds of a plain round, as they were known then

    def took(self, plain: float) -> float:
        """Return how many plain rounds of so many seconds it took."""
        return min(self.forward / plain, STEEP * self.rows / self.sequences) + self.beside / plain


class Guard:
    """Keeps the purse, in plain rounds, with so many of them in it at first."""

    def __init__(self, start: float = START) -> None:
        self._plain: dict[int, deque[float]] = {}  # seconds of plain rounds behind plain ones, by sequences
        self._silent: dict[int, deque[float]] = {}  # and of forwards of rounds in which drafters had no guess
        self._count = 0
        self._measured: dict[int, int] = {}  # the round after which they were, by sequences
        self._settled = start  # the purse without the rounds since, which the next reference settles
        self._since: list[_Drafted] = []
        self.purse = start  # plain rounds that may still be lost, by the reference there is
        self.in_a_row = PROOF  # plain rounds
        self._due = set[int]()  # sequences whose reference is to be measured again soon
        self._off = 0  # forwards in a row that took another time than expected
        self._length = 1.0  # plain rounds that a drafting round takes of late
        self.speed = 1.0  # of the rounds settled last, against plain

    def plain_seconds(self, sequences: int) -> float | None:
        """Return the real seconds of a plain round of so many sequences; `None` before one was seen."""
        plain, silent = self._plain.get(sequences), self._silent.get(sequences)
        if not plain:
            return None
        # Behind a round that drafted a forward takes longer, so that silent ones tell of a faster machine only.
        return min(lower_median(plain), lower_median(silent)) if silent else lower_median(plain)

    @property
    def is_closed(self) -> bool:
        """Whether drafting has lost what it may lose."""
        return not self._since and self.purse <= 0

    def allows(self, sequences: int) -> bool:
        """Whether the next round may draft; else it must be plain."""
        is_known = self._count - self._measured.get(sequences, -AGE) < (SOON if sequences in self._due else AGE)
        return is_known and self._count >= PROOF and self.purse > 0

    def add(self, step: Pending, rows: int, *, drafted: bool) -> None:
        """Enter a round of a forward of so many rows; `drafted` if a drafter was asked in it."""
        sequences, tokens = step.sequences, step.tokens
        drafting, forward, other = step.seconds
        beside, is_plain = drafting + other, rows == sequences
        self._count += 1
        if drafted:
            self.in_a_row = 0
            if is_plain:
                self._silent.setdefault(sequences, deque(maxlen=KEPT)).append(forward)
            plain = self.plain_seconds(sequences) or forward + beside
            round = _Drafted(sequences, tokens / sequences, rows, forward, beside, plain)
            self._since.append(round)
            self._length += (min(round.took(plain), LONGEST) - self._length) / 8
            self.purse = self._after(self.purse, round, plain)
        else:
            self.in_a_row += 1
            if self.in_a_row >= PROOF or sequences not in self._plain:
                self._plain.setdefault(sequences, deque(maxlen=KEPT)).append(forward + beside)
            if self.in_a_row >= PROOF:
                self._measured[sequences] = self._count
                self._due.discard(sequences)
                self._silent.clear()
        if self.in_a_row >= PROOF:
            self._settle()
        if not drafted:
            self._settled = self._filled(self._settled, SHARE)
            self.purse = self._filled(self.purse, SHARE)

    def see(self, sequences: int, forward: float, expected: float) -> None:
        """Note what a forward was expected to take: if several were off alike, the reference is due to be measured."""
        self._off = self._off + 1 if not 1 / MOVED < forward / expected < MOVED else 0
        if self._off >= KEPT:
            self._due.add(sequences)

    def spend(self, sequences: int, seconds: float) -> None:
        """Draw what something beside the rounds took."""
        plain = self.plain_seconds(sequences)
        if plain:
            lost = min(seconds / plain, DISTURBED)
            self._settled, self.purse = self._settled - lost, self.purse - lost

    def _settle(self) -> None:
        """Draw up the rounds since the last reference, by the mean of that one and the one now."""
        if not self._since:
            return
        plain = real = 0.0
        for round in self._since:
            now = self.plain_seconds(round.sequences) or round.plain
            reference = (now + round.plain) / 2
            self._settled = self._after(self._settled, round, reference)
            plain, real = plain + round.rounds, real + round.took(reference)
        self.speed = plain / real if real else 1.0
        self.purse = self._settled = max(self._settled, -DISTURBED)
        self._since.clear()

    def _after(self, purse: float, round: _Drafted, plain: float) -> float:
        """Return what is in the purse after a round, with plain ones of so many seconds."""
        took = round.took(plain)
        return self._filled(purse, max(round.rounds - took, -DISTURBED) + SHARE * min(took, DISTURBED))

    def _filled(self, purse: float, rounds: float) -> float:
        """Return what is in a purse that so many rounds are put into, or drawn from."""
        return min(purse + rounds, max(purse, MOST + WIDE * self._length))
