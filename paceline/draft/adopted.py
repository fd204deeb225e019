"""A user's drafter, of any class that has the three methods; it is checked once, when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, Verified
from paceline.draft.base import Drafter
from paceline.errors import UsageError


class Adopted(Drafter):
    """Wraps a drafter that a user registered; members that its class lacks take the defaults of `Drafter`.

    Args:
        name: its only source if it names none.
        draws: whether it may return distributions of its own, see `register_drafter`.

    Raises:
        UsageError: it lacks one of the methods `propose`, `observe`, `release`.
    """

    def __init__(self, own: Any, name: str, *, draws: bool) -> None:
        if missing := [each for each in ("propose", "observe", "release") if not callable(getattr(own, each, None))]:
            raise UsageError(
                f"drafter `{name}` must have propose, observe and release; "
                f"`{type(own).__name__}` lacks `{', '.join(missing)}`",
                hint="derive its class from paceline.Drafter, which has all but propose",
            )
        self.own = own
        self._name, self._draws = name, draws
        self.sources = tuple(getattr(own, "sources", ())) or (name,)
        self.weighs = frozenset(getattr(own, "weighs", self.weighs))
        self.experience = getattr(own, "experience", self.experience)
        self.taps = tuple(getattr(own, "taps", self.taps))

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        drafts: list[Draft] = self.own.propose(views, budgets)
        self.spent = getattr(self.own, "spent", self.spent)
        made = drafts if isinstance(drafts, (list, tuple)) else ()  # `check` refuses anything else
        if not self._draws and any(getattr(draft, "drawn", None) is not None for draft in made):
            raise UsageError(
                f"drafter `{self._name}` must be registered with draws=True to draw guesses by distributions, "
                f"got drawn ones",
                hint="a verifier that weighs distributions takes one drafter that has them",
            )
        return drafts

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        self.own.observe(view, draft, verified)

    def release(self, sequence_id: int) -> None:
        self.own.release(sequence_id)

    def unread(self, views: Sequence[View]) -> Mapping[str, Sequence[int]]:
        return self.own.unread(views) if hasattr(self.own, "unread") else {}

    def forget(self) -> None:
        if hasattr(self.own, "forget"):
            self.own.forget()
