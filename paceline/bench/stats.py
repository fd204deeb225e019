"""Medians, spreads and floors: pure arithmetic on what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from paceline.core.aliases import Json


@dataclass(frozen=True, slots=True)
class Spread:
    """What repeats of one measurement say. Quartiles are interpolated between samples."""

    count: int
    median: float
    min: float
    p25: float
    p75: float
    max: float

    @staticmethod
    def of(samples: Sequence[float]) -> Spread:
        """Sum up at least one sample."""
        assert samples, "a spread of nothing"
        ordered = sorted(samples)
        low, middle, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
        return Spread(len(ordered), middle, ordered[0], low, high, ordered[-1])

    def scaled(self, factor: float) -> Spread:
        """Return the spread in another unit; `factor` is positive."""
        return Spread(self.count, *(value * factor for value in (self.median, self.min, self.p25, self.p75, self.max)))

    def to_json(self) -> Json:
        """Return the numbers, rounded to six significant digits."""
        return {name: rounded(value) if name != "count" else value for name, value in asdict(self).items()}


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Divide pair by pair: two runs made one after the other share the machine's state, two medians do not."""
    return [a / b for a, b in zip(ours, theirs, strict=False) if b > 0]


def geometric_mean(values: Sequence[float]) -> float:
    """Return the mean that fits ratios; 0 of nothing."""
    positive = [value for value in values if value > 0]
    return statistics.geometric_mean(positive) if positive else 0.0


def rounded(value: float, digits: int = 6) -> float:
    """Keep the digits that mean something."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else 0.0


def read_floor(weight_bytes: int, kv_bytes: int, bytes_per_second: float) -> float:
    """Return the seconds that reading weights and keys and values once takes."""
    return (weight_bytes + kv_bytes) / bytes_per_second


def forward_floor(read_seconds: float, products: int, products_per_second: float) -> float:
    """Return the seconds below which no forward can stay: memory or arithmetic, whichever takes longer."""
    return max(read_seconds, products / products_per_second if products_per_second > 0 else 0.0)
