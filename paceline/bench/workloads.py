"""The eight workloads that ship with the package, as data files beside this one.

A file has `about`, `max_tokens`, named long `texts`, and `prompts` that ask something, of one of the texts or of none.
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files

from paceline.bench.prompts import fresh_prompt
from paceline.errors import UsageError

WORKLOADS = ("code", "edit", "chat", "math", "summarise", "rag", "translate", "creative")


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts of one kind; `max_tokens` is what a whole answer needs at most."""

    name: str
    about: str
    max_tokens: int
    prompts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to be measured: which, and as how many tokens at most."""

    workload: str
    index: int
    text: str
    max_tokens: int

    def fresh(self, rng: random.Random) -> str:
        """Return the prompt with a number of its own, so that nothing cached fits it."""
        return fresh_prompt(rng, self.text)


def load_workload(name: str) -> Workload:
    """Read a workload.

    Raises:
        UsageError: none goes by that name.
    """
    if name not in WORKLOADS:
        near = get_close_matches(name, WORKLOADS, n=1)
        known = ", ".join(WORKLOADS)
        raise UsageError(
            f"a workload must be one of {known}, got `{name}`", hint=f"did you mean `{near[0]}`?" if near else None
        )
    found = tomllib.loads(files("paceline.bench").joinpath("workloads", f"{name}.toml").read_text(encoding="utf-8"))
    texts = {key: text.strip("\n") for key, text in found.get("texts", {}).items()}
    prompts = tuple(
        f"{prompt['ask']}\n\n{texts[prompt['text']]}" if "text" in prompt else str(prompt["ask"])
        for prompt in found["prompts"]
    )
    return Workload(name, found["about"], found["max_tokens"], prompts)


def asks(workloads: tuple[str, ...], prompts: int, max_tokens: int | None) -> list[Ask]:
    """Return the first `prompts` of each workload, the workloads taking turns, so that a short run has some of all.

    Raises:
        UsageError: a workload is unknown.
    """
    loaded = [load_workload(name) for name in workloads]
    return [
        Ask(kind.name, index, kind.prompts[index], max_tokens or kind.max_tokens)
        for index in range(prompts)
        for kind in loaded
        if index < len(kind.prompts)
    ]
