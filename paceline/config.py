"""What can be set, in one place: the command line reads its defaults here."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields

from paceline.errors import UsageError

DEFAULT_MODEL = "smollm2-135m"
QUANTS = ("auto", "q4", "q8", "bf16", "f32")
CONTROLS = ("fixed",)
VERIFIERS = ("coupled",)


@dataclass(frozen=True, slots=True)
class LLMConfig:
    """How a model is loaded and sped up.

    `threads` None: one per usable core. `context` None: the model's own, at most 8192. `quant` repacks the target's
    linear layers ("auto" keeps the file's precision); `draft_quant` the draft model's, which never changes the output.
    `draft_head`: how many tokens, the most frequent, a draft model may guess; 0 for all.
    """

    model: str = DEFAULT_MODEL
    draft: str = "auto"
    draft_tokens: int = 4
    control: str = "fixed"
    verify: str = "coupled"
    threads: int | None = None
    context: int | None = None
    quant: str = "auto"
    draft_quant: str = "q4"
    draft_head: int = 32768
    slots: int = 8

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
        _one_of("draft_quant", config.draft_quant, QUANTS)
        _one_of("control", config.control, CONTROLS)
        _one_of("verify", config.verify, VERIFIERS)
        return config


def _whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, got `{value}`")


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} must be one of {', '.join(known)}, got `{value}`")
