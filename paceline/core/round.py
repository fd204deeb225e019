"""Rounds: what may be drafted in one, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline.core.aliases import Probabilities


@dataclass(frozen=True, slots=True)
class Floor:
    """The confidence, 0 to 1, that a draft model needs to make a guess and go on.

    It is the model's probability of the guess; `by_entropy`, 1 - sqrt(0.2 H) with the entropy H of its distribution
    in nats (AdaEDL 2410.18351).
    """

    least: float
    by_entropy: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """How much to draft for one sequence this round; `nodes == 0` means do not draft.

    Prices are in tokens: what else the same time would have brought. `price` float64 [nodes + 1] is that of verifying
    so many nodes, 0 first; `None` asks for all of them. `step` is the price of one step of a source that takes time,
    `plain` that of a round without guesses; 0 if unknown. Under a `floor` draft models stop by that instead; it is
    the same for all sequences of a round. `reading`: seconds that models may read texts in this round, all of them
    together, so that other sequences are not held up.
    """

    nodes: int
    depth: int
    price: Probabilities | None = None
    step: Mapping[str, float] = field(default_factory=dict)
    plain: float = 0.0
    floor: Floor | None = None
    reading: float = math.inf

    def scaled(self, factor: float) -> Budget:
        """Return it with other prices."""
        price = None if self.price is None else factor * self.price
        step = {name: factor * price for name, price in self.step.items()}
        return replace(self, price=price, step=step, plain=factor * self.plain)


LAG = 8  # tokens of a text that a draft step takes along, one of them its own


@dataclass(frozen=True, slots=True)
class Spent:
    """What a source's guesses of one round took: `steps` one after the other, in `seconds`.

    `read`: tokens it had missed and had to read first, in the same seconds, where that is more than a step takes along.
    """

    steps: int
    seconds: float
    read: int = 0


def spent_on(name: str, steps: int, seconds: float, read: int) -> dict[str, Spent]:
    """Return what a source spent, by its name; nothing if it neither made a step nor read."""
    return {name: Spent(steps, seconds, read)} if steps or read else {}


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one sequence as the controller, metrics and benchmarks see it.

    The seconds are the round's, divided by the sequences that shared it.
    """

    drafted: tuple[int, ...]  # nodes guessed at each depth, depth 1 first
    accepted: tuple[int, ...]  # nodes kept at each depth
    by_source: Mapping[str, tuple[int, int]]  # name -> (drafted, accepted)
    committed: int  # tokens added, the bonus included
    censored: bool  # the round was cut by a stop or a limit, so its tail says nothing of acceptance
    rows: int  # tokens the target's forward had, all sequences together
    spent: Mapping[str, Spent]  # by source that takes time
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    # By source and depth, 0 or 1: whether it had guesses below what was accepted so far, and whether one was kept.
    by_source_depth: Mapping[str, tuple[list[int], list[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """What the controller may know of the engine's load.

    `unread`: tokens of each text that sources with models of their own would have to read before they guess, by source.
    """

    running: int
    waiting: int
    unread: Mapping[str, Sequence[int]] = field(default_factory=dict)
