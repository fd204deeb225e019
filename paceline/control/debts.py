"""What sources that take time have yet to read of each text, and whether reading it is worth the while.

A draft model goes on from what it has read. Reading is cheap by the token, but a long prompt, or what others copied
meanwhile, may take longer than the rest of a reply could save. What is still to come nobody knows: it is taken to be as
long as what came so far, or as replies usually are, no longer than the user allows, and to be copied as often by those
who guess for nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.control.belief import Belief
from paceline.control.cost import CostTable
from paceline.control.numbers import median
from paceline.control.plan import Clock, best_rate
from paceline.types import LAG, Probabilities, Spent, View

USUAL = 128.0  # tokens of a reply, before any was seen
BEFORE, COPIED = 8.0, 6.0  # tokens that are taken to have gone before a new text, and how many of them were copied
MARGIN = 1.75  # times what reading takes must be saved, for that is certain and the rest of the reply is not
MEASURED = 32  # tokens read at once, from which on they tell what reading takes
ROWS = 8  # of the target's whose seconds say what reading takes before anything was read; 16 says a quarter too little


@dataclass(frozen=True, slots=True)
class Debt:
    """What a source was not asked to read: so many tokens, the seconds that takes, and those it was likely to save."""

    tokens: int
    seconds: float
    saved: float


class Debts:
    """What a token takes to read, how long replies are, and how much of them is copied."""

    def __init__(self) -> None:
        self._said: dict[int, int] = {}  # tokens so far, by sequence
        self._copied: dict[int, int] = {}  # of them guessed by those who take no time
        self._usual = USUAL
        self._seconds: dict[str, deque[float]] = {}  # of a token read, by source

    def follow(self, views: Sequence[View]) -> None:
        """Go on with these sequences; the others have ended."""
        now = {view.id for view in views}
        for ended in self._said.keys() - now:
            self._usual += (self._said.pop(ended) - self._usual) / 8
            self._copied.pop(ended, None)

    def observe(self, sequence: int, committed: int, copied: int) -> None:
        """Count a round's tokens, and those of them that sources guessed which take no time."""
        if committed:
            self._said[sequence] = self._said.get(sequence, 0) + committed
            self._copied[sequence] = self._copied.get(sequence, 0) + copied

    def took(self, name: str, spent: Spent, step: float) -> None:
        """Learn what reading takes from a round; `step` seconds are a step's."""
        if spent.read >= MEASURED and math.isfinite(spent.seconds):
            seconds = max(spent.seconds - spent.steps * step, 0.0) / spent.read
            self._seconds.setdefault(name, deque(maxlen=5)).append(seconds)

    def seconds(self, name: str, tokens: int, *, step: float, cost: CostTable) -> float:
        """Return what reading so many takes; as long as nobody knows, a draft model is taken to scale as the target."""
        if tokens <= LAG:
            return 0.0
        if known := self._seconds.get(name):
            return tokens * median(known)
        return tokens * step * cost.at(ROWS) / cost.at(1) / ROWS

    def to_come(self, view: View, *, may_copy: bool = True) -> float:
        """Return how many tokens a reply is taken to have left that nobody copies; `may_copy` if there is who might."""
        said = len(view.tokens) - view.prompt_length
        left = min(max(self._usual - said, said), max(view.params.max_tokens - said, 0))
        return left * (1 - (COPIED + self._copied.get(view.id, 0)) / (BEFORE + said)) if may_copy else left

    def spare(
        self,
        views: Sequence[View],
        unread: Mapping[str, Sequence[int]],
        *,
        beliefs: Mapping[str, Belief],
        survivals: Mapping[str, Probabilities],
        lengths: Mapping[str, list[int]],
        clock: Clock,
        cost: CostTable,
    ) -> dict[str, Debt]:
        """Ask no source about texts that it would have to read for longer than it is likely to save: no guesses for it.

        Args:
            unread: see `Load`.
            survivals: see `admit`, by source.
            lengths: how deep each source may guess for each sequence; changed in place.

        Returns:
            What was too much to read, by source.
        """
        found, may_copy = dict[str, Debt](), not all(belief.is_costly for belief in beliefs.values())
        for name, belief in beliefs.items():
            debts, step = unread.get(name, ()), belief.step_seconds
            if not (belief.is_costly and any(lengths[name])) or max(debts, default=0) <= LAG:
                continue
            each = 1 / clock.plain_rate - 1 / best_rate(survivals[name], step, clock)
            for i, (view, tokens) in enumerate(zip(views, debts, strict=True)):
                seconds = self.seconds(name, tokens, step=step, cost=cost)
                gain = each * self.to_come(view, may_copy=may_copy)
                if lengths[name][i] and MARGIN * seconds > gain:
                    lengths[name][i] = 0
                    if gain:
                        found[name] = Debt(tokens, seconds, gain)
        return found
