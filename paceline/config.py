"""What can be set, in one place: the command line reads its defaults here."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any

from paceline.choices import CONTROLLERS, DRAFTERS, VERIFIERS, DrafterChoice
from paceline.errors import UsageError
from paceline.registry import complete, imported

DEFAULT_MODEL = "smollm2-135m"
QUANTS = ("auto", "q4", "q8", "bf16", "f32")
DRAFT_QUANTS = (*QUANTS, "q4s")  # symmetric: 4.3 bits a weight where "q4" takes 5, for guesses only


@dataclass(frozen=True, slots=True)
class LLMConfig:
    """How a model is loaded and sped up.

    `threads` None: one per usable core. `context` None: the model's own, at most 8192. `quant` repacks the target's
    linear layers ("auto" keeps the file's precision); `draft_quant` the draft model's: the distribution of the
    output stays. `draft_tokens` is the most that a round may guess; control "fixed" guesses exactly so many.
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
        CONTROLLERS.choose(config.control)
        if config.cache_bytes is not None:
            _whole("cache_bytes", config.cache_bytes, 1, 1 << 50)
        _agree(config)
        return config


def parse_draft(draft: str) -> list[str]:
    """Split the names of drafters.

    Raises:
        UsageError: one is empty or comes twice, one that stands alone has company, or its argument is wrong.
    """
    wanted = [name.strip() for name in draft.split(",")]
    alone = {name: choice.alone for name in wanted if (choice := DRAFTERS.get(name.partition(":")[0])) and choice.alone}
    others = ",".join(dict.fromkeys(name for name in wanted if name and name not in alone))
    instead = f"--draft {others}" if others else "--draft off turns guessing off; auto is the mix without asking"
    if "" in wanted:
        where = f" in `{draft}`" if draft.strip() else ""
        raise UsageError(f"draft must be names with commas between, got an empty one{where}", hint=instead)
    for name in wanted:
        DRAFTERS.split(name)
        if name in alone and len(wanted) > 1:
            hint = f"--draft {name}, or {instead}" if others else f"--draft {name}"
            raise UsageError(f"draft `{name}` {alone[name]} and must be the only drafter, got `{draft}`", hint=hint)
        if wanted.count(name) > 1:
            raise UsageError(f"draft must name each drafter once, got `{name}` twice in `{draft}`", hint=instead)
    return wanted


def drafters_of(config: LLMConfig) -> dict[str, DrafterChoice | None]:
    """Return what is to draft, `off` if no guesses are asked for, each with its choice; `None` is a model's name."""
    wanted = parse_draft(config.draft) if config.draft_tokens else ["off"]
    return {name: DRAFTERS.split(name)[0] for name in wanted}


def verify_name(config: LLMConfig) -> str:
    """Return what the verifier of a configuration is called: as asked for, or as the drafter that brings it.

    Raises:
        UsageError: both are asked for.
    """
    own = _bringing(config)
    return config.verify if own is None else own.name


def make_verifier(config: LLMConfig) -> Any:
    """Return the verifier that a configuration asks for, or the one that its drafter brings; see `verify.base`.

    Raises:
        UsageError: both are asked for, it has no such name or argument, or what was registered is no verifier.
    """
    if (own := _bringing(config)) is not None:
        return imported(own.verifier)()
    choice, argument = VERIFIERS.choose(config.verify)
    made = choice.make(argument) if choice.argument else choice.make()
    return complete(made, "verifier", choice.name, "verify", "lossless", "draws", "reproducible")


def _bringing(config: LLMConfig) -> DrafterChoice | None:
    own = next((choice for choice in drafters_of(config).values() if choice and choice.verifier), None)
    if own is not None and config.verify != LLMConfig().verify:
        raise UsageError(
            f"--draft {own.usage} brings its own rule, got `--verify {config.verify}`", hint="drop one of the two"
        )
    return own


def _agree(config: LLMConfig) -> None:
    """Refuse what cannot go together: distributions of two drafters where one is weighed, and what would be set in
    vain.
    """
    drafters, packing = drafters_of(config), ("draft_quant", "draft_head")
    verifier = make_verifier(config)
    drawing = [name for name, choice in drafters.items() if choice is None or choice.draws]
    if verifier.draws != "shared" and len(drawing) > 1:
        raise UsageError(
            f"--verify {config.verify} weighs guesses by the distribution of one drafter, "
            f"got `{drawing[0]}` and `{drawing[1]}`",
            hint="--verify coupled takes any mix; ensemble:A+B makes one distribution of two models",
        )
    loads = {"models" if choice is None else choice.loads for choice in drafters.values()}
    if not config.draft_tokens:
        _unset(config, ("verify", "control", *packing), "draft_tokens `0` turns guessing off", "let it be more")
    elif off := drafters.get("off"):
        _unset(config, ("verify", "control", *packing), f"draft `off` {off.alone}", "--draft auto")
    elif loads == {"nothing"}:
        _unset(config, packing, f"draft `{config.draft}` loads no model", "name a model for --draft")
    elif "models" not in loads:  # a copy of the target guesses through a head, too
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
