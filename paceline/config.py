"""What can be set, in one place: the command line reads its defaults here."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields

from paceline.errors import UsageError

DEFAULT_MODEL = "smollm2-135m"
QUANTS = ("auto", "q4", "q8", "bf16", "f32")
DRAFT_QUANTS = (*QUANTS, "q4s")  # symmetric: 4.3 bits a weight where "q4" takes 5, for guesses only
CONTROLS = ("optimal", "fixed", "ema", "schedule", "confidence", "entropy")
ALONE = {"off": "turns guessing off", "auto": "is a mix already"}  # drafters that take no company
MIX = ("suffix", "recycle")  # what auto always has; predicted too, where a prediction is given
LOOKUPS = ("ngram", "suffix", "recycle", "predicted", "lookahead")  # they guess by the text, and draw nothing
VERIFIERS = ("coupled", "rejection", "block", "tree", "greedy_tree", "typical", "lenient:L")


@dataclass(frozen=True, slots=True)
class LLMConfig:
    """How a model is loaded and sped up.

    `threads` None: one per usable core. `context` None: the model's own, at most 8192. `quant` repacks the target's
    linear layers ("auto" keeps the file's precision); `draft_quant` the draft model's: the law of the output stays.
    `draft_tokens` is the most that a round may guess; control "fixed" guesses exactly so many.
    `draft_head`: how many tokens, the most frequent, a draft model may guess; 0 for all. `slots` replies run at once,
    and their keys and values take at most `cache_bytes`; None is room for `slots` whole contexts.
    """

    model: str = DEFAULT_MODEL
    draft: str = "auto"
    draft_tokens: int = 16
    control: str = "optimal"
    verify: str = "coupled"
    threads: int | None = None
    context: int | None = None
    quant: str = "auto"
    draft_quant: str = "q4s"
    draft_head: int = 32768
    slots: int = 8
    cache_bytes: int | None = None

    @staticmethod
    def of(**settings: object) -> LLMConfig:
        """Build a config and check it; unknown names are answered with the nearest known one."""
        known = [field.name for field in fields(LLMConfig)]
        for name in settings:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise UsageError(
                    f"unknown setting `{name}`",
                    hint=f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}",
                )
        config = LLMConfig(**settings)  # type: ignore[arg-type]
        _whole("draft_tokens", config.draft_tokens, 0, 64)
        _whole("draft_head", config.draft_head, 0, 1 << 24)
        _whole("slots", config.slots, 1, 1024)
        if config.threads is not None:
            _whole("threads", config.threads, 1, 1024)
        if config.context is not None:
            _whole("context", config.context, 2, 1 << 24)
        _one_of("quant", config.quant, QUANTS)
        _one_of("draft_quant", config.draft_quant, DRAFT_QUANTS)
        _one_of("control", config.control, CONTROLS)
        if config.cache_bytes is not None:
            _whole("cache_bytes", config.cache_bytes, 1, 1 << 50)
        parse_draft(config.draft)
        parse_verify(config.verify)
        _agree(config)
        return config


def parse_draft(draft: str) -> list[str]:
    """Split the names of drafters.

    Raises:
        UsageError: one is empty or comes twice, or one that stands alone has company.
    """
    wanted = [name.strip() for name in draft.split(",")]
    others = ",".join(dict.fromkeys(name for name in wanted if name and name not in ALONE))
    instead = (
        f"--draft {others}" if others else "--draft off turns guessing off; auto is the mix you get without asking"
    )
    if "" in wanted:
        where = f" in `{draft}`" if draft.strip() else ""
        raise UsageError(f"draft must be names with commas between, got an empty one{where}", hint=instead)
    for name in wanted:
        if name in ALONE and len(wanted) > 1:
            hint = f"--draft {name}, or {instead}" if others else f"--draft {name}"
            if name == "auto" and others:
                members = ",".join(dict.fromkeys([*MIX, *others.split(",")]))
                hint = f"--draft auto, or its members by name: --draft {members}"
            raise UsageError(f"draft `{name}` {ALONE[name]} and must stand alone, got `{draft}`", hint=hint)
        if wanted.count(name) > 1:
            raise UsageError(f"draft must name each drafter once, got `{name}` twice in `{draft}`", hint=instead)
        if (base := name.partition(":")[0]) in ALONE and base != name:
            raise UsageError(f"draft `{base}` takes no argument, got `{name}`", hint=f"--draft {base}")
    return wanted


def parse_verify(name: object) -> tuple[str, float | None]:
    """Split a verifier's name from its lenience, which only `lenient:L` has.

    Raises:
        UsageError: no verifier goes by that name, or the lenience is not above 0 and at most 1.
    """
    base, colon, argument = str(name).partition(":")
    if base != "lenient":
        _one_of("verify", name, VERIFIERS)
        return base, None
    try:
        lenience = float(argument)
    except ValueError:
        lenience = 0.0
    if not colon or not 0 < lenience <= 1:
        raise UsageError(
            f"verify lenient:L wants a lenience above 0 and at most 1, got `{name}`",
            hint="lenient:0.8 lets a token come at most 1/0.8 times as often as the model alone would; 1 is exact",
        )
    return base, lenience


def _agree(config: LLMConfig) -> None:
    """Refuse what would be set in vain: how to draft where nobody does, how to pack a model where none is loaded."""
    names = parse_draft(config.draft)
    if not config.draft_tokens:
        _unset(
            config,
            ("verify", "control", "draft_quant", "draft_head"),
            "draft_tokens `0` turns guessing off",
            "let it be more",
        )
    elif names == ["off"]:
        _unset(
            config, ("verify", "control", "draft_quant", "draft_head"), f"draft `off` {ALONE['off']}", "--draft auto"
        )
    elif all(name.partition(":")[0] in LOOKUPS for name in names):
        _unset(
            config, ("draft_quant", "draft_head"), f"draft `{config.draft}` loads no model", "name a model for --draft"
        )
    elif all(name.partition(":")[0] in (*LOOKUPS, "self") for name in names):  # `self` guesses through a head, too
        copy = config.draft_quant if config.draft_quant in QUANTS[1:] else QUANTS[1]
        why = f"draft `{config.draft}` is made of the target"
        _unset(config, ("draft_quant",), why, f"draft with a packed copy of it: --draft self:{copy}")


def _unset(config: LLMConfig, names: tuple[str, ...], why: str, instead: str) -> None:
    usual = LLMConfig()
    for name in names:
        if (value := getattr(config, name)) != getattr(usual, name):
            raise UsageError(
                f"{name} must not be set where {why}, got `{value}`",
                hint=f"drop --{name.replace('_', '-')}, or {instead}",
            )


def _whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, got `{value}`")


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        near = difflib.get_close_matches(str(value), known, 1)
        raise UsageError(
            f"{name} must be one of {', '.join(known)}, got `{value}`",
            hint=f"did you mean `{near[0]}`?" if near else None,
        )
