"""Write the reference pages that are made from the code: commands, settings, JSON keys, the Python face.

    python tools/reference.py FOLDER

Sphinx calls `write` before it reads the pages; see docs/conf.py.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import typer

import paceline
from paceline.cli.main import ALIASES, COMMANDS
from paceline.cli.options import Shared
from paceline.config import LLMConfig
from paceline.engine.json_keys import KEYS
from paceline.environment import VARIABLES

FUNCTIONS = (
    "load",
    "run_audit",
    "run_doctor",
    "run_plan",
    *(f"register_{kind}" for kind in ("drafter", "verifier", "controller")),
)
CLASSES = ("LLM", "Reply", "Completion", "SamplingParams", "Grammar", "Event", "Drafter")
PARTS = (
    "paceline.engine.metrics.SpeculationMetrics",
    "paceline.engine.completion.Timing",
    "paceline.engine.completion.Setup",
    "paceline.core.request.Logprobs",
)


def write(folder: Path) -> None:
    """Write all pages into a folder; those that have not changed are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page()
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def cli() -> str:
    """Return the page of all commands with their options."""
    parts = [
        "# Command line\n",
        "`paceline COMMAND --help` shows the same.\n",
    ]
    aliases = {command: name for name, command in ALIASES.items()}
    for name in COMMANDS:
        command = typer.main.get_command(importlib.import_module(f"paceline.cli.{name}").app)
        also = f" The same is called `paceline {aliases[name]}`." if name in aliases else ""
        parts += [f"## paceline {name}\n", prose(command.help or COMMANDS[name]) + also + "\n", *options(command)]
        for own, sub in sorted(getattr(command, "commands", {}).items()):
            parts += [f"### paceline {name} {own}\n", prose(sub.help or "") + "\n", *options(sub)]
    return "\n".join(parts)


def options(command: Any) -> Iterator[str]:
    """Yield a table for each panel of a command's options."""
    panels: dict[str, list[str]] = defaultdict(list)
    for one in command.params:
        if one.name == "help" or getattr(one, "hidden", False):
            continue
        is_option = one.param_type_name == "option"
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts)) if is_option else f"`{one.name}`"
        value = "" if not is_option or one.is_flag else f" *{one.metavar or 'VALUE'}*"
        usual = "" if one.default in (None, False, ()) or callable(one.default) else f"`{one.default}`"
        panel = getattr(one, "rich_help_panel", None) or ("Options" if is_option else "Arguments")
        panels[panel].append(f"| {names}{value} | {cell(one.help or '')} | {usual} |")
    for panel, rows in panels.items():
        yield f"**{panel}**\n\n| | | usually |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def settings() -> str:
    """Return the page of environment variables, and of what `LLM` and a file of models may set."""
    helps = {one.name: helped(one) for one in fields(Shared)}
    rows = [
        f"| `{one.name}` | {cell(helps.get(one.name) or OWN.get(one.name, ''))} | `{one.default!r}` |"
        for one in fields(LLMConfig)
    ]
    variables = [f"| `{name}` | {cell(text)} |" for name, text in VARIABLES.items()]
    return "\n".join(
        [
            "# Settings\n",
            "## Of a model\n",
            "`paceline.load(model, **settings)` takes them, and so does a table of the file that "
            "`paceline serve --models FILE` reads:\n",
            '```toml\n[coder]\nmodel = "qwen2.5-coder-1.5b"\ndraft = "auto,qwen2.5-coder-0.5b"\ncontext = 4096\n\n'
            '[small]\nmodel = "smollm2-135m"\n```\n',
            "| setting | | usually |\n|---|---|---|",
            *rows,
            "\n## Environment variables\n",
            "| variable | |\n|---|---|",
            *variables,
            "",
        ]
    )


OWN = {
    "slots": "How many replies may run at once; others wait.",
    "cache_bytes": "What their keys and values may take; room for `slots` whole contexts if not given. With less, "
    "replies wait or are read again when there is room; no token changes.",
}


def helped(field: Any) -> str:
    """Return the help of a shared option."""
    hint = get_type_hints(Shared, include_extras=True)[field.name]
    return next((meta.help for meta in getattr(hint, "__metadata__", ()) if getattr(meta, "help", None)), "")


def json_keys() -> str:
    """Return the page of the keys of a reply's JSON object."""
    rows = [f"| `{key}` | {cell(text)} |" for key, text in KEYS.items()]
    return "\n".join(
        [
            "# JSON of a reply\n",
            "`paceline generate --json` prints one object; `--messages` and `--prompts` print one a line, with `index` "
            "before the others. `Completion.to_json()` returns the same in Python. A dot leads into an object, "
            "`[]` into each of a list.\n",
            "| key | |\n|---|---|",
            *rows,
            "",
        ]
    )


def python() -> str:
    """Return the page of the Python face; Sphinx fills in signatures and docstrings."""
    parts = ["# Python\n", "Everything here is in the package itself: `import paceline`.\n", "## Functions\n"]
    parts += [directive("autofunction", f"paceline.{name}") for name in FUNCTIONS]
    parts.append("## Classes\n")
    parts += [directive("autoclass", f"paceline.{name}", members=True) for name in CLASSES]
    parts.append("## What a completion holds\n")
    parts += [directive("autoclass", name, members=True) for name in PARTS]
    parts.append("## Errors\n\nEach has a `hint` that says what to do; a traceback shows it.\n")
    known = {name: getattr(paceline, name) for name in paceline.__all__}
    errors = [n for n, kind in known.items() if isinstance(kind, type) and issubclass(kind, paceline.PacelineError)]
    parts += [directive("autoexception", f"paceline.{name}") for name in errors]
    return "\n".join(parts)


def directive(kind: str, name: str, *, members: bool = False) -> str:
    """Return one of Sphinx' directives."""
    inside = "   :members:\n" if members else ""
    return f"```{{eval-rst}}\n.. {kind}:: {name}\n{inside}```\n"


def prose(text: str) -> str:
    """Return a help text as Markdown: without typer's marks, paragraphs on a line."""
    text = re.sub(r"\[/?(bold|dim)\]", "", text)
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).replace("<|", "`<|").replace("|>", "|>`")


def cell(text: str) -> str:
    """Return a text that stands in a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {"cli": cli, "python": python, "json": json_keys, "settings": settings}

if __name__ == "__main__":
    write(Path(sys.argv[1]))
