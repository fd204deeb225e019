"""`paceline serve`: a model over HTTP."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.generate import read_file
from paceline.cli.terminal import importing, say
from paceline.config import drafters_of
from paceline.errors import UsageError

KEY = "PACELINE_API_KEY"
LEARNING = ("recycle", "lookahead", "suffix:")  # drafters whose tables outlive a request
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SERVER = "Server"

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*o.LOADING, "threads")
def serve(
    given: o.Shared,
    host: Annotated[
        str, typer.Option(help="Address to listen at.", metavar="ADDRESS", rich_help_panel=_SERVER)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 is any free one.", min=0, max=65535, rich_help_panel=_SERVER)
    ] = 8080,
    name: Annotated[
        str | None,
        typer.Option(help="What clients call the model; the model's own name if not given.", rich_help_panel=_SERVER),
    ] = None,
    slots: Annotated[
        int, typer.Option(help="Replies that run at once.", metavar="N", min=1, max=256, rich_help_panel=_SERVER)
    ] = 8,
    cache_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes for the keys and values of all replies; room for all slots if not given.",
            metavar="N",
            min=1,
            show_default=False,
            rich_help_panel=_SERVER,
        ),
    ] = None,
    max_queue: Annotated[
        int,
        typer.Option(
            help="Replies that may wait for a slot; more are told to come back.",
            metavar="N",
            min=0,
            rich_help_panel=_SERVER,
        ),
    ] = 64,
    api_key_file: Annotated[
        str | None,
        typer.Option(
            help=f"File of keys, one a line; without it, the key in {KEY}, if any.",
            metavar="FILE",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    allow_unknown_fields: Annotated[
        bool,
        typer.Option(
            "--allow-unknown-fields",
            help="Leave out fields that are not known, instead of refusing.",
            rich_help_panel=_SERVER,
        ),
    ] = False,
    share_prefixes: Annotated[
        bool,
        typer.Option(
            "--share-prefixes",
            help="Let requests of one key find in the cache what those of another read.",
            rich_help_panel=_SERVER,
        ),
    ] = False,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log each request's path and status.", rich_help_panel=_SERVER)
    ] = False,
    drain_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds that open replies have when the server is told to end.",
            metavar="S",
            min=0,
            rich_help_panel=_SERVER,
        ),
    ] = 30.0,
) -> int:
    """Serve a model over HTTP: OpenAI's API under /v1, a page to watch speculation at /.

    Example: paceline serve --model smollm2-135m --port 8080
    """
    config, _ = given.chosen()
    config = replace(config, slots=slots, cache_bytes=cache_bytes)
    keys = _keys(api_key_file)
    learning = [draft for draft in drafters_of(config) if draft.startswith(LEARNING)]
    if len(keys) > 1 and learning and not share_prefixes:
        raise UsageError(
            f"drafter `{learning[0]}` learns from every request, and the server has {len(keys)} keys",
            hint="choose another --draft, or let keys share with --share-prefixes",
        )
    with importing():
        try:
            from paceline.server.app import Limits
            from paceline.server.run import serve as run
        except ImportError as error:
            raise UsageError(
                f"the server needs {error.name}, which is not installed", hint="pip install 'paceline[serve]'"
            ) from error
        from paceline.service.llm import LLM

    if not keys and host not in LOOPBACK:
        say(f"warning: {host} is open to other machines, and no key is asked for; see --api-key-file")

    def load() -> LLM:
        try:
            llm = LLM(**asdict(config), progress=sys.stderr.isatty())
        except Exception as error:
            say(f"error: {error}")
            raise
        say(f"{llm.setup.model} is ready: drafts by {', '.join(llm.setup.drafters) or 'none'}")
        return llm

    run(
        name or Path(config.model).stem if name or os.sep in config.model else config.model,
        load,
        address=host,
        port=port,
        limits=Limits(
            keys, drain_seconds=drain_seconds, allows_unknown=allow_unknown_fields, shares_prefixes=share_prefixes
        ),
        most_waiting=max_queue,
        access_log=access_log,
        started=lambda url: say(f"{url} (Ctrl-C ends)"),
    )
    return 0


def _keys(file: str | None) -> list[str]:
    if file is None:
        return [os.environ[KEY]] if os.environ.get(KEY) else []
    keys = [line.strip() for line in read_file(file, "--api-key-file").splitlines() if line.strip()]
    if not keys:
        raise UsageError(f"--api-key-file must hold a key, got none in `{file}`", hint="one key a line")
    return keys
