"""Draft as much as pays on this machine, nothing included: the default.

Knows what forwards take (`CostTable`), how often each source is right at each depth and what a step of it takes
(`Belief`), and for which sequences more or less often (`Leanings`). Every round it works out the long-run rate R to be
had and prices rows and steps at R (threshold stopping: SpecDec++ 2405.19715; the whole batch: SmartSpec 2406.14066). A
source that does not pay is left out before it runs, and tried again: a few times for each new text if it takes time,
and now and then in a hundredth of the time at most.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from paceline.control.allowance import MOST, Allowance
from paceline.control.base import OFF
from paceline.control.belief import Belief
from paceline.control.cost import CostTable
from paceline.control.debts import Debts
from paceline.control.guard import CAUTIOUS, START, Guard
from paceline.control.leaning import Leanings
from paceline.control.numbers import median
from paceline.control.pace import OUTLIER, Pace
from paceline.control.pending import Pending
from paceline.control.plan import Clock, best_rate, gains, lengths_of
from paceline.control.reason import Outlook, explain
from paceline.types import Budget, Load, Probabilities, Round, View

NOTHING = Budget(0, 0)
PROVEN = 6  # guesses put to the test after which a source's record says what rate is to be had
HOPE, FREE_HOPE = 0.8, 0.25  # standard errors in favour of a source: bad luck at first is not for ever
HOPED = 0.95  # what a probe that needs depth is laid out for
UNTRIED = 3.0  # plain rounds that a first try may take before anything is saved
TRIES = 2  # guesses, for each text, that a source given up for others may make before anything is saved
HOLDS_ON = 4  # rounds for which a decision to draft so much holds
KNOWN = 32  # guesses put to the test until which a source's next ones are heeded at once
HEARD = 128  # rounds after which sources that had nothing to guess are asked again
LOOKS = 4  # forwards timed between rounds, for each table that proves wrong: a reply waits for them
SAME = 4  # plain rounds in a row from which on every fourth is learnt from: the others say the same
HOLDS = 16  # rounds for which a decision to draft nothing holds


class OptimalController:
    """Decides by measured cost and observed acceptance.

    Args:
        sources: the drafter's.
        step_seconds: of one step of those that take time, as calibrated; others are found out.
        most: nodes and depth that no budget exceeds.
        weighing: sources that stop by themselves where a guess does not pay. What pays on average is no limit to them:
            where they are sure, more does.
        is_doubtful: what was calibrated may well be wrong.
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
        self.cost, self._most, self._weighing = cost, most, weighing
        self._beliefs = {name: Belief(name, max(most, 1), step_seconds=known.get(name)) for name in sources}
        self.guard, self._pace, self._allowance = Guard(CAUTIOUS if is_doubtful else START), Pace(), Allowance()
        self._overhead, self._extra = deque[float](maxlen=15), deque[float](maxlen=15)
        self._leanings, self._debts = Leanings(), Debts()
        self._unread: Mapping[str, Sequence[int]] = {}
        self._tries: dict[str, int] = {}  # left for the latest text, by source
        self._heard = set[tuple[int, bool]]()  # sequences, with a prediction or not, that everybody was asked about
        self._unheard = 0  # rounds since everybody was
        self._turn = 0
        self._wanted = 0.0  # seconds that the next probe would take
        self._looks = 0  # forwards timed since the table was measured
        self._step = Pending(0)
        self._clock, self._rate = Clock(0, np.ones(1)), 0.0
        self._sequences: list[int] = []
        self._lengths: dict[str, list[int]] = {}  # by source, how deep it may go for each of them
        self._decided = 0  # rounds ago
        self._has_news = self._has_young_news = False  # whether guesses were put to the test since, and of whom
        self._probes: dict[str, tuple[int, float, bool]] = {}
        self._cheapest = 0.0  # seconds that the cheapest of them takes, apart from reading
        self._outlook = Outlook()

    @property
    def reason(self) -> str:
        """Say what it does, and the numbers that made it so."""
        return explain(self._outlook) if self._most and self._beliefs else f"{OFF}: no guesses were asked for"

    @property
    def experience(self) -> dict[str, Belief]:
        """What was learnt of the sources, by name."""
        return {f"{name}: to depth {self._most}": belief for name, belief in self._beliefs.items()}

    def renew(self, cost: CostTable) -> None:
        """Go by another table from now on; what is known of the sources stays."""
        self.cost, self._decided, self._looks = cost, HOLDS, 0

    def wanted_rows(self) -> int:
        """Return of how many rows a forward should be timed before the next round; 0 for none.

        Nothing is known of rows that no round had where rounds have contradicted what was measured.
        """
        count, plain = len(self._sequences), self.guard.plain_seconds(len(self._sequences))
        if self._decided or self._looks >= LOOKS or not plain or self.guard.purse <= 1:
            return 0
        most = min(self.cost.reach((self.guard.purse - 1) * plain), count * (1 + self._most))
        return next((rows for rows in self.cost.unknown if count < rows <= most), 0)

    def timed(self, rows: int, seconds: float) -> None:
        """Learn what such a forward took; the purse pays for it."""
        self._looks += 1
        self.cost.observe(rows, seconds)
        self.guard.spend(len(self._sequences), seconds)
        self._decided = HOLDS

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        """Return one budget per sequence: rows and steps go to those whose guesses are worth most."""
        count = len(views)
        self._step = step = Pending(count)
        if not count or not self._most or not self._beliefs:
            return [NOTHING] * count
        # A round that must be plain costs no more than one without drafters.
        if not (is_allowed := self.guard.allows(count)) and self._outlook.clock:
            return [NOTHING] * count
        texts = {(view.id, view.prediction is not None) for view in views}
        self._unheard += 1
        if not texts & self._heard:  # with arrivals beside others it would never end
            self._tries = dict.fromkeys(self._beliefs, TRIES)
        if texts - self._heard or self._unheard >= HEARD:
            self._hear_all()
        self._heard = texts
        self._debts.follow(views)
        self._unread = load.unread
        sequences = [view.id for view in views]
        self._leanings.keep(sequences)
        is_settled = self._is_settled(sequences)
        if not is_settled:
            self._decide(views)
        if not is_allowed:
            return [NOTHING] * count
        clock = self._clock
        most = self._affordable(count)
        depths = [min(depth, most) for depth in self._depths()]
        step.depth = max(depths)
        if is_settled and not step.depth and self._allowance.seconds < self._cheapest:
            return [NOTHING] * count
        if step.depth:
            step.asked = {name: sum(map(bool, lengths)) for name, lengths in self._lengths.items()}
        budgets = self._budgets(clock, self._rate, depths, most)
        if self._probes:
            self._probe(list(self._probes), views, budgets, clock)
        step.is_open = any(budget.nodes for budget in budgets)
        return budgets

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn from a round of one sequence; the last one of a step settles it."""
        step = self._step
        step.add(round)
        if not (step.is_open or round.drafted or round.spent):
            self._debts.observe(sequence_id, round.committed, 0)
            return self._settle_plain(step, round) if step.seen == step.sequences else None
        free = (name for name, belief in self._beliefs.items() if not belief.is_costly)
        self._debts.observe(sequence_id, round.committed, sum(round.by_source.get(name, (0, 0))[1] for name in free))
        for name, (tested, kept) in round.by_source_depth.items():
            belief = self._beliefs.get(name)
            if belief is not None:
                if not self._is_used(belief):
                    self._decided = HOLDS
                belief.observe(tested, kept, censored=round.censored)
                self._has_news |= any(tested)
                self._has_young_news |= any(tested) and belief.tried <= KNOWN
                if step.sequences > 1 or self._leanings.knows(sequence_id):
                    self._leanings.observe(sequence_id, name, tested, kept, censored=round.censored)
                step.guessed[name] = step.guessed.get(name, 0) + any(tested)
                step.kept += sum(kept) if name == step.probed else 0
        drafted = sum(round.drafted)
        self._leanings.drafted(sequence_id, drafted)
        step.drafted += drafted
        return self._settle(step, round) if step.seen == step.sequences else None

    def _hear_all(self) -> None:
        """Let those speak who had nothing to say so far: another text, or the rest of a long one, may be for them."""
        self._unheard = 0
        for belief in self._beliefs.values():
            belief.share = max(belief.share, 0.5)
        self._decided = HOLDS

    def _is_settled(self, sequences: Sequence[int]) -> bool:
        """Whether a decision still holds: for long if nothing was put to the test since, else for a few rounds."""
        self._decided += 1
        if len(self._sequences) != len(sequences) or (len(sequences) > 1 and self._sequences != sequences):
            return False
        if self._has_news and any(map(self._is_used, self._beliefs.values())):
            return self._decided < (1 if self._has_young_news else HOLDS_ON)
        return self._decided < HOLDS

    def _depths(self) -> list[int]:
        """Return how deep each sequence may go: as far as pays on average, or farther if all in use weigh guesses."""
        used = [belief for belief in self._beliefs.values() if self._is_used(belief)]
        is_weighed = all(belief.name in self._weighing for belief in used)
        depths = [0] * len(self._sequences)
        for belief in used:
            free = min(belief.start, self._most) if is_weighed else 0
            for i, length in enumerate(self._lengths[belief.name]):
                depths[i] = max(depths[i], length, free if length else 0)
        return depths

    def _affordable(self, count: int) -> int:
        """Return how deep sequences may go: one round of bad luck may lose what the purse holds, or held at first."""
        plain, purse = self.guard.plain_seconds(count) or self._clock.plain, self.guard.purse
        step = max((b.step_seconds for b in self._beliefs.values() if self._is_used(b)), default=0.0)
        paid = int((self._clock.added(step) <= max(purse, START) * plain).sum()) - 1
        return max(min(self._most, self.cost.reach((1 + purse) * plain) // count - 1, paid), 0)

    def _is_used(self, belief: Belief) -> bool:
        return any(self._lengths.get(belief.name, ()))

    def _decide(self, views: Sequence[View]) -> None:
        """Find the rate to be had, in tokens per second, and how deep each source pays at that rate for each sequence,
        if at all.
        """
        sequences, count = [view.id for view in views], len(views)
        forward = self.cost.seconds(count + np.arange(count * self._most + 1))
        clock = Clock(count, forward, median(self._overhead), median(self._extra))
        beliefs = self._beliefs.values()
        survivals = {
            b.name: self._leanings.survivals(b, sequences, hope=0.0 if b.is_costly else FREE_HOPE) for b in beliefs
        }
        believed, alone = clock.plain_rate, dict[str, float]()
        for belief in beliefs:
            survival, step = survivals[belief.name], belief.step_seconds
            alone[belief.name] = best_rate(survival, step, clock)
            if belief.tried + belief.recalled >= PROVEN:  # hopes set no price
                believed = max(believed, best_rate(survival, step, clock, share=belief.share))
        rate = clock.plain_rate * self._pace.speedup(believed / clock.plain_rate)
        hoped = {b.name: self._leanings.hoped(b, sequences, hope=HOPE) for b in beliefs}
        # Who is not as good as things are may be all there is at times, and is then better than nothing.
        lengths = {
            b.name: lengths_of(b, survivals[b.name], hoped[b.name], clock, min(rate, alone[b.name])) for b in beliefs
        }
        for belief in beliefs:
            belief.turn(on=any(lengths[belief.name]))
        debts = self._debts.spare(
            views,
            self._unread,
            beliefs=self._beliefs,
            survivals=survivals,
            lengths=lengths,
            clock=clock,
            cost=self.cost,
        )
        rate = min(rate, max((alone[name] for name, found in lengths.items() if any(found)), default=clock.plain_rate))
        waiting = [b for b in beliefs if not any(lengths[b.name]) and not b.is_silent]
        self._probes = {b.name: self._plan_probe(b, clock) for b in waiting}
        self._cheapest = min((0.0 if is_free else added for _, added, is_free in self._probes.values()), default=0.0)
        self._sequences, self._lengths, self._decided = sequences, lengths, 0
        self._has_news = self._has_young_news = False
        self._clock, self._rate = clock, rate
        self._outlook = Outlook(clock, rate, self._beliefs, survivals, lengths, self.guard, debts, self._weighing)

    def _budgets(self, clock: Clock, rate: float, depths: Sequence[int], most: int) -> list[Budget]:
        """Price each sequence's rows behind those that the others are likely to have."""
        steps, plain = self._step_prices(clock, rate), rate / clock.plain_rate
        costly = [b.name for b in self._beliefs.values() if b.is_costly]
        nodes = [
            max([self._leanings.nodes(sequence), *(self._lengths[name][i] for name in costly)]) if depths[i] else 0.0
            for i, sequence in enumerate(self._sequences)
        ]
        drafting, prices, found = max(sum(map(bool, depths)), 1), dict[int, Probabilities](), list[Budget]()
        for i, depth in enumerate(depths):
            rows = clock.sequences + round(sum(nodes) - nodes[i])
            if depth and rows not in prices:
                prices[rows] = self._price(rows, rate, clock.extra / drafting, most)
            step = {name: of[i] for name, of in steps.items() if of[i]}
            found.append(Budget(most, depth, prices[rows], step, plain) if depth else NOTHING)
        return found

    def _price(self, rows: int, rate: float, extra: float, most: int) -> Probabilities:
        seconds = self.cost.seconds(np.arange(rows, rows + most + 1))
        price = rate * (seconds - seconds[0])
        price[1:] += rate * extra
        return np.asarray(price)

    def _step_prices(self, clock: Clock, rate: float) -> dict[str, list[float]]:
        """Return what a step of each source costs each sequence: those that it pays for share it, by the guesses they
        are likely to have of it; no price is high enough for what does not pay.
        """
        found, most = {}, [1 + self._leanings.nodes(sequence) for sequence in self._sequences]
        for name, lengths in self._lengths.items():
            likely = [min(length, nodes) for length, nodes in zip(lengths, most, strict=True)]
            price = rate * self._beliefs[name].step_seconds * max(likely) / sum(likely) if any(lengths) else math.inf
            found[name] = [price if length else math.inf for length in lengths]
        return found

    def _probe(self, waiting: Sequence[str], views: Sequence[View], budgets: list[Budget], clock: Clock) -> None:
        """Let one source that does not pay guess a little for one sequence, if enough is saved for it."""
        first = self._turn % len(waiting)
        order = [*waiting[first:], *waiting[:first]]
        name = next((name for name in order if self._probes[name][2]), order[0])  # only what is free overtakes
        depth, added, is_free = self._probes[name]
        if self._allowance.seconds < added and not is_free:
            self._wanted = added
            return
        belief, unread = self._beliefs[name], self._unread.get(name) or [0] * len(views)
        i = max(range(len(views)), key=lambda i: (self._leanings.leaning(belief, views[i].id), -unread[i]))
        self._wanted = added + self._debts.seconds(name, unread[i], step=belief.step_seconds, cost=self.cost)
        if is_free:
            is_free = self._wanted < UNTRIED * clock.plain
            self._tries[name] = self._tries[name] - 1 if is_free else 0
            self._decided = HOLDS
        if self._allowance.seconds < self._wanted and not is_free:
            self._cheapest = self._wanted
            return
        self._turn += 1
        self._step.probed = name
        budget = budgets[i]
        if budget.nodes:
            budgets[i] = replace(budget, step={other: price for other, price in budget.step.items() if other != name})
        else:
            budgets[i] = Budget(depth, depth, None, {other: math.inf for other in self._beliefs if other != name})

    def _plan_probe(self, belief: Belief, clock: Clock) -> tuple[int, float, bool]:
        """Return the least depth that pays if the source is very good, its seconds, and whether a first try is due."""
        hoped = np.power(HOPED, np.arange(1, self._most + 1), dtype=np.float64)
        depth = int((gains(hoped, belief.step_seconds, clock, clock.plain_rate) > 0).argmax()) or 1
        # What was calibrated may be wrong: a first try is not refused for more than a plain round a step.
        tried = belief.step_seconds if belief.has_run else min(belief.step_seconds, clock.plain)
        seconds = clock.added(tried) / clock.sequences
        if not belief.tried and seconds[depth] >= UNTRIED * clock.plain:
            depth = 1
        added = float(seconds[depth])
        is_due = not belief.tried or (belief.is_costly and self._tries[belief.name] > 0)
        return depth, added, is_due and added < UNTRIED * clock.plain

    def _settle_plain(self, step: Pending, round: Round) -> None:
        """Learn what a round takes that no drafter was asked in."""
        for belief in self._beliefs.values():
            belief.took(None)
        if not step.is_sound or not step.tokens or round.rows != step.sequences:
            return
        self._overhead.append(step.seconds[0] + step.seconds[2])
        if self.guard.in_a_row < SAME or not self.guard.in_a_row % SAME:
            self.cost.observe(round.rows, step.seconds[1])
        self.guard.add(step, round.rows, drafted=False)
        self._allowance.earn(sum(step.seconds), most=max(MOST * sum(step.seconds), 1.2 * self._wanted))

    def _settle(self, step: Pending, round: Round) -> None:
        for name, belief in self._beliefs.items():
            spent = round.spent.get(name)
            belief.took(spent)
            if spent is not None:
                self._debts.took(name, spent, belief.step_seconds)
            if step.asked.get(name):
                belief.had(min(step.guessed.get(name, 0) / step.asked[name], 1.0))
        drafting, verifying, other = step.seconds
        if not step.is_sound or round.rows != step.sequences + step.drafted:  # or it read a prompt
            if step.probed:
                self._allowance.settle(self._wanted, hit=False)
            return
        self.guard.see(step.sequences, verifying, self.cost.at(round.rows))
        self.cost.observe(round.rows, verifying)
        costly = [b.name for b in self._beliefs.values() if b.is_costly and step.guessed.get(b.name)]
        if any(spent.read for spent in round.spent.values()) or any(name not in round.spent for name in costly):
            self._pay(step, round)
            return  # a source read more than it guessed: its seconds say nothing of the next round's
        self.guard.add(step, round.rows, drafted=True)
        explained = sum(spent.seconds for spent in round.spent.values() if math.isfinite(spent.seconds))
        overhead = median(self._overhead)
        if step.is_open:
            self._extra.append(max(drafting - explained, 0.0) + max(other - overhead, 0.0))
        plain = self.cost.at(step.sequences) + overhead
        predicted = plain if round.rows == step.sequences else self.cost.at(round.rows) + overhead
        if step.is_open:
            steps = {name: spent.steps for name, spent in round.spent.items() if name in self._beliefs}
            predicted += median(self._extra) + sum(n * self._beliefs[name].step_seconds for name, n in steps.items())
        self._pace.add(plain * step.tokens / step.sequences, predicted)
        real = min(drafting + verifying + other, OUTLIER * predicted)
        self._allowance.earn(real, most=max(MOST * plain, 1.2 * self._wanted))
        self._pay(step, round)

    def _pay(self, step: Pending, round: Round) -> None:
        """Settle what a probe took, reading included, and what it brought."""
        if not step.probed:
            return
        drafting, _, other = step.seconds
        overhead = median(self._overhead)
        lost = drafting + max(other - overhead, 0.0) + self.cost.at(round.rows) - self.cost.at(step.sequences)
        if step.depth:  # others drafted as well
            lost = round.spent[step.probed].seconds if step.probed in round.spent else 0.0
        gained = step.kept * (self.cost.at(step.sequences) + overhead) / step.sequences
        self._allowance.settle(lost - gained, hit=step.kept > 0 or not step.drafted)
