"""What a forward of the target with M rows takes on this machine: measured once, corrected while it runs.

Knows rows and seconds only. Between the measured points seconds are interpolated, beyond them extended; what rounds
really take corrects them point by point with medians, so that one disturbed round means nothing. What disturbed the
measurement can only have added to it, and a point that looks dear is not tried: one a little above the line between
its neighbours is taken to be on it until it is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from paceline.control.numbers import median
from paceline.types import Json, Probabilities

WINDOW = 9  # observations a correction is the median of
DISTURBED = 1.3  # times what its neighbours say: more than that is no disturbance but a step
RECENT = 4  # observations for which a point speaks for itself; later it follows its nearest neighbour
STALE = 512  # observations after which half of what it says of its own is forgotten
JUMP = math.log(3)  # the most that one observation may differ
DRIFT = math.log(1.3)  # from here on reality is another one
PATIENCE = 256  # observations in a row that must say so


class CostTable:
    """Seconds of a forward by its rows.

    Args:
        measured: rows -> seconds, at least one; made monotone by the closest rising curve.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        points = sorted((int(rows), float(seconds)) for rows, seconds in measured.items())
        sound = all(rows >= 1 and math.isfinite(seconds) and seconds > 0 for rows, seconds in points)
        if not points or not sound:
            raise ValueError(f"a cost table needs rows from 1 on and seconds above 0, got {dict(measured)}")
        self.rows = np.array([rows for rows, _ in points])
        self.base = rising([seconds for _, seconds in points])
        straight = hull(self.rows, self.base)
        hopes = np.log(np.where(self.base < DISTURBED * straight, straight / self.base, 1.0)).tolist()
        self._knots = self.rows.tolist()
        self._shifts = list(hopes)  # the medians of what was seen
        # log(observed / measured); the measurement counts as three observations
        self._seen = [deque([hope] * 3, maxlen=WINDOW) for hope in hopes]
        self._when = [-RECENT - 1] * len(points)
        self._count = self._off = 0
        self._now: Probabilities | None = None

    def seconds(self, rows: Sequence[int] | np.ndarray) -> Probabilities:
        """Return float64 [n]: what forwards with so many rows take now; 0 for none."""
        asked, knots, now = np.asarray(rows, np.float64), self.rows, self._current()
        found = np.interp(asked, knots, now)
        if asked.size and asked.max() > knots[-1]:
            slope = (now[-1] - now[-2]) / (knots[-1] - knots[-2]) if len(knots) > 1 else 0.0
            found += slope * np.maximum(asked - knots[-1], 0)
        return np.asarray(np.where(asked > 0, found, 0.0))

    def at(self, rows: int) -> float:
        """Return the seconds of one forward."""
        if rows > self._knots[-1]:
            return float(self.seconds([rows])[0])
        return float(np.interp(rows, self.rows, self._current()))

    def observe(self, rows: int, seconds: float) -> None:
        """Correct the nearest point by what a forward really took; what cannot be is ignored."""
        if not (math.isfinite(seconds) and seconds > 0) or not 0 < rows <= 2 * self._knots[-1]:
            return
        knot = self._nearest(rows)
        # As measured, not as corrected: a correction must not feed on itself.
        measured = self._measured(rows)
        seen = self._seen[knot]
        shift = self._shifts[knot]
        seen.append(min(max(math.log(seconds / measured), shift - JUMP), shift + JUMP))
        self._count += 1
        self._when[knot] = self._count
        now = self._shifts[knot] = median(seen)
        self._off = self._off + 1 if abs(now) > DRIFT else 0
        if now != shift:
            self._follow(knot, now - shift)
            self._now = None
        self._expire(self._count % len(self._seen))

    def doubt(self, rows: int) -> None:
        """Forget what was seen of forwards with about so many rows, so that the next one says it anew."""
        self._seen[self._nearest(rows)].clear()

    def correction(self, rows: int) -> float:
        """Return seconds now / as measured for so many rows."""
        return self.at(rows) / self._measured(rows)

    @property
    def has_drifted(self) -> bool:
        """Whether reality has been more than 30 % off what was measured for long: measure again."""
        return self._off >= PATIENCE

    def to_json(self) -> Json:
        """Return the table as measured."""
        return {str(rows): seconds for rows, seconds in zip(self._knots, self.base.tolist(), strict=True)}

    @staticmethod
    def from_json(value: object) -> CostTable:
        """Read a table.

        Raises:
            ValueError: it is none.
        """
        try:
            if not isinstance(value, dict):
                raise TypeError("no object")
            return CostTable({int(rows): float(seconds) for rows, seconds in value.items()})
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a cost table is an object of rows and seconds, got {value!r:.80}") from error

    def _measured(self, rows: int) -> float:
        return float(np.interp(rows, self.rows, self.base))

    def _nearest(self, rows: int) -> int:
        at = min(bisect_left(self._knots, rows), len(self._knots) - 1)
        if at and rows * rows < self._knots[at] * self._knots[at - 1]:  # nearer by ratio, not by difference
            at -= 1
        return at

    def _current(self) -> Probabilities:
        if self._now is None:
            self._now = self._corrected()
        return self._now

    def _follow(self, knot: int, moved: float) -> None:
        """Move the points not seen of late along with the nearest one that was: most likely the machine has changed."""
        recent = self._recent()
        for i, seen in enumerate(self._seen):
            if i not in recent and _closest(i, recent) == knot:
                self._shifts[i] += moved
                for place, value in enumerate(seen):
                    seen[place] = value + moved

    def _expire(self, knot: int) -> None:
        """Draw a point not seen for long towards its nearest neighbour, so that bad luck there is not for ever."""
        if self._count - self._when[knot] > STALE:
            shift = (self._shifts[_closest(knot, self._recent())] + self._shifts[knot]) / 2
            self._shifts[knot], self._when[knot], self._now = shift, self._count - RECENT - 1, None
            self._seen[knot].clear()
            self._seen[knot].extend([shift] * 3)

    def _recent(self) -> list[int]:
        return [i for i, when in enumerate(self._when) if self._count - when <= RECENT]

    def _corrected(self) -> Probabilities:
        return np.asarray(np.maximum.accumulate(self.base * np.exp(self._shifts)))


def _closest(knot: int, others: Sequence[int]) -> int:
    return min(others, key=lambda other: abs(other - knot))


def hull(rows: np.ndarray, seconds: Probabilities) -> Probabilities:
    """Return float64 [n]: the greatest convex curve that is nowhere above the points."""
    kept = list[int]()
    for i in range(len(rows)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (seconds[b] - seconds[a]) * (rows[i] - rows[a]) < (seconds[i] - seconds[a]) * (rows[b] - rows[a]):
                break
            kept.pop()
        kept.append(i)
    return np.asarray(np.interp(rows, rows[kept], seconds[kept]))


def rising(values: Sequence[float]) -> Probabilities:
    """Return the nearest curve that never falls (least squares; pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        block = (float(value), 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, count = blocks.pop()
            block = ((mean * count + block[0] * block[1]) / (count + block[1]), count + block[1])
        blocks.append(block)
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])
