"""What a drafter is, and the names users call them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast, runtime_checkable

import numpy as np

from paceline.config import LLMConfig
from paceline.control.acceptance import Record
from paceline.errors import UsageError
from paceline.model.base import Model
from paceline.tokenizer import Tokenizer
from paceline.types import Budget, Draft, Draws, Spent, TokenTree, Verified, View


class Drafter(Protocol):
    """Guesses what a sequence's next tokens are. Wrong guesses cost time, never correctness."""

    sources: tuple[str, ...]

    @property
    def spent(self) -> Mapping[str, Spent]:
        """What the latest `propose` took, by source; sources that take next to nothing are left out."""

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        """Return one draft per sequence, within its budget; a draft of the root alone means no guess."""

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Learn from a round.

        Args:
            view: the sequence as it was when the draft was made.
            draft: what this drafter proposed. The tree that was verified may hold less of it, and others' guesses.
            verified: what was, and what the target said.
        """

    def release(self, sequence_id: int) -> None:
        """Forget a sequence that ended."""


@runtime_checkable
class Experienced(Protocol):
    """A drafter that learns something worth keeping from run to run: its records by name."""

    experience: Mapping[str, Record]


def experience_of(*drafters: Drafter) -> dict[str, Record]:
    """Return the records of those that keep any."""
    return {name: r for one in drafters if isinstance(one, Experienced) for name, r in one.experience.items()}


@runtime_checkable
class Reading(Protocol):
    """A drafter that reads texts with a model of its own."""

    def unread(self, views: Sequence[View]) -> Mapping[str, Sequence[int]]:
        """Return how many tokens of each text a source would have to read before it guesses, by source."""


def unread_by(views: Sequence[View], *drafters: Drafter) -> dict[str, Sequence[int]]:
    """Return what those that read texts have yet to read, by source."""
    return {
        name: each
        for one in drafters
        if _reads(type(one))  # asked each round: a check of the object itself takes longer than the rest
        for name, each in cast("Reading", one).unread(views).items()
    }


@cache
def _reads(kind: type) -> bool:
    return issubclass(kind, Reading)


@runtime_checkable
class Taught(Protocol):
    """A drafter with a table that one request fills and the next one guesses from."""

    def forget(self) -> None:
        """Empty the table; how often guesses are right stays known."""


def forget_texts(*drafters: Drafter) -> None:
    """Let the next request be the first, for those that other requests taught."""
    for one in drafters:
        if isinstance(one, Taught):
            one.forget()


@runtime_checkable
class Weighing(Protocol):
    """A drafter that weighs guesses one by one: those of its sources named here stop where the next does not pay.

    They are told how deep they may go at most. All others go as deep as they are told, which must be what pays on
    average.
    """

    weighs: frozenset[str]


def weighing(*drafters: Drafter) -> frozenset[str]:
    """Return the sources that weigh their guesses."""
    return frozenset(name for one in drafters if isinstance(one, Weighing) for name in one.weighs)


def named(owner: str, records: Mapping[str, Record]) -> dict[str, Record]:
    """Return records under names that tell whose they are."""
    return {f"{owner}: {name}": record for name, record in records.items()}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run. `name` is what the user called it."""

    name: str
    model: Model
    tokenizer: Tokenizer
    context: int
    identity: str = ""  # tells its file from others; empty for a model without one


class Load(Protocol):
    """Loads a model by name or path on the target's threads; `quant` is what the user wants of drafts unless given."""

    def __call__(self, source: str, quant: str | None = None) -> Loaded: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a drafter is made for: the target, how the user configured it, and how to load another model.

    `draws` is what the verifier wants.
    """

    target: Loaded
    config: LLMConfig
    load: Load
    draws: Draws = "shared"


Factory = Callable[[Setting, str], "Drafter"]
_registry: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make a drafter known by `name`, for `--draft` and `LLM(draft=…)`.

    Args:
        factory: makes it for a setting; what follows a colon in `name:argument` comes second, else "".
    """
    if not name or any(mark in name for mark in ",/:+"):
        raise UsageError(f"a drafter's name must have no comma, slash, colon or plus, got `{name}`")
    _registry[name] = factory


def lookup(name: str) -> Factory | None:
    """Return the maker of a registered drafter, or `None`: then the name may be a model's."""
    return _registry.get(name)


def names() -> list[str]:
    """Return the registered names."""
    return sorted(_registry)


_ROOT, _SURE, _NOBODY = np.array([-1], np.int32), np.ones(1, np.float32), np.zeros(1, np.int8)
for _array in (_ROOT, _SURE, _NOBODY):
    _array.flags.writeable = False  # all empty drafts share them


def empty_draft(view: View) -> Draft:
    """Return the draft that guesses nothing."""
    return Draft(TokenTree(view.tokens[-1:], _ROOT), _SURE, _NOBODY)


class NoDrafter:
    """Speculation off."""

    sources: tuple[str, ...] = ()
    spent: Mapping[str, Spent] = {}

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        return [empty_draft(view) for view in views]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Learn nothing."""

    def release(self, sequence_id: int) -> None:
        """Nothing is held."""


register("off", lambda setting, argument: NoDrafter())
