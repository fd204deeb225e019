"""`paceline pull`: bring models to disk."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def pull(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Known names or hf:ORG/NAME[:FILE.gguf or :TYPE].")
    ] = None,
) -> None:
    """Download models, so that later runs need no network; print where each one is.

    What is here already is only checked. A download that stopped goes on where it stopped.

    Example: paceline pull smollm2-135m
    """
    from paceline.formats.catalog import known_models, resolve

    if not names:
        known = ", ".join(record.name for record in known_models())
        raise UsageError("pull needs the name of a model", hint=f"known: {known}; or hf:ORG/NAME[:FILE.gguf or :TYPE]")
    for name in names:
        print(resolve(name, progress=True), flush=True)
