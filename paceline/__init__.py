"""Paceline: speculative decoding that is exact and measured.

Importing this is cheap: each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.audit.run import run_audit as run_audit
    from paceline.choices import register_controller as register_controller
    from paceline.choices import register_drafter as register_drafter
    from paceline.choices import register_verifier as register_verifier
    from paceline.core.request import Event as Event
    from paceline.core.request import Grammar as Grammar
    from paceline.core.request import SamplingParams as SamplingParams
    from paceline.doctor.run import run_doctor as run_doctor
    from paceline.draft.base import Drafter as Drafter
    from paceline.engine.completion import Completion as Completion
    from paceline.errors import ContextOverflow as ContextOverflow
    from paceline.errors import DownloadError as DownloadError
    from paceline.errors import ModelFileError as ModelFileError
    from paceline.errors import ModelNotFound as ModelNotFound
    from paceline.errors import NativeUnavailable as NativeUnavailable
    from paceline.errors import NumericalError as NumericalError
    from paceline.errors import PacelineError as PacelineError
    from paceline.errors import ProcessorError as ProcessorError
    from paceline.errors import ReplyError as ReplyError
    from paceline.errors import UnsupportedModel as UnsupportedModel
    from paceline.errors import UsageError as UsageError
    from paceline.errors import VocabMismatch as VocabMismatch
    from paceline.plan.run import run_plan as run_plan
    from paceline.service.llm import LLM as LLM
    from paceline.service.reply import Reply as Reply

__version__ = "0.1.0"

_HOMES = {
    "LLM": "paceline.service.llm",
    "Completion": "paceline.engine.completion",
    "Drafter": "paceline.draft.base",
    "SamplingParams": "paceline.core.request",
    "Grammar": "paceline.core.request",
    "Event": "paceline.core.request",
    "Reply": "paceline.service.reply",
    "run_audit": "paceline.audit.run",
    "run_doctor": "paceline.doctor.run",
    "run_plan": "paceline.plan.run",
    **dict.fromkeys(("register_drafter", "register_verifier", "register_controller"), "paceline.choices"),
    **dict.fromkeys(
        (
            "PacelineError",
            "UsageError",
            "ModelNotFound",
            "ModelFileError",
            "UnsupportedModel",
            "VocabMismatch",
            "ContextOverflow",
            "DownloadError",
            "NativeUnavailable",
            "ReplyError",
            "NumericalError",
            "ProcessorError",
        ),
        "paceline.errors",
    ),
}

__all__ = [*_HOMES, "__version__", "load"]


def load(model: str | None = None, **settings: Any) -> LLM:
    """Load a model with its drafter: `LLM(model, **settings)`, the default model if none is named.

    Args:
        model: a known name, a `.gguf` file, a Hugging Face folder, or `hf:org/name[:file.gguf or :type]`.
        draft: what guesses, "auto", "off", "ngram", …, a smaller model to draft with, or several with commas between;
            docs/guides/speculation.md and `paceline generate --help` list all names.
        draft_tokens: how many tokens are guessed per round at most, 0 to 64.
        control: what decides how much to guess, "optimal" (what pays on this machine), "fixed", ….
        verify: how guesses are checked, "coupled", "rejection", …. With the first alone a seed repeats whatever is
            drafted; "typical" and "lenient:0.8" are lossy.
        threads: None is one per usable core.
        context: tokens that prompt and reply share; None is the model's own, at most 8192.
        quant: repack the linear layers as "q4", "q8", "bf16" or "f32"; "auto" keeps the file's own.
        draft_quant: the same for a draft model, which may also be "q4s", the smallest; it leaves alone what has four
            bits already.
        draft_head: how many tokens, the most frequent, a draft model may guess; 0 is all.
        slots: how many replies may run at once.
        cache_bytes: what their keys and values may take; None is room for `slots` whole contexts. With less, replies
            wait or are read again when there is room; no token changes.
        progress: show bars on a terminal while loading.

    Raises:
        PacelineError: of the kind that fits; its `hint` says what to do.
    """
    llm = importlib.import_module("paceline.service.llm").LLM
    return llm(**settings) if model is None else llm(model, **settings)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `paceline` has no attribute `{name}`")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
