"""Never slower: a purse of plain rounds that drafting draws on, filled and emptied by real seconds.

A drafting round of B sequences that commits n tokens stands for n / B plain rounds. Seconds beyond theirs are drawn
from the purse, seconds saved are put back, and a small share of all time is put in besides. With an empty purse nothing
is drafted. No prediction enters where a round's real seconds can be told, so the purse bounds the cost of a wrong
table. A round that also reads a prompt is the one exception: it is charged what the table says of its guesses.

Not charged: a draft model's reading of a text, which `draft_prefill` weighs by predictions, and losses of one round
beyond `DISTURBED` or `STEEP`, which count as a stall. Later rounds may lose what earlier ones put in.

The seconds of a plain round are a recent measurement on this machine: plain rounds are played in between where there
are none, and before the purse counts as empty.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from paceline.control.pending import Pending
from paceline.estimate.numbers import lower_median

START = 3.0  # plain rounds in the purse at first: the cost of learning a text; a third of it starves dear drafters
CAUTIOUS = 2.0  # the same where the calibration is doubtful
MOST = 6.0  # plain rounds in it at most; with 3 a draft that gains a fifth is stopped by bad luck every few replies
WIDE = 2.0  # drafting rounds by which the limit may exceed that: long rounds win and lose more at once
SHARE = 0.01  # of all time that is put in: the lasting cost where drafting gains nothing
DISTURBED = 4.0  # plain rounds that one round may lose, or all may owe: a larger loss is a stall of the machine
STEEP = 1.5  # plain rounds that each of a forward's rows may cost at most: a longer time is a stall
LONGEST = 8.0  # plain rounds that a drafting round counts as at most
KEPT = 3  # plain rounds that the reference is the median of
AGE = 160  # rounds after which it is measured again; at a gain of 2 that costs half a per cent
MOVED = 1.4  # times the expected seconds: beyond it the machine has changed, or the table is wrong
SOON = 16  # rounds that a reference holds whatever forwards take
PROOF = 2  # plain rounds in a row that make a reference: a single one may be a stall, or follow a draft


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A round that drafted: its sequences, the plain rounds it stands for, and its real seconds.

    `forward`: seconds of the forward, of `rows` rows; `beside`: all other seconds.
    """

    sequences: int
    rounds: float
    rows: int
    forward: float
    beside: float
    plain: float  # seconds of a plain round, as known then

    def took(self, plain: float) -> float:
        """Return its length in plain rounds of `plain` seconds."""
        return min(self.forward / plain, STEEP * self.rows / self.sequences) + self.beside / plain


class Guard:
    """Keeps the purse, in plain rounds; it holds `start` at first."""

    def __init__(self, start: float = START) -> None:
        self._plain: dict[int, deque[float]] = {}  # seconds of plain rounds behind plain ones, by sequences
        self._silent: dict[int, deque[float]] = {}  # and of forwards of rounds in which drafters had no guess
        self._count = 0
        self._measured: dict[int, int] = {}  # the round of the latest reference, by sequences
        self._settled = start  # the purse before the rounds that the next reference settles
        self._since: list[_Drafted] = []
        self.purse = start  # plain rounds that may still be lost, by the current reference
        self.in_a_row = PROOF  # plain rounds
        self._due = set[int]()  # sequences whose reference is to be measured again soon
        self._off = 0  # forwards in a row off their expected time
        self._length = 1.0  # recent length of a drafting round, in plain rounds
        self.speed = 1.0  # of the rounds settled last, against plain

    def plain_seconds(self, sequences: int) -> float | None:
        """Return the real seconds of a plain round of so many sequences; `None` before one was seen."""
        plain, silent = self._plain.get(sequences), self._silent.get(sequences)
        if not plain:
            return None
        # A forward takes longer after a drafting round, so silent rounds can only lower the reference.
        return min(lower_median(plain), lower_median(silent)) if silent else lower_median(plain)

    @property
    def is_closed(self) -> bool:
        """Whether the purse is empty, with all rounds settled."""
        return not self._since and self.purse <= 0

    def allows(self, sequences: int) -> bool:
        """Whether the next round may draft; else it must be plain."""
        is_known = self._count - self._measured.get(sequences, -AGE) < (SOON if sequences in self._due else AGE)
        return is_known and self._count >= PROOF and self.purse > 0

    def add(self, step: Pending, rows: int, *, drafted: bool) -> None:
        """Add a round with a forward of `rows` rows; `drafted` if a drafter was asked in it."""
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
        """Compare a forward with its expected seconds: several misses in a row make the reference due."""
        self._off = self._off + 1 if not 1 / MOVED < forward / expected < MOVED else 0
        if self._off >= KEPT:
            self._due.add(sequences)

    def spend(self, sequences: int, seconds: float) -> None:
        """Draw seconds spent beside the rounds."""
        self.add_beside(sequences, 0.0, seconds)

    def add_beside(self, sequences: int, rounds: float, seconds: float) -> None:
        """Add what no round's real seconds tell: work beside the rounds, or guesses beside a prompt that is read.

        Args:
            rounds: plain rounds that it stands for beyond the one that was played.
            seconds: what it took.
        """
        plain = self.plain_seconds(sequences)
        if plain:
            change = max(rounds - seconds / plain, -DISTURBED)
            self._settled, self.purse = self._filled(self._settled, change), self._filled(self.purse, change)

    def _settle(self) -> None:
        """Settle the rounds since the last reference, by the mean of that reference and the current one."""
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
        """Return the purse after a round, with plain rounds of `plain` seconds."""
        took = round.took(plain)
        return self._filled(purse, max(round.rounds - took, -DISTURBED) + SHARE * min(took, DISTURBED))

    def _filled(self, purse: float, rounds: float) -> float:
        """Return the purse after `rounds` are put in, or drawn if negative."""
        return min(purse + rounds, max(purse, MOST + WIDE * self._length))
