"""A progress bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(name: str, total: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """Show how many of `total` pieces of work are done, on stderr and only if that is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def reading(name: str, total: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """Show how much of `total` bytes has been read, on stderr and only if that is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    name_column = Column(no_wrap=True, overflow="ellipsis", max_width=2 * console.width // 5)
    columns = (TextColumn("{task.description}", table_column=name_column), BarColumn())
    with Progress(*columns, DownloadColumn(table_column=Column(no_wrap=True)), console=console, transient=True) as bar:
        task = bar.add_task(f"loading {name}", total=total)
        yield lambda done: bar.update(task, completed=done)
