"""Several drafters, one tree: all guesses in one trie, valued by how often such guesses were right.

A member that costs next to nothing always drafts. A member that takes time (a model) drafts when what it usually adds
is worth more than its steps, so that a long certain copy does not wait for it. The union is then grown best-first
under the budget (multi-source drafting: SAM-Decoding 2411.10666, SuffixDecoding 2411.04975; trees: 2406.16858).
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import replace

import numpy as np

from paceline.core.aliases import Probabilities
from paceline.core.request import View
from paceline.core.round import Budget, Spent
from paceline.core.tree import Draft, Verified
from paceline.draft.base import Drafter, empty_draft, experience_of, forget_texts, named, unread_by, weighing
from paceline.draft.check import check
from paceline.draft.tree_ops import best_prefix, discount_siblings, merge, prune, values
from paceline.errors import UsageError
from paceline.estimate.acceptance import Acceptance

DEEPEST = 16  # guesses from here on are counted as one
FADE = 0.98  # of a depth's weight with each guess: a depth no longer drafted is tried again eventually


class MixDrafter(Drafter):
    """Merges the drafts of its members and keeps the nodes that pay.

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
        self._proposed: dict[int, dict[int, Draft]] = {}  # this round's, by sequence and member
        # Expected acceptance by depth of a member that takes time, known before it drafts.
        self._expected = [Acceptance(np.full(DEEPEST, 0.7)) for _ in members]
        own = {" ".join(member.sources): record for member, record in zip(members, self._expected, strict=True)}
        self.experience = {**named("mix", own), **experience_of(*members)}

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Guess a tree for each sequence; see `Drafter.propose`."""
        self.spent, self._proposed = {}, {}
        if not any(budget.depth for budget in budgets):
            return [empty_draft(view) for view in views]
        self._proposed = {view.id: {} for view in views}
        active = [i for i, budget in enumerate(budgets) if min(budget.nodes, budget.depth) > 0]
        budgets = list(budgets)
        slow = [m for m, member in enumerate(self.members) if _takes_time(member, budgets)]
        for m in (m for m in range(len(self.members)) if m not in slow):
            self._ask(m, views, budgets, {i for i in active if math.isfinite(_price(self.members[m], budgets[i]))})
        wanted: dict[int, set[int]] = {m: set() for m in slow}
        for i in active:
            copies = self._copies(views[i])
            chains = {m: self._chain(m, budgets[i]) for m in slow if math.isfinite(_price(self.members[m], budgets[i]))}
            budgets[i] = _fair(budgets[i], copies, [(chains[m], _price(self.members[m], budgets[i])) for m in chains])
            for m, chain in chains.items():
                step = _price(self.members[m], budgets[i])
                if budgets[i].price is None or _gain(chain, step, budgets[i]) > _gain(copies, 0.0, budgets[i]):
                    wanted[m].add(i)
        for m, asked in wanted.items():
            self._ask(m, views, budgets, asked)
        return [self._union(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def check(self) -> None:
        """See `Drafter.check`."""
        for member in self.members:
            member.check()

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        return unread_by(views, *self.members)

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Let every member observe its own draft, kept or not, and the committed tokens."""
        proposed = self._proposed.pop(view.id, {})
        nothing = empty_draft(view) if draft.drafted else draft
        for m, member in enumerate(self.members):
            own = proposed.get(m)
            member.observe(view, own or nothing, verified)
            if own is not None and own.drafted:
                self._learn(m, own, verified)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._proposed.pop(sequence_id, None)
        for member in self.members:
            member.release(sequence_id)

    def forget(self) -> None:
        """See `Drafter.forget`."""
        forget_texts(*self.members)

    def _ask(self, m: int, views: Seq[View], budgets: Seq[Budget], asked: set[int]) -> None:
        """Let one member propose for the sequences in `asked`; for the others its depth is 0."""
        if not asked:
            return
        member = self.members[m]
        takes_time = _takes_time(member, budgets)
        # Prices apply after merging, not per member: a guess that does not pay alone may pay in the union.
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
                self._proposed[views[i].id][m] = draft
        self.spent.update(member.spent)

    def _copies(self, view: View) -> Probabilities:
        """Return float64 [n]: how likely each of the guesses at hand is accepted, best first."""
        found = [value for draft in self._proposed[view.id].values() for value in values(draft)[1:].tolist()]
        return np.array(sorted(found, reverse=True), np.float64)

    def _chain(self, m: int, budget: Budget) -> Probabilities:
        """Return float64 [n]: optimistic acceptance of the guesses of a member that takes time."""
        return np.cumprod(self._expected[m].rates(hope=1.0)[: budget.depth], dtype=np.float64)

    def _union(self, view: View, budget: Budget) -> Draft:
        proposed = self._proposed[view.id]
        if not proposed:
            return empty_draft(view)
        union = merge(list(proposed.values()), [self._first[m] for m in proposed])
        return prune(replace(union, acceptance_prob=discount_siblings(union)), budget)

    def _learn(self, m: int, own: Draft, verified: Verified) -> None:
        self._expected[m].fade(FADE)
        path = own.tree.follow(verified.tokens)
        for depth in range(min(len(path) + 1, len(verified.tokens), max(own.tree.depths()))):
            self._expected[m].observe(min(depth, DEEPEST - 1), kept=depth < len(path))


def best_pace(survival: Probabilities, step: float, budget: Budget) -> float:
    """Return the highest ratio, over numbers of guesses, of expected tokens to their price in tokens.

    Args:
        survival: float64 [n], how likely each is accepted, best first.
        step: the price of each besides its row, in tokens like the budget's prices.
    """
    cost = _price_with_steps(step, budget)
    brought = np.concatenate([[0.0], np.cumsum(survival[: len(cost) - 1])])
    return float(((1 + brought) / (budget.plain + cost[: len(brought)])).max())


def _gain(survival: Probabilities, step: float, budget: Budget) -> float:
    """Return the highest surplus, over numbers of guesses, of expected tokens above their price."""
    return best_prefix(survival, _price_with_steps(step, budget))[1]


def _price_with_steps(step: float, budget: Budget) -> Probabilities:
    """Return float64 [nodes + 1]: the price of 0, 1, … guesses, a step each included."""
    assert budget.price is not None
    return np.asarray(budget.price + step * np.arange(len(budget.price)))


def _fair(budget: Budget, copies: Probabilities, chains: Seq[tuple[Probabilities, float]]) -> Budget:
    """Adjust long-run prices to what this round can earn.

    Prices fall where no choice earns them: drafting nothing would look best merely because its round is shortest. They
    rise to a copy's rate where that is higher: what a copy does not bring now, it brings as cheaply next round.

    Args:
        copies: see `MixDrafter._copies`.
        chains: of each member that takes time, and the price of its steps.
    """
    if budget.price is None or not budget.plain:
        return budget
    copied = best_pace(copies, 0.0, budget)
    best = max([copied, *(best_pace(chain, step, budget) for chain, step in chains)])
    return budget if copied <= 1 <= best else budget.scaled(max(copied, min(best, 1.0)))


def _price(member: Drafter, budget: Budget) -> float:
    """Return what a step of a member costs a sequence, in tokens: 0 if next to nothing, infinite if the budget uses
    none of its sources.
    """
    prices = [budget.step.get(name, 0.0) for name in member.sources]
    wanted = [price for price in prices if math.isfinite(price)]
    return max(wanted) if wanted else math.inf if prices else 0.0


def _takes_time(member: Drafter, budgets: Seq[Budget]) -> bool:
    """Whether a member's steps have a price in any budget."""
    return any(0 < _price(member, budget) < math.inf for budget in budgets)
