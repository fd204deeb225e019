"""`paceline models`: models with a name, and models on this disk."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.errors import UsageError

if TYPE_CHECKING:
    from paceline.formats.catalog import Record

_TABLE_COLUMNS = 60

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


_HELP = {"help_option_names": ["-h", "--help"]}


@app.callback(invoke_without_command=True, context_settings=_HELP)
def models(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON list to stdout.")] = False,
) -> None:
    """List the models that have a name, and those already here.

    A table on a terminal; in a pipe one line a model: name, bytes, licence, path (empty if it is not here), with
    tabs between. Other models go by file, folder or hf:ORG/NAME[:FILE.gguf or :TYPE].
    """
    if ctx.invoked_subcommand is not None:
        return
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


@app.command(context_settings=_HELP)
def show(
    source: Annotated[str, typer.Argument(help="A name, a file or a folder, as `--model` takes it.", metavar="SRC")],
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")] = False,
    template: Annotated[bool, typer.Option("--template", help="Print the chat template and nothing else.")] = False,
) -> None:
    """Tell of a model: its architecture, number formats, memory, chat template and licence. Nothing is loaded."""
    found = described(_here(source))
    if template:
        print(found["chat_template"] or "", end="")
    elif as_json:
        print(json.dumps(found))
    else:
        width = max(map(len, found))
        for name, value in found.items():
            shown = _template_line(value) if name == "chat_template" else _line(value)
            print(f"{name.replace('_', ' '):<{width}}  {shown}")


@app.command(context_settings=_HELP)
def rm(name: Annotated[str, typer.Argument(help="A name that `paceline models` lists.", metavar="NAME")]) -> None:
    """Delete a model's file from this disk; a model with a name can be fetched again."""
    from paceline.formats.catalog import known_models

    path = next((record.path for record in known_models() if record.name == name), None)
    if path is None:
        here = [record.name for record in known_models() if record.path is not None]
        raise UsageError(
            f"a model must be here to be deleted, got `{name}`",
            hint=f"here: {', '.join(here) or 'none'}; other files are yours",
        )
    size = path.stat().st_size
    path.unlink()
    print(f"deleted {path} ({size / 1e6:,.0f} MB)")


def _here(source: str) -> Path:
    """Return a model's path; a known one is not fetched for it."""
    from paceline.formats.catalog import is_here, known_models, resolve

    if not is_here(source) and source in [record.name for record in known_models()]:
        raise UsageError(f"the model must be here, got `{source}`, which is not", hint=f"paceline pull {source}")
    return resolve(source)


def described(path: Path) -> dict[str, Any]:
    """Return what a model's file says of itself."""
    from collections import Counter

    from paceline.engine.loading import read_tokenizer
    from paceline.formats.files import open_model
    from paceline.formats.tensor_names import shapes_of

    file = open_model(path)
    try:
        spec, kinds = file.spec, Counter[str]()
        for name in shapes_of(spec):
            if (tensor := file.tensor(name)) is not None:
                kinds[tensor.type.name] += tensor.nbytes
        tokenizer = read_tokenizer(file)
        licence = file.metadata.get("general.license")
        return {
            "path": str(path),
            "architecture": spec.architecture,
            "layers": spec.layers,
            "width": spec.width,
            "heads": f"{spec.heads}, {spec.kv_heads} for keys and values, {spec.head_dim} numbers each",
            "vocabulary": tokenizer.vocab_size,
            "context": spec.context,
            "weights": dict(kinds.most_common()),
            "weight_bytes": sum(kinds.values()),
            "cache_bytes_per_token": 2 * spec.layers * spec.kv_heads * spec.head_dim * 2,
            "ends": [tokenizer.token_text(token) for token in sorted(tokenizer.eos_ids)],
            "licence": licence if isinstance(licence, str) else None,
            "chat_template": tokenizer.chat_template,
        }
    finally:
        file.close()


def _line(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _template_line(text: str | None) -> str:
    if text is None:
        return "none: a base model, or its control tokens tell which template is meant"
    return f"{len(text):,} characters, {'with' if 'tools' in text else 'without'} tools; --template prints it"


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
