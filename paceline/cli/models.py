"""`paceline models`: models with a name, and models on this disk."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from paceline.formats.catalog import Record

_TABLE_COLUMNS = 60

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def models(as_json: Annotated[bool, typer.Option("--json", help="Write a JSON list to stdout.")] = False) -> None:
    """List the models that have a name, and those already here.

    A table on a terminal; in a pipe one line a model: name, bytes, licence, path (empty if it is not here), with
    tabs between. Other models go by file, folder or hf:ORG/NAME[:FILE.gguf or :TYPE].
    """
    from paceline.config import DEFAULT_MODEL
    from paceline.formats.catalog import known_models, models_folder

    records = known_models()
    if as_json:
        rows = [
            {"name": r.name, "bytes": r.bytes, "licence": r.licence, "path": None if r.path is None else str(r.path)}
            for r in records
        ]
        print(json.dumps(rows))
    elif sys.stdout.isatty():
        show = _table if shutil.get_terminal_size().columns >= _TABLE_COLUMNS else _blocks
        show(records, DEFAULT_MODEL)
        print(f"\nHere is {models_folder()}; fetch one with: paceline pull NAME")
    else:
        for r in records:
            print(r.name, r.bytes, r.licence, r.path or "", sep="\t")


def _table(records: list[Record], default: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("name", "size", "licence", "here"):
        table.add_column(name, justify="right" if name == "size" else "left", overflow="fold")
    for r in records:
        name = f"{r.name} (default)" if r.name == default else r.name
        table.add_row(name, f"{r.bytes / 1e6:,.0f} MB", r.licence, "no" if r.path is None else "yes")
    Console().print(table)


def _blocks(records: list[Record], default: str) -> None:
    """Print one model after the other, for a terminal too narrow for a table."""
    for r in records:
        print(f"{r.name} (default)" if r.name == default else r.name)
        print(
            f"  {r.bytes / 1e6:,.0f} MB{', ' if r.licence else ''}{r.licence}, {'not ' if r.path is None else ''}here"
        )
