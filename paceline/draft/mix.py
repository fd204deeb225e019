"""Several drafters, one tree: everybody's guesses in one trie, valued by how often such guesses were right.

Who guesses for next to nothing is always asked. Who takes time (a model) is asked when what it usually adds is worth
more than its steps, so that a long certain copy is not waited for. The union is then grown best-first under the
budget (multi-source drafting: SAM-Decoding 2411.10666, SuffixDecoding 2411.04975; trees: 2406.16858).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.control.acceptance import Acceptance
from paceline.draft.base import Drafter, empty_draft, experience_of, forget_texts, named, unread_by, weighing
from paceline.draft.check import check
from paceline.draft.grow import merge, prune, rivals
from paceline.draft.prospects import best_pace, pays, prospects
from paceline.errors import UsageError
from paceline.types import Budget, Draft, Probabilities, Spent, Verified, View

DEEPEST = 16  # guesses from here on are counted as one
FADE = 0.98  # of what a depth taught with each guess: one given up is tried again some day
BINS = 10  # of the belief of who believed most in a node that several guessed


@dataclass(slots=True)
class _Proposed:
    """What each member proposed for a sequence this round, and the union before it was pruned."""

    drafts: dict[int, Draft] = field(default_factory=dict)
    union: Draft | None = None
    agreed: dict[int, int] = field(default_factory=dict)  # node of the union: bin of the strongest belief


class MixDrafter(Drafter):
    """Asks all its members and keeps the best of what they say.

    Raises:
        UsageError: two members go by one name.
    """

    def __init__(self, members: Seq[Drafter]) -> None:
        names = [name for member in members for name in member.sources]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"a mix of drafters must have different names, got `{twice}` twice")
        self.members = tuple(members)
        self.sources: tuple[str, ...] = tuple(name for member in members for name in member.sources)
        self.weighs = weighing(*members)
        self.taps = tuple(sorted({layer for member in members for layer in member.taps}))
        self.spent: dict[str, Spent] = {}
        self._first = np.cumsum([0, *(len(member.sources) for member in members)]).tolist()
        self._proposed: dict[int, _Proposed] = {}
        # What a member that takes time is expected to be worth before it is asked, by depth.
        self._expected = [Acceptance(np.full(DEEPEST, 0.7)) for _ in members]
        self._agreement = Acceptance(0.5 + 0.5 * (np.arange(BINS) + 0.5) / BINS, weight=8.0)
        own = {" ".join(member.sources): record for member, record in zip(members, self._expected, strict=True)}
        self.experience = {**named("mix", {"agreement": self._agreement, **own}), **experience_of(*members)}

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Guess a tree for each sequence; see `Drafter.propose`."""
        self.spent, self._proposed = {}, {}
        if not any(budget.depth for budget in budgets):
            return [empty_draft(view) for view in views]
        self._proposed = {view.id: _Proposed() for view in views}
        active = [i for i, budget in enumerate(budgets) if min(budget.nodes, budget.depth) > 0]
        budgets = list(budgets)
        slow = [m for m, member in enumerate(self.members) if _takes_time(member, budgets)]
        for m in (m for m in range(len(self.members)) if m not in slow):
            asked = {i for i in active if math.isfinite(_price(self.members[m], budgets[i]))}
            if asked:
                self._ask(m, views, budgets, asked)
        likely = {i: self._likely(slow, views[i], budgets[i]) for i in active}
        for i in active:
            budgets[i] = self._fair(views[i], budgets[i], likely[i])
        for place, m in enumerate(slow, start=1):
            asked = {i for i in active if m in likely[i] and self._pays(m, likely[i][m], budgets[i])}
            if asked:
                self._ask(m, views, budgets, asked)
            for i in asked:  # who is next adds to what this one said
                likely[i] = self._likely(slow[place:], views[i], budgets[i])
        return [self._union(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        return unread_by(views, *self.members)

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Let every member learn from what it said, kept or not, and read on."""
        proposed = self._proposed.pop(view.id, None) or _Proposed()
        nothing = empty_draft(view) if draft.drafted else draft
        for m, member in enumerate(self.members):
            own = proposed.drafts.get(m)
            member.observe(view, own or nothing, verified)
            if own is not None and own.drafted:
                self._learn(m, own, verified)
        if proposed.union is not None:
            path = proposed.union.tree.follow(verified.tokens)
            tested = [c for node in [0, *path] for c in proposed.union.tree.children(node)]
            for node in tested if len(path) < len(verified.tokens) else path:
                if node in proposed.agreed:
                    self._agreement.observe(proposed.agreed[node], kept=node in path)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._proposed.pop(sequence_id, None)
        for member in self.members:
            member.release(sequence_id)

    def forget(self) -> None:
        """See `Drafter.forget`."""
        forget_texts(*self.members)

    def _ask(self, m: int, views: Seq[View], budgets: Seq[Budget], asked: set[int]) -> None:
        """Let one member propose for the sequences it is asked for; the others it only hears of."""
        member = self.members[m]
        takes_time = _takes_time(member, budgets)
        # Alone a guess may not pay and yet be part of what does: a price is asked of the union only.
        own = [
            replace(budget, depth=0)
            if budget.nodes and i not in asked
            else budget
            if takes_time
            else replace(budget, price=None)
            for i, budget in enumerate(budgets)
        ]
        drafts = member.propose(views, own)
        check(drafts, views, None, member.sources)
        for i, draft in enumerate(drafts):
            if draft.drafted:
                self._proposed[views[i].id].drafts[m] = draft
        self.spent.update(member.spent)

    def _likely(self, slow: Seq[int], view: View, budget: Budget) -> dict[int, Probabilities]:
        """Return the prospects of asking each member that takes time and is of use; see `prospects`."""
        drafts, most = list(self._proposed[view.id].drafts.values()), min(budget.nodes, budget.depth)
        wanted = [m for m in slow if math.isfinite(_price(self.members[m], budget))]
        return {m: prospects(drafts, self._expected[m].rates(hope=1.0)[:most], budget.nodes) for m in wanted}

    def _fair(self, view: View, budget: Budget, likely: Mapping[int, Probabilities]) -> Budget:
        """Set prices, which are those of the long run, by what this round can earn.

        Where no choice earns them, drafting nothing would seem best merely because it is over soonest: they fall. Where
        a copy earns more they rise to that, for what it is not asked for now it brings as cheaply in the next round.
        """
        if budget.price is None or not budget.plain:
            return budget
        drafts = list(self._proposed[view.id].drafts.values())
        copied = best_pace(prospects(drafts, np.zeros(0), budget.nodes), 0.0, budget)
        paces = [best_pace(table, _price(self.members[m], budget), budget) for m, table in likely.items()]
        best = max(copied, *paces) if paces else copied
        return budget if copied <= 1 <= best else budget.scaled(max(copied, min(best, 1.0)))

    def _pays(self, m: int, table: Probabilities, budget: Budget) -> bool:
        """Whether a member that takes time is likely to add more than its steps cost."""
        return budget.price is None or pays(table, _price(self.members[m], budget), budget)

    def _union(self, view: View, budget: Budget) -> Draft:
        proposed = self._proposed[view.id]
        if not proposed.drafts:
            return empty_draft(view)
        union, agreed = merge(list(proposed.drafts.values()), [self._first[m] for m in proposed.drafts])
        rates = self._agreement.rates()
        for node in np.flatnonzero(agreed):
            bin_ = min(int(union.guess[node] * BINS), BINS - 1)
            proposed.agreed[int(node)] = bin_
            union.guess[node] = max(float(union.guess[node]), rates[bin_])
        proposed.union = union
        return prune(replace(union, guess=rivals(union)), budget)

    def _learn(self, m: int, own: Draft, verified: Verified) -> None:
        self._expected[m].fade(FADE)
        path = own.tree.follow(verified.tokens)
        for depth in range(min(len(path) + 1, len(verified.tokens), max(own.tree.depths()))):
            self._expected[m].observe(min(depth, DEEPEST - 1), kept=depth < len(path))


def _price(member: Drafter, budget: Budget) -> float:
    """Return what a step of a member costs a sequence, in tokens: 0 if next to nothing, infinite if it has no use for
    any of its sources.
    """
    prices = [budget.step.get(name, 0.0) for name in member.sources]
    wanted = [price for price in prices if math.isfinite(price)]
    return max(wanted) if wanted else math.inf if prices else 0.0


def _takes_time(member: Drafter, budgets: Seq[Budget]) -> bool:
    """Whether anybody pays for a member's steps."""
    return any(0 < _price(member, budget) < math.inf for budget in budgets)
