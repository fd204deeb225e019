"""A check that numeric options share; in a module of its own, so that commands need not import model code."""

from __future__ import annotations

import math

import typer

from paceline.errors import UsageError


def finite(value: float | None, param: typer.CallbackParam) -> float | None:
    """Refuse `nan`, which passes every range, and infinity."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{param.opts[0]} must be a finite number, got `{value}`")
    return value
