"""Several draft models together: `ensemble:A+B` as one distribution, `branches:A+B` with a branch each.

A mixture costs every member a step per guess and can be worse than its best member. A branch each costs more nodes to
verify and is right where any member is: measured acceptance .861, against .723 and .736 for the members alone.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

from paceline.core.request import View
from paceline.core.round import Budget, Spent
from paceline.core.tree import Draft, Draws, Verified
from paceline.draft.base import Drafter, Loaded, Setting, experience_of, unread_by
from paceline.draft.compose.mixture import MixtureDrafter
from paceline.draft.tree_ops import merge, prune
from paceline.draft.vocab.pairing import drafter_for, label_of, voice_for
from paceline.errors import UsageError

MOST = 3


class BranchesDrafter(Drafter):
    """Merges the chains of its members.

    Where a verifier weighs drawn guesses by their distribution, each member guesses its likeliest token instead:
    siblings drawn from different distributions have no common distribution to record, and functions of the text need
    none.
    """

    def __init__(self, members: Seq[Drafter], *, draws: Draws = "shared") -> None:
        self.members = tuple(members)
        self.sources: tuple[str, ...] = tuple(source for member in members for source in member.sources)
        self.experience = experience_of(*self.members)
        self._offsets = [sum(len(m.sources) for m in self.members[:i]) for i in range(len(self.members))]
        self._is_greedy = draws != "shared"
        self.spent: dict[str, Spent] = {}
        self._drafts: dict[int, list[Draft]] = {}

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Return each sequence's union of chains, without the nodes that do not pay."""
        seen = [self._seen(view) for view in views]
        each = [member.propose(seen, budgets) for member in self.members]
        self.spent = {name: spent for member in self.members for name, spent in member.spent.items()}
        drafts = []
        for i, (view, budget) in enumerate(zip(views, budgets, strict=True)):
            self._drafts[view.id] = [own[i] for own in each]
            union = merge(self._drafts[view.id], self._offsets)
            drafts.append(prune(union, budget))
        return drafts

    def check(self) -> None:
        """See `Drafter.check`."""
        for member in self.members:
            member.check()

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        return unread_by(views, *self.members)

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Let each member observe its own chain."""
        for member, own in zip(self.members, self._drafts.pop(view.id, []), strict=False):
            member.observe(self._seen(view), own, verified)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._drafts.pop(sequence_id, None)
        for member in self.members:
            member.release(sequence_id)

    def _seen(self, view: View) -> View:
        return replace(view, params=replace(view.params, temperature=0.0)) if self._is_greedy else view


def make_ensemble(setting: Setting, argument: str) -> Drafter:
    members = [setting.load(source) for source in _members("ensemble", argument)]
    voices = [voice_for(setting, member) for member in members]
    return MixtureDrafter(voices, draws=setting.draws, name=_name(members))


def make_branches(setting: Setting, argument: str) -> Drafter:
    plain = replace(setting, draws="shared")
    members = [drafter_for(plain, setting.load(source)) for source in _members("branches", argument)]
    made = BranchesDrafter(members, draws=setting.draws)
    if len(set(made.sources)) < len(made.sources):
        raise UsageError(
            f"members of branches must go by different names, got `{', '.join(made.sources)}`",
            hint="rename one of the files",
        )
    return made


def _members(kind: str, argument: str) -> list[str]:
    sources = argument.split("+") if argument else []
    if not 2 <= len(sources) <= MOST or "" in sources or len(set(sources)) < len(sources):
        raise UsageError(
            f"{kind} must have 2 to {MOST} different models joined by `+`, got `{argument}`",
            hint=f"--draft {kind}:qwen2.5-coder-0.5b+PATH, or --draft PATH for one alone",
        )
    return sources


def _name(members: Seq[Loaded]) -> str:
    return "+".join(label_of(member.name) for member in members)
