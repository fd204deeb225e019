"""From what a user calls a model or a machine to its numbers."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from paceline.errors import UsageError
from paceline.plan.hardware import HARDWARE, Hardware
from paceline.plan.shapes import ALIASES, SHAPES, VOCABULARIES, Shape, drafts_for

T = TypeVar("T")


def hardware_of(name: str, *, bandwidth: float | None = None, flops: float | None = None) -> Hardware:
    """Return a machine: a known one, one that a JSON file describes, or a known one with numbers of the user's.

    Args:
        name: of a known machine, or a file with `bandwidth` (GB/s), `flops` (TFLOPS at 16 bits) and `memory` (GB).
        bandwidth: GB/s that memory brings. flops: 1e12 operations per second, a multiply and an add counting as two.

    Raises:
        UsageError: no machine goes by that name, the file is of another shape, or a number cannot be meant.
    """
    found = _machine_in(Path(name).expanduser()) if name.endswith(".json") else _known("hardware", name, HARDWARE)
    changes = {"bytes_per_second": (bandwidth, 1e9), "operations": (flops, 1e12)}
    given = {key: value * unit for key, (value, unit) in changes.items() if value is not None}
    if not given:
        return found
    if not all(0 < value < math.inf for value in given.values()):
        raise UsageError("bandwidth and flops must be positive numbers", hint="--bandwidth 90 is 90 GB/s")
    return replace(found, name="yours", source=f"{' and '.join(given)} as given, else as {found.name}", **given)


def _machine_in(path: Path) -> Hardware:
    try:
        said = json.loads(path.read_bytes())
        numbers = [float(said[key]) for key in ("bandwidth", "flops", "memory")]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"hardware must be a known machine or a JSON file with bandwidth, flops and memory, got `{path}`: {error}",
            hint='{"bandwidth": 90, "flops": 4.4, "memory": 64}, in GB/s, TFLOPS and GB',
        ) from error
    if not all(0 < number < math.inf for number in numbers):
        raise UsageError(f"bandwidth, flops and memory must be positive numbers, got `{numbers}`")
    step = float(said.get("step_seconds", 1e-4))
    return Hardware(path.stem, numbers[0] * 1e9, numbers[1] * 1e12, numbers[2] * 1e9, step, f"as {path} says")


def shape_of(name: str) -> tuple[Shape, float | None]:
    """Return a known model's shape, or that of a model file on this disk and its bits a weight; no weight is read.

    Raises:
        UsageError: no known model and no file goes by that name.
    """
    key = name.lower()
    key = ALIASES.get(key, key)
    if key in SHAPES:
        return SHAPES[key], None
    path = Path(name).expanduser()
    if path.exists():
        return _shape_in(path)
    return _known("model", key, SHAPES), None


def check_pair(target: Shape, draft: Shape) -> dict[str, Any]:
    """Say whether two models share a vocabulary, None where that is not known, and which drafts the target has."""
    ours, theirs = VOCABULARIES.get(target.name), VOCABULARIES.get(draft.name)
    same = None if None in (ours, theirs) else ours == theirs
    instead = [] if same else drafts_for(target)
    note = None
    if same is False:
        cure = f"choose {' or '.join(instead)}" if instead else "no known smaller model has the target's, try suffix"
        note = (
            f"{target.name} has the vocabulary of {ours}, {draft.name} that of {theirs}: drafts would be translated, "
            f"exactly, and fewer be right; {cure}"
        )
    return {"target": target.name, "draft": draft.name, "same": same, "instead": instead, "note": note}


def _shape_in(path: Path) -> tuple[Shape, float]:
    from paceline.formats.files import open_model
    from paceline.formats.tensor_names import shapes_of

    file = open_model(path)
    try:
        spec, shapes = file.spec, shapes_of(file.spec)
        weight_bytes = sum(tensor.nbytes for name in shapes if (tensor := file.tensor(name)) is not None)
    finally:
        file.close()
    heads = (spec.heads, spec.kv_heads)
    shape = Shape(path.stem, spec.layers, spec.width, spec.ffn_width, heads, spec.head_dim, spec.vocab, spec.tied)
    return shape, 8 * weight_bytes / sum(math.prod(dimensions) for dimensions in shapes.values())


def _known(kind: str, name: str, table: Mapping[str, T]) -> T:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, 1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    raise UsageError(f"{kind} must be a known one or a file, got `{name}`", hint=f"{hint}known: {', '.join(table)}")
