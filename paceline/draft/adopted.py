"""Drafters that users bring: of any class that has the three methods, checked once when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.draft.base import Drafter, NoDrafter
from paceline.errors import UsageError
from paceline.types import Budget, Draft, Verified, View


class Adopted(Drafter):
    """A drafter whose class is not derived from `Drafter`: what it lacks takes the default.

    Args:
        name: its only source if it names none.

    Raises:
        UsageError: it lacks one of the methods `propose`, `observe`, `release`.
    """

    def __init__(self, own: Any, name: str) -> None:
        if missing := [each for each in ("propose", "observe", "release") if not callable(getattr(own, each, None))]:
            raise UsageError(
                f"drafter `{name}` must have propose, observe and release; "
                f"`{type(own).__name__}` lacks `{', '.join(missing)}`",
                hint="derive its class from paceline.Drafter, which has all but propose",
            )
        self.own = own
        self.sources = tuple(getattr(own, "sources", (name,)))
        self.weighs = frozenset(getattr(own, "weighs", self.weighs))
        self.experience = getattr(own, "experience", self.experience)
        self.taps = tuple(getattr(own, "taps", self.taps))

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        drafts: list[Draft] = self.own.propose(views, budgets)
        self.spent = getattr(self.own, "spent", self.spent)
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


def adopted(made: object, name: str) -> Drafter:
    """Return what the factory of `name` made as a `Drafter`, with `name` as its source if it has none.

    Raises:
        UsageError: it is no drafter.
    """
    if not isinstance(made, Drafter):
        return Adopted(made, name)
    if not made.sources and not isinstance(made, NoDrafter):
        made.sources = (name,)
    return made
