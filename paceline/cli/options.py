"""The options that `generate` and `chat` share. Their defaults are those of `LLMConfig` and `SamplingParams`.

A command lists them in its signature, which is how typer learns of them, and reads them all at once with `chosen`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from paceline.config import CONTROLS, QUANTS, VERIFIERS, LLMConfig
from paceline.types import SamplingParams

CONFIG = LLMConfig()
PARAMS = SamplingParams()

_MODEL, _DRAFT, _DRAW, _RUN = "Model", "Speculation", "Sampling", "Running"

Model = Annotated[
    str,
    typer.Option(
        help="A known name (see `paceline models`), a .gguf file, a Hugging Face folder, or hf:ORG/NAME[:FILE.gguf].",
        metavar="SRC",
        rich_help_panel=_MODEL,
    ),
]
Quant = Annotated[
    str,
    typer.Option(
        help=f"Repack the model's linear layers: {', '.join(QUANTS)}.", metavar="TYPE", rich_help_panel=_MODEL
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        help="Tokens that prompt and reply share; the model's own, at most 8192, if not given.",
        metavar="N",
        show_default=False,
        rich_help_panel=_MODEL,
    ),
]
Draft = Annotated[
    str,
    typer.Option(
        help="Who guesses: off, ngram (looks the text up in itself), auto (for now ngram), or a smaller model, named "
        "like --model.",
        metavar="SRC",
        rich_help_panel=_DRAFT,
    ),
]
DraftTokens = Annotated[int, typer.Option(help="Guesses a round; 0 is off.", metavar="K", rich_help_panel=_DRAFT)]
DraftQuant = Annotated[
    str,
    typer.Option(help="Repack the draft model; never changes the output.", metavar="TYPE", rich_help_panel=_DRAFT),
]
DraftHead = Annotated[
    int,
    typer.Option(help="How many tokens a draft model may guess; 0: all.", metavar="N", rich_help_panel=_DRAFT),
]
Verify = Annotated[
    str,
    typer.Option(help=f"How guesses are checked: {', '.join(VERIFIERS)}.", metavar="MODE", rich_help_panel=_DRAFT),
]
Control = Annotated[
    str,
    typer.Option(help=f"Who decides how much to guess: {', '.join(CONTROLS)}.", metavar="NAME", rich_help_panel=_DRAFT),
]
MaxTokens = Annotated[int, typer.Option(help="Longest reply.", metavar="N", rich_help_panel=_DRAW)]
Temperature = Annotated[
    float, typer.Option(help="0 always takes the likeliest token.", metavar="T", rich_help_panel=_DRAW)
]
TopK = Annotated[int, typer.Option(help="Draw among the K likeliest; 0 is off.", metavar="K", rich_help_panel=_DRAW)]
TopP = Annotated[
    float, typer.Option(help="Draw among the likeliest that sum to P; 1 is off.", metavar="P", rich_help_panel=_DRAW)
]
MinP = Annotated[
    float,
    typer.Option(
        help="Draw among tokens at least P times as likely as the likeliest; 0 is off.",
        metavar="P",
        rich_help_panel=_DRAW,
    ),
]
Seed = Annotated[
    int, typer.Option(help="Same seed, same reply, with or without drafts.", metavar="S", rich_help_panel=_DRAW)
]
Stop = Annotated[
    list[str] | None,
    typer.Option(help="End before this text; may be repeated.", metavar="STR", rich_help_panel=_DRAW),
]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on when the model would end.", rich_help_panel=_DRAW)]
System = Annotated[
    str | None,
    typer.Option(help="Instructions before the conversation.", metavar="TEXT", rich_help_panel=_RUN),
]
Threads = Annotated[
    int | None,
    typer.Option(help="One per core if not given.", metavar="N", show_default=False, rich_help_panel=_RUN),
]


def chosen(options: Mapping[str, Any]) -> tuple[LLMConfig, SamplingParams]:
    """Sort a command's options, `ctx.params`, into how to load and how to draw; check both before a model is loaded."""
    from paceline.sample.params import validate

    config = LLMConfig.of(**_of(LLMConfig, options))
    params = SamplingParams(**_of(SamplingParams, {**options, "stop": tuple(options["stop"] or ())}))
    validate(params)
    return config, params


def _of(kind: type[LLMConfig | SamplingParams], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are fields of a dataclass; a field without an option keeps its default."""
    return {field.name: options[field.name] for field in fields(kind) if field.name in options}
