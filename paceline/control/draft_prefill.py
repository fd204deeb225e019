"""Whether a draft model should read what it lacks of a text: one more price, against what it is likely to save.

Reading is cheap by the token, but a long prompt, or what others copied meanwhile, may take longer than the rest of a
reply can save. The rest is taken to be as long as what came so far, or as replies usually are, and no longer than the
user allows, and to be copied by look-ups as often as it was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.estimate.cost import CostTable
from paceline.estimate.numbers import median
from paceline.types import LAG, Spent, View

USUAL = 128.0  # tokens of a reply, before any was seen
MEASURED = 32  # tokens read at once, from which on they tell what reading takes
BEFORE, COPIED = 8.0, 6.0  # tokens that are taken to have gone before a new text, and how many of them were copied
MARGIN = 2.0  # times what reading takes must be saved, for that is certain and the rest of the reply is not
ROWS = 8  # of the target's whose seconds say what reading takes before anything was read; 16 says a quarter too little


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a source was not asked to read: so many tokens, the seconds that takes, and those it was likely to save."""

    tokens: int
    seconds: float
    saved: float


class DraftPrefill:
    """What a token takes to read, by source, and how long replies are."""

    def __init__(self) -> None:
        self._said: dict[int, int] = {}  # tokens so far, by sequence
        self._copied: dict[int, int] = {}  # of them kept from sources that read nothing
        self._usual = USUAL
        self._seconds: dict[str, deque[float]] = {}  # of a token read, by source

    def follow(self, views: Sequence[View]) -> None:
        """Go on with these sequences; the others have ended."""
        now = {view.id for view in views}
        for ended in self._said.keys() - now:
            self._usual += (self._said.pop(ended) - self._usual) / 8
            self._copied.pop(ended, None)

    def observe(self, sequence: int, committed: int, copied: int) -> None:
        """Count a round's tokens, and those of them that sources guessed which read nothing."""
        if committed:
            self._said[sequence] = self._said.get(sequence, 0) + committed
            self._copied[sequence] = self._copied.get(sequence, 0) + copied

    def took(self, name: str, spent: Spent, step: float) -> None:
        """Learn what reading takes from a round; `step` seconds are a step's."""
        if spent.read >= MEASURED and math.isfinite(spent.seconds):
            seconds = max(spent.seconds - spent.steps * step, 0.0) / spent.read
            self._seconds.setdefault(name, deque(maxlen=5)).append(seconds)

    def seconds(self, name: str, tokens: int, *, step: float, cost: CostTable) -> float:
        """Return what reading so many takes; before any was read a draft model is taken to scale as the target."""
        if tokens <= LAG:
            return 0.0
        if known := self._seconds.get(name):
            return tokens * median(known)
        return tokens * step * cost.at(ROWS) / cost.at(1) / ROWS

    def is_worth(self, seconds: float, saved: float) -> bool:
        """Tell whether reading for so long is worth what it is likely to save, in seconds."""
        return MARGIN * seconds <= saved

    def to_come(self, view: View, *, may_copy: bool) -> float:
        """Return how many tokens a reply is taken to have left that no look-up copies."""
        said = len(view.tokens) - view.prompt_length
        left = min(max(self._usual - said, said), max(view.params.max_tokens - said, 0))
        return left * (1 - (COPIED + self._copied.get(view.id, 0)) / (BEFORE + said)) if may_copy else left
