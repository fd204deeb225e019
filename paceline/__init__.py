"""Paceline: speculative decoding that is exact and measured.

Importing this is cheap: each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.engine.completion import Completion as Completion
    from paceline.engine.llm import LLM as LLM
    from paceline.errors import (
        ContextOverflow as ContextOverflow,
    )
    from paceline.errors import (
        DownloadError as DownloadError,
    )
    from paceline.errors import (
        ModelFileError as ModelFileError,
    )
    from paceline.errors import (
        ModelNotFound as ModelNotFound,
    )
    from paceline.errors import (
        NativeUnavailable as NativeUnavailable,
    )
    from paceline.errors import (
        PacelineError as PacelineError,
    )
    from paceline.errors import (
        UnsupportedModel as UnsupportedModel,
    )
    from paceline.errors import (
        UsageError as UsageError,
    )
    from paceline.errors import (
        VocabMismatch as VocabMismatch,
    )
    from paceline.types import SamplingParams as SamplingParams

__version__ = "0.1.0"

_HOMES = {
    "LLM": "paceline.engine.llm",
    "Completion": "paceline.engine.completion",
    "SamplingParams": "paceline.types",
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
        ),
        "paceline.errors",
    ),
}

__all__ = [*_HOMES, "__version__", "load"]


def load(model: str | None = None, **settings: Any) -> LLM:
    """Load a model with its drafter: `LLM(model, **settings)`, the default model if none is named."""
    llm = importlib.import_module("paceline.engine.llm").LLM
    return llm(**settings) if model is None else llm(model, **settings)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `paceline` has no attribute `{name}`")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
