"""`paceline serve`: a model over HTTP."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.terminal import importing, say
from paceline.cli.texts import read_file
from paceline.config import LLMConfig, drafters_of
from paceline.errors import UsageError

KEY = "PACELINE_API_KEY"
LEARNING = ("recycle", "lookahead", "suffix:")  # drafters whose tables outlive a request
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SERVER = "Server"
_EXAMPLE = '[coder] then model = "qwen2.5-coder-1.5b" and draft = "auto,qwen2.5-coder-0.5b", each on a line'

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
@o.takes(*(name for name in o.LOADING if name != "model"), "threads")
def serve(
    given: o.Shared,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A model, as `paceline generate` takes it; several if repeated, each loaded when first asked for.",
            metavar="SRC",
            rich_help_panel="Model",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--models",
            help="TOML file of models: a table for each name, with the settings of `paceline.LLM`.",
            metavar="FILE",
            rich_help_panel="Model",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at.", metavar="ADDRESS", rich_help_panel=_SERVER)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 is any free one.", min=0, max=65535, rich_help_panel=_SERVER)
    ] = 8080,
    name: Annotated[
        str | None,
        typer.Option(help="What clients call the model; its own name if not given.", rich_help_panel=_SERVER),
    ] = None,
    models_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes that all loaded models may take, by their files and --cache-bytes; others make room.",
            metavar="N",
            min=1,
            show_default=False,
            rich_help_panel=_SERVER,
        ),
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds without a request after which a model is unloaded; never if not given.",
            metavar="S",
            min=0.1,
            show_default=False,
            rich_help_panel=_SERVER,
        ),
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
    reply_seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a reply has until it ends with what it has; no limit if not given.",
            metavar="S",
            min=0.1,
            show_default=False,
            rich_help_panel=_SERVER,
        ),
    ] = None,
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
    """Serve models over HTTP: OpenAI's API under /v1, a page to watch speculation at /.

    Example: paceline serve --model smollm2-135m --port 8080
    """
    given_once, _ = given.chosen()
    base = replace(given_once, slots=slots, cache_bytes=cache_bytes)
    configs = _configs(base, sources, file, name)
    keys = _keys(api_key_file)
    for config in configs.values():
        learning = [draft for draft in drafters_of(config) if draft.startswith(LEARNING)]
        if len(keys) > 1 and learning and not share_prefixes:
            raise UsageError(
                f"drafter `{learning[0]}` learns from every request, and the server has {len(keys)} keys",
                hint="choose another --draft, or let keys share with --share-prefixes",
            )
    with importing():
        try:
            from paceline.server.app import Limits
            from paceline.server.run import Offer
            from paceline.server.run import serve as run
        except ImportError as error:
            raise UsageError(
                f"the server needs {error.name}, which is not installed", hint="pip install 'paceline[serve]'"
            ) from error
        from paceline.engine.loading import expected_bytes
        from paceline.service.llm import LLM

    if not keys and host not in LOOPBACK:
        say(f"warning: {host} is open to other machines, and no key is asked for; see --api-key-file")

    def load(name: str, config: LLMConfig) -> LLM:
        try:
            llm = LLM(**asdict(config), progress=sys.stderr.isatty())
        except Exception as error:
            say(f"error: {error}")
            raise
        say(f"{name} is ready after {llm.load_seconds:.1f} s: drafts by {', '.join(llm.setup.drafters) or 'none'}")
        return llm

    run(
        [Offer(name, partial(load, name, one), partial(expected_bytes, one)) for name, one in configs.items()],
        address=host,
        port=port,
        limits=Limits(
            keys,
            reply_seconds=reply_seconds,
            drain_seconds=drain_seconds,
            allows_unknown=allow_unknown_fields,
            shares_prefixes=share_prefixes,
        ),
        most_waiting=max_queue,
        most_bytes=models_bytes,
        idle_seconds=idle_seconds,
        access_log=access_log,
        started=lambda url: say(f"{url} (Ctrl-C ends)"),
    )
    return 0


def _configs(base: LLMConfig, sources: list[str] | None, file: str | None, name: str | None) -> dict[str, LLMConfig]:
    """Return the models to serve by the names that clients use, those of the command line first."""
    given = sources or ([] if file else [base.model])
    if name is not None and len(given) != 1:
        raise UsageError(f"--name is for one --model, got {len(given)}", hint="name models in a file: --models FILE")
    found = {name or _called(one): LLMConfig.of(**{**asdict(base), "model": one}) for one in given}
    if len(found) < len(given):
        raise UsageError("each --model must have a name of its own", hint="name models in a file: --models FILE")
    for own, settings in (_tables(file) if file else {}).items():
        if own in found:
            raise UsageError(f"--models {file} and --model must not name the same, got `{own}` twice")
        try:
            found[own] = LLMConfig.of(**{**asdict(base), "model": own, **settings})
        except UsageError as error:
            raise UsageError(f"--models {file}, `{own}`: {error}", hint=error.hint) from error
    return found


def _called(source: str) -> str:
    return Path(source).stem if os.sep in source else source


def _tables(file: str) -> dict[str, dict[str, object]]:
    try:
        said = tomllib.loads(read_file(file, "--models"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--models must be TOML, got `{file}`: {error}", hint=_EXAMPLE) from error
    wrong = next((name for name, value in said.items() if not isinstance(value, dict)), None)
    if wrong is not None or not said:
        got = f"`{wrong}`, which is none" if wrong else "none"
        raise UsageError(f"--models must be a file of tables, one for each model, got {got}", hint=_EXAMPLE)
    return said


def _keys(file: str | None) -> list[str]:
    if file is None:
        return [os.environ[KEY]] if os.environ.get(KEY) else []
    keys = [line.strip() for line in read_file(file, "--api-key-file").splitlines() if line.strip()]
    if not keys:
        raise UsageError(f"--api-key-file must hold a key, got none in `{file}`", hint="one key a line")
    return keys
