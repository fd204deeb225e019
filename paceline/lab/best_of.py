"""Candidates for the target to choose among: continuations drawn by a draft model, each with noise of its own.

Works only with `BestOfVerifier`, which keeps the likeliest one whole: the reply no longer follows the target's
distribution.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

from paceline.core.request import View
from paceline.core.round import Budget, Spent
from paceline.core.tree import Draft, Verified
from paceline.draft.base import Drafter, Setting, empty_draft, unread_by
from paceline.draft.tree_ops import merge
from paceline.draft.vocab.pairing import drafter_for

CANDIDATES = 3
_APART = 0x9E3779B97F4A7C15  # between the seeds of candidates


class BestOfDrafter(Drafter):
    """Has `member` draft every text `CANDIDATES` times over."""

    def __init__(self, member: Drafter) -> None:
        self.member = member
        self.sources = member.sources
        self.spent: dict[str, Spent] = {}

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Return each text's candidates as branches of one tree; together they have the budget's nodes."""
        asked = [(_as_candidate(view, i), _share(b)) for view, b in zip(views, budgets, strict=True) for i in _each(b)]
        made = iter(self.member.propose([view for view, _ in asked], [budget for _, budget in asked]))
        self.spent = dict(self.member.spent)
        drafts = []
        for view, budget in zip(views, budgets, strict=True):
            own = [next(made) for _ in _each(budget)]
            drafts.append(merge(own, [0] * len(own)) if own else empty_draft(view))
        return drafts

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`; every candidate is read for itself."""
        found = unread_by([_as_candidate(view, i) for view in views for i in range(CANDIDATES)], self.member)
        return {
            name: [sum(each[i : i + CANDIDATES]) for i in range(0, len(each), CANDIDATES)]
            for name, each in found.items()
        }

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Learn nothing: a kept branch does not show which guesses were right."""

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        for i in range(CANDIDATES):
            self.member.release(sequence_id * CANDIDATES + i)


def _each(budget: Budget) -> range:
    return range(min(CANDIDATES, budget.nodes) if budget.depth > 0 else 0)


def _share(budget: Budget) -> Budget:
    count = min(budget.depth, max(budget.nodes // CANDIDATES, 1))
    return Budget(count, count)


def _as_candidate(view: View, i: int) -> View:
    """Return the view of the i-th candidate: another seed, and temperature 1 where the target is greedy."""
    params = view.params
    seed = (params.seed + (i + 1) * _APART) % 2**64
    warm = replace(params, seed=seed, temperature=1.0 if params.is_greedy else params.temperature)
    return replace(view, id=view.id * CANDIDATES + i, params=warm)


def make_best_of(setting: Setting, argument: str) -> Drafter:
    config = replace(setting.config, slots=setting.config.slots * CANDIDATES)
    return BestOfDrafter(drafter_for(replace(setting, config=config, draws="shared"), setting.load(argument)))
