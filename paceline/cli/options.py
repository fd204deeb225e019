"""The options that commands share. Their defaults are those of `LLMConfig` and `SamplingParams`.

A command lists them in its signature, which is how typer learns of them, and reads them all at once with `chosen`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from paceline.choices import CONTROLLERS, DRAFTERS, VERIFIERS
from paceline.config import DRAFT_QUANTS, QUANTS, LLMConfig, drafters_of
from paceline.errors import UsageError
from paceline.types import SamplingParams

CONFIG = LLMConfig()
PARAMS = SamplingParams()

_MODEL, _DRAFT, _DRAW, _RUN = "Model", "Speculation", "Sampling", "Running"

Model = Annotated[
    str,
    typer.Option(
        help="A known name (see `paceline models`), a .gguf file, a Hugging Face folder, or hf:ORG/NAME, with "
        ":FILE.gguf or :TYPE (as Q4_K_M) if it has several.",
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
        help=f"What guesses: {DRAFTERS.help()}; or a smaller model, named like --model; several with commas between.",
        metavar="SRC",
        rich_help_panel=_DRAFT,
    ),
]
DraftTokens = Annotated[
    int,
    typer.Option(
        help="Guesses a round at most; exactly so many with --control fixed; 0 is off.",
        metavar="K",
        rich_help_panel=_DRAFT,
    ),
]
DraftQuant = Annotated[
    str,
    typer.Option(
        help=f"Repack the draft model: {', '.join(DRAFT_QUANTS)}; the law of the output stays.",
        metavar="TYPE",
        rich_help_panel=_DRAFT,
    ),
]
DraftHead = Annotated[
    int,
    typer.Option(help="How many tokens a draft model may guess; 0: all.", metavar="N", rich_help_panel=_DRAFT),
]
Verify = Annotated[
    str,
    typer.Option(
        help=f"How guesses are checked: {VERIFIERS.help()}. With coupled alone a seed repeats whatever is drafted.",
        metavar="MODE",
        rich_help_panel=_DRAFT,
    ),
]
Control = Annotated[
    str,
    typer.Option(
        help=f"What decides how much to guess: {CONTROLLERS.help()}.",
        metavar="NAME",
        rich_help_panel=_DRAFT,
    ),
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
TypicalP = Annotated[
    float,
    typer.Option(
        help="Draw among the tokens of most usual surprise that sum to P; 1 is off.", metavar="P", rich_help_panel=_DRAW
    ),
]
RepetitionPenalty = Annotated[
    float,
    typer.Option(
        help="Make tokens of prompt and reply less likely, by a factor on their logits; 1 is off.",
        metavar="F",
        rich_help_panel=_DRAW,
    ),
]
PresencePenalty = Annotated[
    float,
    typer.Option(
        help="Take this from the logits of tokens the reply has; 0 is off.", metavar="X", rich_help_panel=_DRAW
    ),
]
FrequencyPenalty = Annotated[
    float, typer.Option(help="The same for each time the reply has them; 0 is off.", metavar="X", rich_help_panel=_DRAW)
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(help="Add to the logit of a token; may be repeated.", metavar="ID=VALUE", rich_help_panel=_DRAW),
]
BadWord = Annotated[
    list[str] | None,
    typer.Option("--bad-word", help="Never write this; may be repeated.", metavar="TEXT", rich_help_panel=_DRAW),
]
MinTokens = Annotated[
    int, typer.Option(help="Do not end before so many tokens; 0 is off.", metavar="N", rich_help_panel=_DRAW)
]
Logprob = Annotated[
    int | None,
    typer.Option(
        help="With --json: each token's log probability and N alternatives.",
        metavar="N",
        show_default=False,
        rich_help_panel=_DRAW,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Same seed, same reply; with --verify coupled whatever is drafted.",
        metavar="S",
        rich_help_panel=_DRAW,
    ),
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
Prediction = Annotated[
    str | None,
    typer.Option(
        help="What the reply is expected to be, for example a text before its edit: makes it faster where it is right.",
        metavar="FILE",
        show_default=False,
        rich_help_panel=_DRAFT,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="One per core if not given.", metavar="N", show_default=False, rich_help_panel=_RUN),
]


def chosen(options: Mapping[str, Any]) -> tuple[LLMConfig, SamplingParams]:
    """Sort a command's options, `ctx.params`, into how to load and how to draw; check both before a model is loaded."""
    from paceline.sample.params import validate

    lists = {
        "stop": tuple(options.get("stop") or ()),
        "bad_words": tuple(options.get("bad_words") or ()),
        "logit_bias": tuple(map(_pair, options.get("logit_bias") or ())),
    }
    config = LLMConfig.of(**_of(LLMConfig, options))
    params = SamplingParams(**_of(SamplingParams, {**options, **lists}))
    validate(params)
    check_prediction(config, given=options.get("prediction") is not None, can_give="prediction" in options)
    return config, params


def check_prediction(config: LLMConfig, *, given: bool, can_give: bool) -> None:
    """Refuse a prediction that no drafter reads, and a drafter of predictions without one."""
    wanted = drafters_of(config)
    reads = {choice.prediction for choice in wanted.values() if choice}
    if given and [*wanted] == ["off"]:
        raise UsageError("--prediction is used by speculation, which is off", hint="drop one of the two")
    if given and not reads & {"read", "needed"}:
        raise UsageError(
            f"--prediction needs a drafter that reads it, got `--draft {config.draft}`",
            hint=f"--draft {config.draft},predicted, or leave --draft out",
        )
    if "needed" in reads and not given:
        cure = "give the text that you expect: --prediction FILE"
        only = "only `paceline generate` and `paceline audit` take one, with --prediction FILE; choose another --draft"
        raise UsageError("--draft predicted needs a prediction, got none", hint=cure if can_give else only)


def _pair(text: str) -> tuple[int, float]:
    """Read `ID=VALUE`."""
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError as error:
        raise UsageError(
            f"--logit-bias must be ID=VALUE, got `{text}`", hint="--logit-bias 42=-100 bans token 42"
        ) from error


def _of(kind: type[LLMConfig | SamplingParams], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are fields of a dataclass; a field without an option keeps its default."""
    return {field.name: options[field.name] for field in fields(kind) if field.name in options}
