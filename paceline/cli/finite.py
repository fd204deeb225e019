"""A check that options of numbers share; by itself, for commands that wait for no model's code."""

from __future__ import annotations

import math

import typer

from paceline.errors import UsageError


def finite(value: float | None, param: typer.CallbackParam) -> float | None:
    """Refuse `nan`, which passes every range, and infinity."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{param.opts[0]} must be a finite number, got `{value}`")
    return value
