"""The interface of drafters, and the setting they are made for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from paceline.config import LLMConfig
from paceline.core.request import View
from paceline.core.round import Budget, Spent
from paceline.core.tree import Draft, Draws, TokenTree, Verified
from paceline.estimate.acceptance import Record
from paceline.model.base import Model
from paceline.text.tokenizer import Tokenizer


class Drafter(ABC):
    """Guesses what a sequence's next tokens are. Wrong guesses cost time, never correctness.

    A drafter must have `propose`. The other methods have defaults, which a subclass may replace.
    """

    sources: tuple[str, ...] = ()
    """Names of where guesses come from; each node of a draft points at one of them."""
    spent: Mapping[str, Spent] = MappingProxyType({})
    """What the latest `propose` took, by source; sources that take next to nothing are left out."""
    weighs: frozenset[str] = frozenset()
    """Sources that stop by themselves where `Budget.price` says that the next guess does not pay.

    `Budget.depth` is an upper limit for them. Every other source drafts as deep as that, so it must be the depth that
    pays on average.
    """
    experience: Mapping[str, Record] = MappingProxyType({})
    """What was learnt and is worth keeping from run to run: records by name."""
    taps: tuple[int, ...] = ()
    """Layers of the target, the hidden states of which `observe` reads, in `Verified.taps`; 0 is the first."""

    @abstractmethod
    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        """Return one draft per sequence, within its budget; a draft of the root alone means no guess."""

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:  # noqa: B027  (a default)
        """Learn from a round; by default nothing.

        Args:
            view: the sequence as it was when the draft was made.
            draft: what this drafter proposed. The verified tree may lack parts of it and hold other drafters' guesses.
            verified: the tree that was verified, and the target's tokens.
        """

    def release(self, sequence_id: int) -> None:  # noqa: B027  (a default)
        """Forget a sequence that ended; by default nothing is held."""

    def check(self) -> None:  # noqa: B027  (a default)
        """Recount what is held of texts; raise `AssertionError` with what disagrees. By default nothing is."""

    def unread(self, views: Sequence[View]) -> Mapping[str, Sequence[int]]:
        """Return how many tokens of each text a source must read with a model before it guesses, by source."""
        return {}

    def forget(self) -> None:  # noqa: B027  (a default)
        """Drop the texts that later requests would guess from; acceptance rates stay."""


def experience_of(*drafters: Drafter) -> dict[str, Record]:
    """Return the records of all of them."""
    return {name: record for one in drafters for name, record in one.experience.items()}


def unread_by(views: Sequence[View], *drafters: Drafter) -> dict[str, Sequence[int]]:
    """Return the unread tokens of all of them, by source."""
    return {name: each for one in drafters for name, each in one.unread(views).items()}


def forget_texts(*drafters: Drafter) -> None:
    """Drop what each drafter keeps of earlier requests' texts; see `Drafter.forget`."""
    for one in drafters:
        one.forget()


def weighing(*drafters: Drafter) -> frozenset[str]:
    """Return the sources that weigh their guesses."""
    return frozenset(name for one in drafters for name in one.weighs)


def named(owner: str, records: Mapping[str, Record]) -> dict[str, Record]:
    """Return records, each name prefixed with `owner`."""
    return {f"{owner}: {name}": record for name, record in records.items()}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run. `name` is the user's name for it, `path` its file or folder, if it has one."""

    name: str
    model: Model
    tokenizer: Tokenizer
    context: int
    identity: str = ""  # tells its file from others; empty for a model without one
    path: Path | None = None


class Load(Protocol):
    """Loads a model by name or path on the target's threads; `quant` defaults to the user's setting for drafts."""

    def __call__(self, source: str, quant: str | None = None) -> Loaded: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a drafter is made for: the target, how the user configured it, and how to load another model.

    `draws` is the kind of draws that the verifier needs. `company` names the other drafters of a mix.
    """

    target: Loaded
    config: LLMConfig
    load: Load
    draws: Draws = "shared"
    company: tuple[str, ...] = ()


_ROOT, _SURE, _NOBODY = np.array([-1], np.int32), np.ones(1, np.float32), np.zeros(1, np.int8)
for _array in (_ROOT, _SURE, _NOBODY):
    _array.flags.writeable = False  # all empty drafts share them


def empty_draft(view: View) -> Draft:
    """Return the draft that guesses nothing."""
    return Draft(TokenTree(view.tokens[-1:], _ROOT), _SURE, _NOBODY)


class NoDrafter(Drafter):
    """Speculation off."""

    @staticmethod
    def of(setting: Setting, argument: str) -> NoDrafter:
        return NoDrafter()

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        return [empty_draft(view) for view in views]
