"""What a user may choose by name: a `Choice` for each name, a `Registry` for each kind of them.

Help, tables, "did you mean" and the checks of names read the same choices. Knows no drafter, verifier or controller:
factories are imported when they are first used.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from paceline.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One name and what it stands for.

    `factory` makes it; a text "module:attribute" is imported first. `how` is its line in the documentation, `brief`
    what `--help` says behind its name. `argument` is what stands behind a colon: "FILE" if it must, "[FILE]" if it
    may; `wants` says what that is, and `example` is one.
    """

    name: str
    factory: Callable[..., Any] | str
    how: str = ""
    brief: str = ""
    argument: str = ""
    wants: str = ""
    example: str = ""

    @property
    def usage(self) -> str:
        """How it is written, with its argument."""
        if self.argument.startswith("["):
            return f"{self.name}[:{self.argument[1:]}"
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @property
    def needs_argument(self) -> bool:
        """Whether it is nothing without one."""
        return bool(self.argument) and not self.argument.startswith("[")

    def make(self, *args: Any, **settings: Any) -> Any:
        """Call the factory."""
        factory = imported(self.factory) if isinstance(self.factory, str) else self.factory
        return factory(*args, **settings)


def imported(place: str) -> Any:
    """Return what "module:attribute" names."""
    module, _, attribute = place.partition(":")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


C = TypeVar("C", bound=Choice)


class Registry(Mapping[str, C], Generic[C]):
    """The choices of one kind by name, in the order of the documentation.

    Args:
        option: what the kind is called, by the command line as by `LLMConfig`.
    """

    def __init__(self, option: str, choices: Iterable[C] = ()) -> None:
        self.option = option
        self._choices = {choice.name: choice for choice in choices}

    def __getitem__(self, name: str) -> C:
        return self._choices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices)

    def __len__(self) -> int:
        return len(self._choices)

    def register(self, choice: C) -> None:
        """Add a choice, or put it in the place of one with its name.

        Raises:
            UsageError: the name would be read as something else.
        """
        if not choice.name or any(mark in choice.name for mark in ",/:+"):
            raise UsageError(
                f"a name for --{self.option} must have no comma, slash, colon or plus, got `{choice.name}`",
                hint="letters, digits, `_`, `-` and `.` may stand in it",
            )
        self._choices[choice.name] = choice

    def usages(self) -> list[str]:
        """Return how each is written."""
        return [choice.usage for choice in self._choices.values()]

    def near(self, name: str, others: Iterable[str] = ()) -> str | None:
        """Return the name that may have been meant, of these and of `others`."""
        return next(iter(difflib.get_close_matches(name, [*self, *others], 1)), None)

    def split(self, text: str) -> tuple[C | None, str]:
        """Return the choice named before a colon, `None` if there is none, and what stands behind.

        Raises:
            UsageError: it has an argument and takes none, or needs one and has none.
        """
        base, colon, argument = text.partition(":")
        choice = self._choices.get(base)
        if choice is None:
            return None, argument
        if colon and not choice.argument:
            raise UsageError(f"{self.option} `{base}` takes no argument, got `{text}`", hint=f"--{self.option} {base}")
        if choice.needs_argument and not argument:
            raise UsageError(
                f"{self.option} {choice.usage} needs {choice.wants}, got `{text}`",
                hint=f"--{self.option} {base}:{choice.example or choice.argument}",
            )
        return choice, argument

    def choose(self, text: object) -> tuple[C, str]:
        """Return the choice of a name and its argument.

        Raises:
            UsageError: nothing goes by that name, or the argument is missing or too much.
        """
        choice, argument = self.split(text) if isinstance(text, str) else (None, "")
        if choice is None:
            near = self.near(str(text))
            raise UsageError(
                f"{self.option} must be one of {', '.join(self.usages())}, got `{text}`",
                hint=f"did you mean `{near}`?" if near else None,
            )
        return choice, argument

    def help(self) -> str:
        """Return all of them in a line, each with what is said of it in brackets."""
        return ", ".join(
            f"{choice.usage} ({choice.brief})" if choice.brief else choice.usage for choice in self._choices.values()
        )


def complete(made: Any, what: str, name: str, *wanted: str) -> Any:
    """Return what a factory made if it has all it must have.

    Raises:
        UsageError: it lacks some of it.
    """
    if missing := [each for each in wanted if not hasattr(made, each)]:
        raise UsageError(
            f"{what} `{name}` must have {', '.join(wanted)}; `{type(made).__name__}` lacks `{', '.join(missing)}`",
            hint=f"see the {what}s of one's own in docs/guides/speculation.md",
        )
    return made
