"""A length by position in the reply, whatever the text: long guesses early, short ones late. A baseline."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.request import View
from paceline.core.round import Budget, Load, Round

STEPS = ((0, 8), (64, 4), (256, 2))  # from so many tokens of reply on, so many guesses


class ScheduleController:
    """Guesses `STEPS` says, at most `most`."""

    def __init__(self, most: int, steps: Sequence[tuple[int, int]] = STEPS) -> None:
        self._most, self._steps = most, tuple(steps)
        said = ", ".join(f"{min(count, most)} from token {start}" for start, count in self._steps)
        self.reason = f"by position: {said}"

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        return [self._budget(len(view.tokens) - view.prompt_length) for view in views]

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn nothing."""

    def _budget(self, position: int) -> Budget:
        count = max((step for step in self._steps if step[0] <= position), default=(0, 0))[1]
        return Budget(min(count, self._most), min(count, self._most))
