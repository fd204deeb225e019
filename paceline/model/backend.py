"""From a model's file to a model: the one place that chooses what runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.formats.files import ModelFile
from paceline.model.base import Model
from paceline.model.native import NativeModel


def load(
    file: ModelFile,
    pool: Any,
    *,
    quant: str = "auto",
    progress: Callable[[int], None] | None = None,
    padding: Sequence[int] = (),
    context: int | None = None,
) -> Model:
    """Return the model of a file on this machine's best backend; the file may be closed afterwards.

    Args:
        pool: threads, shared by all models of the process.
        quant, progress, padding, context: see `NativeModel`.

    Raises:
        UnsupportedModel: no backend runs what the file holds.
    """
    return NativeModel(file, pool, quant=quant, progress=progress, padding=padding, context=context)
