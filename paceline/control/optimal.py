"""Price and gate: draft guesses that are worth more tokens than their time, or nothing. The default.

R is the long-run rate of decoding in tokens per predicted second. A row or a step costs R times its seconds, in tokens;
a drafter stops where its next guess is worth less (threshold stopping: SpecDec++ 2405.19715; the whole batch: SmartSpec
2406.14066). A gate closes a source that loses against plain decoding, and the guard closes all of them by real seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from paceline.control.base import OFF
from paceline.control.draft_prefill import USUAL, Backlog, DraftPrefill
from paceline.control.explain import Decision, explain
from paceline.control.gate import Gate
from paceline.control.guard import CAUTIOUS, START, Guard
from paceline.control.pending import Pending
from paceline.core.aliases import Probabilities
from paceline.core.request import View
from paceline.core.round import Budget, Load, Round, Spent
from paceline.estimate.cost import CostTable
from paceline.estimate.numbers import median
from paceline.estimate.source import Source
from paceline.estimate.throughput import Clock, admit, best_rate, gains

NOTHING = Budget(0, 0)
MEMORY = 0.98  # of a round's weight in the long-run rate with each that follows it
UNHEARD = 64  # rounds without a guess after which a source is asked for one at any price
AGAIN = 8  # rounds without a guess after which a source that is not expected to pay makes a try
HOPED = 0.95  # acceptance that sets the depth of a try: over a step in costs a single token never pays
LOOKS = 4  # forwards timed between rounds, at most, for each table: a reply waits for them
SAME = 4  # plain rounds in a row from which on only every fourth corrects the table: the others add nothing
NEAR = 8  # rounds in the mean of a sequence's drafted nodes


class OptimalController:
    """Decides by measured cost and observed acceptance.

    Args:
        sources: the drafter's.
        step_seconds: of one step of those that take time, as calibrated; rounds measure the others.
        most: limit of nodes and of depth in every budget.
        weighing: sources that themselves stop where a guess does not pay.
        is_doubtful: whether the calibration is doubtful.
    """

    def __init__(
        self,
        cost: CostTable,
        sources: Sequence[str],
        *,
        most: int,
        step_seconds: Mapping[str, float] | None = None,
        weighing: Collection[str] = (),
        is_doubtful: bool = False,
    ) -> None:
        known = step_seconds or {}
        self.cost, self._most = cost, most
        self._sources = {
            name: Source(name, max(most, 1), step_seconds=known.get(name), weighs=name in weighing) for name in sources
        }
        self._gates = {name: Gate() for name in sources}
        self.guard, self._prefill = Guard(CAUTIOUS if is_doubtful else START), DraftPrefill()
        self._overhead, self._extra = deque[float](maxlen=15), deque[float](maxlen=15)
        self._plain = self._predicted = 0.0  # seconds of recent tokens: in plain decoding, and as predicted
        self._nodes: dict[int, float] = {}  # recent nodes of a sequence per round
        self._sequences: list[int] = []
        self._looks = 0  # forwards timed since the table was measured
        self._step, self._decision = Pending(0), Decision()

    @property
    def reason(self) -> str:
        """The reason for the latest budgets, with the numbers that decided."""
        return explain(self._decision) if self._most and self._sources else f"{OFF}: no guesses were asked for"

    @property
    def experience(self) -> dict[str, Source]:
        """The records of the sources, by name."""
        return {f"{name}: to depth {self._most}": source for name, source in self._sources.items()}

    def renew(self, cost: CostTable) -> None:
        """Replace the cost table; the records of the sources stay."""
        self.cost, self._looks = cost, 0

    def wanted_rows(self) -> int:
        """Return the rows of a forward to time before the next round; 0 for none.

        Rows that no round had are unknown once rounds have contradicted the measurement.
        """
        count, plain = len(self._sequences), self.guard.plain_seconds(len(self._sequences))
        if self._looks >= LOOKS or not plain or self.guard.purse <= 1:
            return 0
        most = min(self.cost.reach((self.guard.purse - 1) * plain), count * (1 + self._most))
        return next((rows for rows in self.cost.unknown if count < rows <= most), 0)

    def timed(self, rows: int, seconds: float) -> None:
        """Correct the table by such a forward; the purse pays for it."""
        self._looks += 1
        self.cost.observe(rows, seconds)
        self.guard.spend(len(self._sequences), seconds)

    # ---- before a round

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        """Return one budget per sequence: rows and steps go to those whose guesses are worth most."""
        count = len(views)
        self._step = step = Pending(count)
        if not count or not self._most or not self._sources:
            return [NOTHING] * count
        self._follow(views)
        is_allowed = self.guard.allows(count)
        if not is_allowed and self._decision.clock:  # skip the pricing in a round that must be plain
            return [NOTHING] * count
        clock = self._clock(count)
        rate = clock.plain_rate * max(self._plain / self._predicted if self._predicted else 1.0, 1.0)
        reads, backlogs = self._readable(views, load, clock)
        rows = self._affordable_rows(count, clock)
        most = {name: self._affordable_depth(source, count, clock, rows) for name, source in self._sources.items()}
        lengths = {
            name: self._lengths(source, reads[name], clock, rate, most[name]) for name, source in self._sources.items()
        }
        self._decision = Decision(
            clock, rate, self._sources, self._sequences, lengths, self.guard, self._gates, backlogs
        )
        if not is_allowed:
            return [NOTHING] * count
        for name, source in self._sources.items():
            if not any(lengths[name]):
                lengths[name] = self._tries(source, reads[name], clock, most[name])
                source.unheard *= not (any(lengths[name]) and source.has_run)
        depths = [max(own[i] for own in lengths.values()) for i in range(count)]
        step.is_open = any(depths)
        if not step.is_open:
            return [NOTHING] * count
        step.asked = {
            name: [i for i, length in zip(self._sequences, own, strict=True) if length] for name, own in lengths.items()
        }
        return self._priced(clock, rate, lengths, depths, rows)

    def _follow(self, views: Sequence[View]) -> None:
        """Keep these sequences; silent sources are asked again soon where all texts are new."""
        sequences = [view.id for view in views]
        self._prefill.follow(views)
        if sequences == self._sequences:
            return
        is_new = not set(sequences) & set(self._sequences)  # arrivals beside others do not count
        self._sequences, self._nodes = sequences, {i: self._nodes.get(i, 0.0) for i in sequences}
        for source in self._sources.values():
            source.keep(sequences)
            self._gates[source.name].keep(sequences)
            if is_new:
                source.silent = 0
                source.unheard = min(source.unheard, UNHEARD // 2) if source.tried or source.recalled else UNHEARD

    def _clock(self, count: int) -> Clock:
        forward = self.cost.seconds(count + np.arange(count * self._most + 1))
        return Clock(count, forward, median(self._overhead), median(self._extra))

    def _readable(
        self, views: Sequence[View], load: Load, clock: Clock
    ) -> tuple[dict[str, list[bool]], dict[str, Backlog]]:
        """Return, by source, whether it has read or should read each text, and the backlog not worth reading."""
        found, backlogs = dict[str, list[bool]](), dict[str, Backlog]()
        may_copy = not all(source.is_costly for source in self._sources.values())
        for name, source in self._sources.items():
            found[name] = [True] * len(views)
            for i, (view, tokens) in enumerate(zip(views, load.unread.get(name, ()), strict=False)):
                left = self._prefill.to_come(view, may_copy=may_copy)
                if not self._gates[source.name].has_earned(view.id):
                    left = min(left, USUAL)
                seconds = self._prefill.seconds(name, tokens, step=source.step_seconds, cost=self.cost)
                saved = source.gain * left / clock.plain_rate
                found[name][i] = self._prefill.is_worth(seconds, saved)
                if not found[name][i] and saved:
                    backlogs[name] = Backlog(tokens, seconds, saved)
        return found, backlogs

    def _affordable_rows(self, count: int, clock: Clock) -> int:
        """Return how many guesses each sequence may have: a round without a hit may lose the purse."""
        plain = self.guard.plain_seconds(count) or clock.plain
        return max(min(self._most, self.cost.reach((1 + self.guard.purse) * plain) // count - 1), 0)

    def _affordable_depth(self, source: Source, count: int, clock: Clock, rows: int) -> int:
        """Return a source's depth limit: its rows and steps may lose the purse, or as much as it held at first."""
        plain = self.guard.plain_seconds(count) or clock.plain
        added = clock.added(min(source.step_seconds, clock.plain))
        return min(rows, int((added <= max(self.guard.purse, START) * plain).sum()) - 1)

    def _lengths(self, source: Source, reads: Sequence[bool], clock: Clock, rate: float, most: int) -> list[int]:
        """Return a source's depth for each sequence, 0 where it does not read the text.

        Depth pays on average, at the long-run rate or at the source's own best rate if that is lower: keep a source
        that beats plain decoding even if it lowers the current rate. A source that weighs gets `most` wherever it has
        credit or pays.
        """
        nothing, is_asked = [0] * len(reads), not source.is_quiet or not source.unheard % AGAIN
        if not source.has_run or not is_asked or not any(reads):
            return nothing
        on_credit = self._on_credit(source, reads)
        if source.weighs and (on_credit == reads or source.unheard % AGAIN):
            return [most * is_open for is_open in on_credit]
        survivals = source.survivals(self._sequences) * np.array(reads)[:, None]
        rate = min(rate, best_rate(survivals, source.step_seconds, clock))
        lengths, _ = admit(survivals, source.step_seconds, clock, rate, deepest=most)
        if source.weighs:
            return [most * (is_open or length > 0) for is_open, length in zip(on_credit, lengths, strict=True)]
        return lengths

    def _tries(self, source: Source, reads: Sequence[bool], clock: Clock, most: int) -> list[int]:
        """Return the depth of a try for each sequence with credit, for a source that is not expected to pay.

        Tries correct a wrong estimate, and replace the calibrated seconds of a source that never ran.
        """
        if source.has_run and source.unheard < AGAIN:
            return [0] * len(reads)
        depth = hoped_depth(source, clock)
        return [depth * (is_open and depth <= most) for is_open in self._on_credit(source, reads)]

    def _on_credit(self, source: Source, reads: Sequence[bool]) -> list[bool]:
        """Return for which sequences a source reads the text and has credit."""
        gate = self._gates[source.name]
        return [can and gate.is_open(i) for can, i in zip(reads, self._sequences, strict=True)]

    def _priced(
        self, clock: Clock, rate: float, lengths: Mapping[str, Sequence[int]], depths: Sequence[int], most: int
    ) -> list[Budget]:
        """Price each sequence's rows, `most` at most, on top of the others' likely rows, and its share of the steps."""
        nodes = [self._nodes[i] * (depth > 0) for i, depth in zip(self._sequences, depths, strict=True)]
        steps = {name: self._step_price(self._sources[name], own, nodes, rate) for name, own in lengths.items()}
        drafting, found, prices = sum(map(bool, depths)), list[Budget](), dict[int, Probabilities]()
        for i, depth in enumerate(depths):
            rows = clock.sequences + round(sum(nodes) - nodes[i])
            if depth and rows not in prices:
                prices[rows] = self._row_prices(rows, rate, clock.extra / drafting)
            step = {name: own if lengths[name][i] else math.inf for name, own in steps.items()}
            own = {name: price for name, price in step.items() if price}
            found.append(Budget(most, depth, prices[rows], own, rate / clock.plain_rate) if depth else NOTHING)
        self._force(lengths, found, clock)
        return found

    def _force(self, lengths: Mapping[str, Sequence[int]], budgets: list[Budget], clock: Clock) -> None:
        """Give one long silent source a budget without prices, for the sequence in which it has most credit.

        Prices may be wrong, and the text may by now suit the source.
        """
        waiting = [source for name, source in self._sources.items() if any(lengths[name]) and source.unheard >= UNHEARD]
        if not waiting:
            return
        source = waiting[0]
        if source.has_run:
            source.unheard = 0
        at = [i for i, length in enumerate(lengths[source.name]) if length]
        i = max(at, key=lambda i: self._gates[source.name].credit(self._sequences[i]))
        depth = min(hoped_depth(source, clock), lengths[source.name][i])
        budgets[i] = Budget(depth, depth, None, {name: math.inf for name in self._sources if name != source.name})

    def _row_prices(self, rows: int, rate: float, extra: float) -> Probabilities:
        seconds = self.cost.seconds(np.arange(rows, rows + self._most + 1))
        price = rate * (seconds - seconds[0])
        price[1:] += rate * extra
        return np.asarray(price)

    def _step_price(self, source: Source, lengths: Sequence[int], nodes: Sequence[float], rate: float) -> float:
        """Return the price of a source's step for each sequence: they share it, by their likely guesses."""
        likely = [min(length, 1 + many) for length, many in zip(lengths, nodes, strict=True)]
        return rate * source.step_seconds * max(likely) / sum(likely) if source.has_run and any(likely) else 0.0

    # ---- after it

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn from a round of one sequence; the last one of a step settles it."""
        step = self._step
        step.add(sequence_id, round)
        for name, (tested, kept) in round.by_source_depth.items():
            if name in self._sources:
                self._sources[name].observe(sequence_id, tested, kept, censored=round.censored)
        free = (name for name, source in self._sources.items() if not source.is_costly)
        copied = sum(round.by_source.get(name, (0, 0))[1] for name in free)
        self._prefill.observe(sequence_id, round.committed, copied)
        if sequence_id in self._nodes:
            self._nodes[sequence_id] += (sum(round.drafted) - self._nodes[sequence_id]) / NEAR
        if step.seen == step.sequences:
            self._settle(step, round)

    def _settle(self, step: Pending, round: Round) -> None:
        for name, source in self._sources.items():
            source.pass_round(round.spent.get(name))
            self._gates[name].grant()
            source.silent += bool(step.asked.get(name)) and not _only_read(round.spent.get(name))
            if name in round.spent:
                self._prefill.took(name, round.spent[name], source.step_seconds)
        if not step.is_sound or not step.tokens:
            return
        drafting, verifying, other = step.seconds
        if round.rows != step.sequences + step.drafted:  # a prompt was read as well
            if step.drafted:
                rows = self.cost.at(round.rows) - self.cost.at(round.rows - step.drafted)
                steps = 0.0 if any(spent.read for spent in round.spent.values()) else drafting
                self.guard.add_beside(step.sequences, step.tokens / step.writing - 1, rows + steps)
            return
        is_plain = not (step.is_open or step.drafted or round.spent)
        if is_plain:
            self._overhead.append(drafting + other)
        else:
            self.guard.see(step.sequences, verifying, self.cost.at(round.rows))
        if not is_plain or self.guard.in_a_row < SAME or not self.guard.in_a_row % SAME:
            self.cost.observe(round.rows, verifying)
        if not any(spent.read for spent in round.spent.values()):  # a round with reading is longer
            self.guard.add(step, round.rows, drafted=not is_plain)
            if step.is_open:
                explained = sum(spent.seconds for spent in round.spent.values() if math.isfinite(spent.seconds))
                self._extra.append(max(drafting - explained, 0.0) + max(other - median(self._overhead), 0.0))
        self._account(step, round)

    def _account(self, step: Pending, round: Round) -> None:
        """Update the long-run rate, and each source's credit, by the round's tokens and predicted seconds."""
        plain = self.cost.at(step.sequences) + median(self._overhead)
        rows = self.cost.at(round.rows) - self.cost.at(step.sequences) + (median(self._extra) if step.drafted else 0.0)
        steps = {
            name: spent.steps * self._sources[name].step_seconds
            for name, spent in round.spent.items()
            if name in self._sources
        }
        self._plain = MEMORY * self._plain + plain * step.tokens / step.sequences
        self._predicted = MEMORY * self._predicted + plain + rows + sum(steps.values())
        worth = step.sequences / plain  # tokens per second of plain decoding
        for name, source in self._sources.items():
            asked = step.asked.get(name, ())
            for sequence in asked:
                drafted, kept = step.by_source[sequence].get(name, (0, 0))
                if drafted or name in steps:
                    seconds = rows * drafted / max(step.drafted, 1) + steps.get(name, 0.0) / len(asked)
                    net = kept - worth * seconds
                    source.earned(net, step.tokens / step.sequences)
                    if self._gates[name].settle(sequence, net):
                        source.doubt()


def _only_read(spent: Spent | None) -> bool:
    """Whether a model read a text and had no time to guess."""
    return spent is not None and spent.read > 0 and not spent.steps


def hoped_depth(source: Source, clock: Clock) -> int:
    """Return the least depth that pays at acceptance HOPED, 1 if none does.

    A calibration may be wrong: before a source has run, its step counts as a plain round at most.
    """
    step = source.step_seconds if source.has_run else min(source.step_seconds, clock.plain)
    hoped = np.power(HOPED, np.arange(1, clock.most + 1), dtype=np.float64)
    return int((gains(hoped, step, clock, clock.plain_rate) > 0).argmax()) or 1
