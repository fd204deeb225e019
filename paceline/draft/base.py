"""What a drafter is, and the names users call them by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from paceline.errors import UsageError
from paceline.types import Budget, Draft, TokenTree, Verdict, View


class Drafter(Protocol):
    """Guesses what a sequence's next tokens are. Wrong guesses cost time, never correctness."""

    sources: tuple[str, ...]

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        """Return one draft per sequence, within its budget; a draft of the root alone means no guess."""

    def observe(self, view: View, draft: Draft, verdict: Verdict) -> None:
        """Learn what became of a draft. `view` is the sequence as it was when the draft was made."""

    def release(self, sequence_id: int) -> None:
        """Forget a sequence that ended."""


Factory = Callable[[], Drafter]
_registry: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make a drafter known by `name`, for `--draft` and `LLM(draft=…)`."""
    if not name or "," in name or "/" in name:
        raise UsageError(f"a drafter's name must have no comma or slash, got `{name}`")
    _registry[name] = factory


def lookup(name: str) -> Factory | None:
    """Return the maker of a registered drafter, or `None`: then the name may be a model's."""
    return _registry.get(name)


def names() -> list[str]:
    """Return the registered names."""
    return sorted(_registry)


def empty_draft(view: View) -> Draft:
    """Return the draft that guesses nothing."""
    return Draft(TokenTree.chain([int(view.tokens[-1])]), np.ones(1, np.float32), np.zeros(1, np.int8))


class NoDrafter:
    """Speculation off."""

    sources: tuple[str, ...] = ()

    def propose(self, views: Sequence[View], budgets: Sequence[Budget]) -> list[Draft]:
        return [empty_draft(view) for view in views]

    def observe(self, view: View, draft: Draft, verdict: Verdict) -> None:
        """Learn nothing."""

    def release(self, sequence_id: int) -> None:
        """Nothing is held."""


register("off", NoDrafter)
