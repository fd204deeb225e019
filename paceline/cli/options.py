"""The options that commands share, each declared once. Their defaults are those of `LLMConfig` and `SamplingParams`.

A command names those it takes (`takes`) and gets them as one `Shared`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from paceline.choices import CONTROLLERS, DRAFTERS, VERIFIERS
from paceline.config import DRAFT_QUANTS, QUANTS, LLMConfig, drafters_of
from paceline.core.request import Grammar, SamplingParams
from paceline.errors import UsageError

CONFIG = LLMConfig()
PARAMS = SamplingParams()

_MODEL, _DRAFT, _DRAW, _RUN = "Model", "Speculation", "Sampling", "Running"

LOADING = ("model", "quant", "context", "draft", "draft_tokens", "draft_quant", "draft_head", "verify", "control")
FORMS = ("json_schema", "regex", "lark")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "bad_words", "min_tokens")
DRAWING = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "typical_p", *PENALTIES)
OWN = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")  # a model may have its own
ENDING = ("seed", "stop", "ignore_eos")

Command = Callable[..., int | None]


@dataclass(frozen=True)
class Shared:
    """The options that commands share, as they were given; those that a command does not take have their defaults."""

    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A known name (see `paceline models`), a .gguf file, a Hugging Face folder, or hf:ORG/NAME, with "
            ":FILE.gguf or :TYPE (as Q4_K_M) if it has several.",
            metavar="SRC",
            rich_help_panel=_MODEL,
        ),
    ] = CONFIG.model
    quant: Annotated[
        str,
        typer.Option(
            help=f"Repack the model's linear layers: {', '.join(QUANTS)}.", metavar="TYPE", rich_help_panel=_MODEL
        ),
    ] = CONFIG.quant
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            "-c",
            "--ctx-size",
            help="Tokens that prompt and reply share; the model's own, at most 8192, if not given.",
            metavar="N",
            show_default=False,
            rich_help_panel=_MODEL,
        ),
    ] = CONFIG.context
    draft: Annotated[
        str,
        typer.Option(
            "--draft",
            "-md",
            "--model-draft",
            help=f"What guesses: {DRAFTERS.help()}; or a smaller model, named like --model; several with commas "
            "between.",
            metavar="SRC",
            rich_help_panel=_DRAFT,
        ),
    ] = CONFIG.draft
    draft_tokens: Annotated[
        int,
        typer.Option(
            help="Guesses a round at most; exactly so many with --control fixed; 0 is off.",
            metavar="K",
            rich_help_panel=_DRAFT,
        ),
    ] = CONFIG.draft_tokens
    draft_quant: Annotated[
        str,
        typer.Option(
            help=f"Repack the draft model: {', '.join(DRAFT_QUANTS)}; the distribution of the output stays.",
            metavar="TYPE",
            rich_help_panel=_DRAFT,
        ),
    ] = CONFIG.draft_quant
    draft_head: Annotated[
        int, typer.Option(help="How many tokens a draft model may guess; 0: all.", metavar="N", rich_help_panel=_DRAFT)
    ] = CONFIG.draft_head
    verify: Annotated[
        str,
        typer.Option(
            help=f"How guesses are checked: {VERIFIERS.help()}. With coupled alone a seed repeats whatever is drafted.",
            metavar="MODE",
            rich_help_panel=_DRAFT,
        ),
    ] = CONFIG.verify
    control: Annotated[
        str,
        typer.Option(
            help=f"What decides how much to guess: {CONTROLLERS.help()}.",
            metavar="NAME",
            rich_help_panel=_DRAFT,
        ),
    ] = CONFIG.control
    prediction: Annotated[
        str | None,
        typer.Option(
            help="What the reply is expected to be, for example a text before its edit: makes it faster where it is "
            "right.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_DRAFT,
        ),
    ] = None
    max_tokens: Annotated[
        int,
        typer.Option("--max-tokens", "-n", "--n-predict", help="Longest reply.", metavar="N", rich_help_panel=_DRAW),
    ] = PARAMS.max_tokens
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", "--temp", help="0 always takes the likeliest token.", metavar="T", rich_help_panel=_DRAW
        ),
    ] = PARAMS.temperature
    top_k: Annotated[
        int, typer.Option(help="Draw among the K likeliest; 0 is off.", metavar="K", rich_help_panel=_DRAW)
    ] = PARAMS.top_k
    top_p: Annotated[
        float,
        typer.Option(help="Draw among the likeliest that sum to P; 1 is off.", metavar="P", rich_help_panel=_DRAW),
    ] = PARAMS.top_p
    min_p: Annotated[
        float,
        typer.Option(
            help="Draw among tokens at least P times as likely as the likeliest; 0 is off.",
            metavar="P",
            rich_help_panel=_DRAW,
        ),
    ] = PARAMS.min_p
    typical_p: Annotated[
        float,
        typer.Option(
            help="Draw among the tokens of most usual surprise that sum to P; 1 is off.",
            metavar="P",
            rich_help_panel=_DRAW,
        ),
    ] = PARAMS.typical_p
    repetition_penalty: Annotated[
        float,
        typer.Option(
            help="Make tokens of prompt and reply less likely, by a factor on their logits; 1 is off.",
            metavar="F",
            rich_help_panel=_DRAW,
        ),
    ] = PARAMS.repetition_penalty
    presence_penalty: Annotated[
        float,
        typer.Option(
            help="Take this from the logits of tokens the reply has; 0 is off.", metavar="X", rich_help_panel=_DRAW
        ),
    ] = PARAMS.presence_penalty
    frequency_penalty: Annotated[
        float,
        typer.Option(help="The same for each time the reply has them; 0 is off.", metavar="X", rich_help_panel=_DRAW),
    ] = PARAMS.frequency_penalty
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(help="Add to the logit of a token; may be repeated.", metavar="ID=VALUE", rich_help_panel=_DRAW),
    ] = None
    bad_words: Annotated[
        list[str] | None,
        typer.Option("--bad-word", help="Never write this; may be repeated.", metavar="TEXT", rich_help_panel=_DRAW),
    ] = None
    min_tokens: Annotated[
        int, typer.Option(help="Do not end before so many tokens; 0 is off.", metavar="N", rich_help_panel=_DRAW)
    ] = PARAMS.min_tokens
    json_schema: Annotated[
        str | None,
        typer.Option(
            help="The reply is JSON by this schema: a file, or the schema itself.",
            metavar="SCHEMA",
            rich_help_panel=_DRAW,
        ),
    ] = None
    regex: Annotated[
        str | None,
        typer.Option(help="The whole reply matches this regular expression.", metavar="PATTERN", rich_help_panel=_DRAW),
    ] = None
    lark: Annotated[
        str | None,
        typer.Option(
            help="The whole reply follows this Lark grammar: a file, or itself.",
            metavar="GRAMMAR",
            rich_help_panel=_DRAW,
        ),
    ] = None
    logprobs: Annotated[
        int | None,
        typer.Option(
            help="With --json: each token's log probability and N alternatives.",
            metavar="N",
            show_default=False,
            rich_help_panel=_DRAW,
        ),
    ] = PARAMS.logprobs
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            "-s",
            help="Same seed, same reply; with --verify coupled whatever is drafted. Drawn, and shown, if not given.",
            metavar="S",
            show_default=False,
            rich_help_panel=_DRAW,
        ),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(help="End before this text; may be repeated.", metavar="STR", rich_help_panel=_DRAW),
    ] = None
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on when the model would end.", rich_help_panel=_DRAW)
    ] = PARAMS.ignore_eos
    system: Annotated[
        str | None,
        typer.Option(
            "--system", "-sys", help="Instructions before the conversation.", metavar="TEXT", rich_help_panel=_RUN
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", "-t", help="One per core if not given.", metavar="N", show_default=False, rich_help_panel=_RUN
        ),
    ] = CONFIG.threads
    taken: frozenset[str] = frozenset()

    def chosen(self) -> tuple[LLMConfig, SamplingParams]:
        """Return the options for loading and for drawing; check both before a model is loaded.

        Raises:
            UsageError: one is out of its range, or two contradict each other.
        """
        from paceline.sample.params import validate

        given = {name: getattr(self, name) for name in self.taken}
        given = {name: value for name, value in given.items() if value is not None or name not in OWN}
        lists = {
            "stop": tuple(self.stop or ()),
            "bad_words": tuple(self.bad_words or ()),
            "logit_bias": tuple(map(_pair, self.logit_bias or ())),
            "grammar": self._grammar(),
        }
        config = LLMConfig.of(**_of(LLMConfig, given))
        params = SamplingParams(**_of(SamplingParams, {**given, **lists}))
        validate(params)
        check_prediction(config, given=self.prediction is not None, can_give="prediction" in self.taken)
        return config, params

    def _grammar(self) -> Grammar | None:
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) > 1:
            first, second = (f"--{name.replace('_', '-')}" for name in given[:2])
            raise UsageError(f"a reply has one form, got {first} and {second}", hint="leave one of them out")
        if not given:
            return None
        (kind,) = given
        text = getattr(self, kind)
        return Grammar(kind, text if kind == "regex" else _content(text))  # type: ignore[arg-type]


def _content(text: str) -> str:
    """Return a file's text where `text` is the name of one, else itself."""
    with contextlib.suppress(OSError, ValueError):  # a schema may be no possible name
        path = Path(text)
        if path.is_file():
            return path.read_text(encoding="utf-8-sig")
    return text


def takes(*names: str, **defaults: object) -> Callable[[Command], Command]:
    """Give a command shared options in the place of its argument `given`, some with defaults of its own.

    Typer reads a command's signature: it has the options one by one, and the command gets them as one `Shared`. An
    argument that has the name of a shared option and no default becomes that option.
    """
    kinds, usual = get_type_hints(Shared, include_extras=True), {field.name: field.default for field in fields(Shared)}

    def shared(name: str) -> Parameter:
        default = defaults.get(name, usual[name])
        return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kinds[name], default=default)

    def expand(command: Command) -> Command:
        found: list[Parameter] = []
        for own in signature(command, eval_str=True).parameters.values():
            if own.name == "given":
                found += map(shared, names)
            elif own.name in usual and own.default is Parameter.empty:
                found.append(shared(own.name))
            else:
                found.append(own.replace(kind=Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def call(**values: Any) -> int | None:
            if names:
                values["given"] = Shared(**{name: values.pop(name) for name in names}, taken=frozenset(names))
            return command(**values)

        call.__signature__ = Signature(found)  # type: ignore[attr-defined]
        call.__annotations__ = {own.name: own.annotation for own in found}
        return call

    return expand


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
