"""A progress bar over a whole run, on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from paceline.bench.session import Progress


class Bar(Progress):
    """Prompts done of all, with what is being played now; nothing in a pipe, or if not `wanted`."""

    def __init__(self, total: int, *, wanted: bool) -> None:
        self._bar: Any = None
        if not wanted or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Bar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, *words: object) -> None:
        if self._bar:
            self._bar.update(self._task, description=" ".join(map(str, words)))

    def reach(self, done: int) -> None:
        """Say how many prompts are done."""
        if self._bar:
            self._bar.update(self._task, completed=done)
