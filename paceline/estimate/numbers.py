"""Small sums that every round needs, in plain Python: numpy's are slow on a handful of values."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float], *, empty: float = 0.0) -> float:
    """Return the middle value, the upper one of two; `empty` if there is none."""
    found = sorted(values)
    return found[len(found) // 2] if found else empty


def lower_median(values: Iterable[float]) -> float:
    """Return the middle value, the lower one of two: disturbances only add time.

    Raises:
        IndexError: there are none.
    """
    found = sorted(values)
    return found[(len(found) - 1) // 2]
