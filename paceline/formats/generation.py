"""How a model's publisher wants replies to be drawn: generation_config.json, or `general.sampling.…` of a GGUF file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.formats.gguf import peek

_CONFIG = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")
_GGUF = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
_WHOLE = ("top_k",)
_MOST = {"temperature": 2.0, "top_k": 1e6, "top_p": 1.0, "min_p": 1.0, "typical_p": 1.0, "repetition_penalty": 2.0}


def own_settings(path: Path) -> dict[str, Any]:
    """Return the settings of `SamplingParams` that come with a model; those that are no sound numbers are left out."""
    try:
        if path.is_dir():
            said: Mapping[str, object] = json.loads((path / "generation_config.json").read_bytes())
            if not isinstance(said, Mapping):
                return {}
            found = {name: said.get(name) for name in _CONFIG}
            if said.get("do_sample") is not True:
                found |= {"temperature": None}
        else:
            metadata, _, _ = peek(path)
            found = {ours: metadata.get(f"general.sampling.{theirs}") for theirs, ours in _GGUF.items()}
    except (OSError, ValueError, PacelineError):  # no such file, or not a sound one: nothing is said
        return {}
    return {name: _number(name, value) for name, value in found.items() if _is_sound(name, value)}


def _is_sound(name: str, value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return is_number and 0 <= value <= _MOST[name]  # type: ignore[operator]


def _number(name: str, value: Any) -> float:
    return int(value) if name in _WHOLE else float(value)
