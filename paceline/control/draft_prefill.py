"""Whether a draft model should read its backlog of a text: the price of reading, against the seconds it likely saves.

Reading is cheap by the token, but a long prompt, or tokens that look-ups copied meanwhile, may take longer to read than
the rest of a reply can save. Expected remaining length: the tokens so far or the mean reply's rest, capped by
max_tokens, less the share that look-ups copy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.request import View
from paceline.core.round import LAG, Spent
from paceline.estimate.cost import CostTable
from paceline.estimate.numbers import median

USUAL = 128.0  # tokens of a reply, before any was seen
MEASURED = 32  # tokens read at once from which on their seconds are a measurement
BEFORE, COPIED = 8.0, 6.0  # prior of a text: tokens, and how many of them were copied
MARGIN = 2.0  # a saving must be this many times the reading: reading is certain, the rest of the reply is not
ROWS = 8  # rows of the target that estimate reading before any was measured; 16 rows come out a quarter too low


@dataclass(frozen=True, slots=True)
class Backlog:
    """Tokens that a source is not asked to read, the seconds they would take, and the seconds they likely save."""

    tokens: int
    seconds: float
    saved: float


class DraftPrefill:
    """Estimates the seconds to read a token, by source, and the length of replies."""

    def __init__(self) -> None:
        self._said: dict[int, int] = {}  # tokens so far, by sequence
        self._copied: dict[int, int] = {}  # of them copied by sources that read nothing
        self._usual = USUAL
        self._seconds: dict[str, deque[float]] = {}  # of a token read, by source

    def follow(self, views: Sequence[View]) -> None:
        """Keep these sequences; the others have ended."""
        now = {view.id for view in views}
        for ended in self._said.keys() - now:
            self._usual += (self._said.pop(ended) - self._usual) / 8
            self._copied.pop(ended, None)

    def observe(self, sequence: int, committed: int, copied: int) -> None:
        """Count a round's tokens, and those of them that look-ups guessed."""
        if committed:
            self._said[sequence] = self._said.get(sequence, 0) + committed
            self._copied[sequence] = self._copied.get(sequence, 0) + copied

    def took(self, name: str, spent: Spent, step: float) -> None:
        """Learn the seconds of reading from a round; `step` is the seconds of a step."""
        if spent.read >= MEASURED and math.isfinite(spent.seconds):
            seconds = max(spent.seconds - spent.steps * step, 0.0) / spent.read
            self._seconds.setdefault(name, deque(maxlen=5)).append(seconds)

    def seconds(self, name: str, tokens: int, *, step: float, cost: CostTable) -> float:
        """Return the seconds of reading; before any was measured a draft model is taken to scale as the target."""
        if tokens <= LAG:
            return 0.0
        if known := self._seconds.get(name):
            return tokens * median(known)
        return tokens * step * cost.at(ROWS) / cost.at(1) / ROWS

    def is_worth(self, seconds: float, saved: float) -> bool:
        """Return whether the seconds of reading are worth the seconds that are likely saved."""
        return MARGIN * seconds <= saved

    def to_come(self, view: View, *, may_copy: bool) -> float:
        """Return the expected number of remaining tokens that no look-up copies."""
        said = len(view.tokens) - view.prompt_length
        left = min(max(self._usual - said, said), max(view.params.max_tokens - said, 0))
        return left * (1 - (COPIED + self._copied.get(view.id, 0)) / (BEFORE + said)) if may_copy else left
