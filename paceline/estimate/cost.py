"""Seconds of a forward of the target with M rows on this machine: measured once, corrected by rounds.

Knows rows and seconds only. A measurement counts as one observation, so two rounds overrule it. A point that no round
had is corrected like the nearest point that one had, within bounds: more rows take no less time, and twice the rows not
much more than twice the time. Between the points seconds are interpolated, beyond them extended. Disturbances only add
time, and a dear point is never tried: a point a little above the line between its neighbours counts as on it until a
round has it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from paceline.core.aliases import Json, Probabilities
from paceline.estimate.numbers import lower_median

# Points of the table, in rows, measured or not.
GRID = tuple[int, ...]((*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256))
SLOPE = 0.1  # of a forward of one row, for each row more, where one row count alone is known: usual for a processor
SLACK = 1.5  # times proportional that more rows may take: some libraries' first extra row is dearer than the first
WINDOW = 9  # observations that a point is the median of
PRIOR = 3  # observations of a point from which on its measurement no longer counts
DISTURBED = 1.3  # times the line between its neighbours: a larger excess is a step of the kernels, not a disturbance
RECENT = 4  # observations for which a point keeps its own correction; later it follows its nearest neighbour
STALE = 512  # observations after which half of its own correction is forgotten
SOON = 32  # the same for a point seen at most PRIOR times, perhaps only in stalls: it forgets all
AGREED = math.log(1.5)  # corrections of two points within this factor confirm the measurement
WRONG = math.log(2)  # corrections of two points beyond this factor leave the points between them unknown
DRIFT = math.log(1.3)  # a correction beyond this counts as drift
PATIENCE = 128  # observations in a row that must show drift


class CostTable:
    """Seconds of a forward by its rows.

    Args:
        measured: rows -> seconds, at least one; made monotone by the nearest rising curve.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        points = sorted((int(rows), float(seconds)) for rows, seconds in measured.items())
        sound = all(rows >= 1 and math.isfinite(seconds) and seconds > 0 for rows, seconds in points)
        if not points or not sound:
            raise ValueError(f"a cost table needs rows from 1 on and seconds above 0, got {dict(measured)}")
        self.measured_rows = [rows for rows, _ in points]
        self.rows = np.array(sorted({*GRID, *self.measured_rows}))
        self.base = filled(self.rows, self.measured_rows, rising([seconds for _, seconds in points]))
        straight = hull(self.rows, self.base)
        self._knots = self.rows.tolist()
        is_dear = (self.base > 1.000001 * straight) & (self.base < DISTURBED * straight)
        self._shifts = [0.0] * len(self._knots)  # of points that rounds had: log(now / measured)
        self._hopes = np.log(np.where(is_dear, straight / self.base, 1.0)).tolist()  # of others: log(line / measured)
        self._seen = [deque[float](maxlen=WINDOW) for _ in self._knots]  # log(observed / measured)
        self._when = [-RECENT - 1] * len(self._knots)
        self._count = self._off = 0
        self._base: list[float] = self.base.tolist()
        self._now: list[float] | None = None
        self._said = self._base  # the corrected points before `_bound`

    def seconds(self, rows: Sequence[int] | np.ndarray) -> Probabilities:
        """Return float64 [n]: what forwards with so many rows take now; 0 for none."""
        asked, now = np.asarray(rows, np.float64), self._current()
        found = np.interp(asked, self.rows, now)
        if asked.size and asked.max() > self._knots[-1]:
            slope = (now[-1] - now[-2]) / (self._knots[-1] - self._knots[-2])
            found += slope * np.maximum(asked - self._knots[-1], 0)
        return np.asarray(np.where(asked > 0, found, 0.0))

    def at(self, rows: int) -> float:
        """Return the seconds of one forward."""
        return _between(rows, self._knots, self._current())

    def observe(self, rows: int, seconds: float) -> None:
        """Correct the nearest point by a forward's real seconds; impossible values are ignored."""
        if not (math.isfinite(seconds) and seconds > 0) or not 0 < rows <= 2 * self._knots[-1]:
            return
        knot = self._nearest(rows)
        # Scaled by the measured curve, lest a correction feed on itself; at most in proportion to the rows.
        at, scale = self._knots[knot], self._base[knot] / self._measured(rows)
        scale = min(max(scale, min(1.0, at / rows)), max(1.0, at / rows))
        shift = math.log(seconds * scale / self._base[knot])
        seen, before = self._seen[knot], self._shifts[knot]
        # The prior of an unseen point is its bounded value, not the measured one.
        prior = before if seen else math.log(self._current()[knot] / self.base[knot])
        seen.append(shift)
        self._count += 1
        self._when[knot] = self._count
        now = lower_median([*seen, prior] if len(seen) < PRIOR else seen)
        self._off = self._off + 1 if abs(now) > DRIFT else 0
        self._shifts[knot], self._now = now, None
        if len(seen) > PRIOR and now != before:
            self._follow(knot, now - before)
        self._expire(self._count % len(self._seen))

    @property
    def most_rows(self) -> int:
        """Return the most rows of a forward that may be asked for."""
        return GRID[-1]

    def reach(self, seconds: float) -> int:
        """Return how many rows a forward may have that takes at most `seconds`.

        Points that rounds had count at their corrected seconds. Up to twice their rows the measurement counts, if all
        corrections agree with it. Elsewhere a row costs at least as much as the cheapest row seen.
        """
        now, most, worst = self._current(), math.inf, list[float]()
        for value, seen in zip(reversed(now), reversed(self._seen), strict=True):
            most = value if seen else most
            worst.append(most)
        shifts = [shift for shift, seen in zip(self._shifts, self._seen, strict=True) if seen]
        agrees = bool(shifts) and max(shifts) - min(shifts) < AGREED
        near = 2 * max((rows for rows, seen in zip(self._knots, self._seen, strict=True) if seen), default=0)
        each, reached = math.inf, 1
        for rows, value, bound, seen in zip(self._knots, now, reversed(worst), self._seen, strict=True):
            each = min(each, value / rows) if seen else each
            if not seen and min(bound, value if agrees and rows <= near else each * rows) > seconds:
                return max(int(seconds / each), reached)
            reached = rows
        return reached

    @property
    def unknown(self) -> list[int]:
        """Return the rows worth timing: seen at most once, and contradicted by the points that were.

        A contradiction is a pair of corrections that differ too much, or a corrected point far out of bounds. Rows
        seen once come first, then the largest, which bound those below.
        """
        now = self._current()
        sure = [shift for shift, seen in zip(self._shifts, self._seen, strict=True) if len(seen) >= PRIOR - 1]
        is_contradicted = bool(sure) and max(sure) - min(sure) > WRONG
        found = [
            (len(seen), rows)
            for rows, seen, said, bounded in zip(self._knots, self._seen, self._said, now, strict=True)
            if len(seen) < PRIOR - 1 and rows <= GRID[-1]
            if is_contradicted or (sure and abs(math.log(said / bounded)) > WRONG)
        ]
        return [rows for _, rows in sorted(found, reverse=True)]

    @property
    def has_drifted(self) -> bool:
        """Whether rounds have long been more than 30 % off the measurement: measure again."""
        return self._off >= PATIENCE

    def to_json(self) -> Json:
        """Return the table as measured."""
        return {str(rows): self._measured(rows) for rows in self.measured_rows}

    @staticmethod
    def from_json(value: object) -> CostTable:
        """Read a table.

        Raises:
            ValueError: it is no table.
        """
        try:
            if not isinstance(value, dict):
                raise TypeError("no object")
            return CostTable({int(rows): float(seconds) for rows, seconds in value.items()})
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a cost table is an object of rows and seconds, got {value!r:.80}") from error

    def _measured(self, rows: int) -> float:
        return _between(rows, self._knots, self._base)

    def _nearest(self, rows: int) -> int:
        at = min(bisect_left(self._knots, rows), len(self._knots) - 1)
        if at and rows * rows < self._knots[at] * self._knots[at - 1]:  # nearer by ratio, not by difference
            at -= 1
        return at

    def _current(self) -> list[float]:
        if self._now is None:
            self._now = self._corrected()
        return self._now

    def _follow(self, knot: int, moved: float) -> None:
        """Move points not seen of late along with the nearest one that was: most likely the machine has changed."""
        recent = self._recent()
        for i in _nearest(knot, recent, len(self._knots)):
            if i != knot and self._seen[i]:
                self._shifts[i] += moved
                for place, value in enumerate(self._seen[i]):
                    self._seen[i][place] = value + moved

    def _expire(self, knot: int) -> None:
        """Draw a point not seen for long towards its nearest neighbour, so that a stall there is forgotten."""
        age, seen = self._count - self._when[knot], self._seen[knot]
        if seen and age > (STALE if len(seen) > PRIOR else SOON):
            if len(seen) > PRIOR:
                nearest = min(self._recent(), key=lambda other: abs(other - knot))
                self._shifts[knot] = (self._shifts[nearest] + self._shifts[knot]) / 2
                self._when[knot] = self._count - RECENT - 1
            else:
                seen.clear()
            self._now = None

    def _recent(self) -> list[int]:
        return [i for i, when in enumerate(self._when) if self._count - when <= RECENT]

    def _corrected(self) -> list[float]:
        shifts = self._shifts.copy()
        seen = [i for i, found in enumerate(self._seen) if found]
        for known in seen:
            for i in _nearest(known, seen, len(shifts)):
                if i != known:
                    shifts[i] = shifts[known] + self._hopes[i]
        now = [base * math.exp(shift) for base, shift in zip(self._base, shifts if seen else self._hopes, strict=True)]
        self._said = now.copy()
        _bound(now, self._knots, self._seen)
        return list(accumulate(now, max))


def _nearest(one: int, others: Sequence[int], count: int) -> range:
    """Return the places, of `count`, that are nearer to `one` than to the rest of `others`, which ascend."""
    at = others.index(one)
    first = (others[at - 1] + one) // 2 + 1 if at else 0
    last = (one + others[at + 1]) // 2 if at + 1 < len(others) else count - 1
    return range(first, last + 1)


def _between(rows: int, knots: Sequence[int], values: Sequence[float]) -> float:
    """Return a curve's value by the line through the points around it, or through the last two."""
    right = min(max(bisect_left(knots, rows), 1), len(knots) - 1)
    share = (rows - knots[right - 1]) / (knots[right] - knots[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


def _bound(now: list[float], knots: Sequence[int], seen: Sequence[Sequence[float]]) -> None:
    """Bound the unseen points by the seen ones: no less than fewer rows take, no dearer by the row."""
    least, each = 0.0, math.inf
    for i, rows in enumerate(knots):
        if seen[i]:
            least, each = max(least, now[i]), min(each, now[i] / rows)
        else:
            now[i] = min(max(now[i], least), SLACK * each * rows)
    most, each = math.inf, 0.0
    for i in range(len(knots) - 1, -1, -1):
        if seen[i]:
            most, each = min(most, now[i]), max(each, now[i] / knots[i])
        else:
            now[i] = max(min(now[i], most), each / SLACK * knots[i])


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
    """Return the nearest curve that never falls, by the sum of absolute ratios: one wild value moves no other.

    Pool adjacent violators; a pool is worth its lower median.
    """
    blocks: list[list[float]] = []
    for value in values:
        block = [float(value)]
        while blocks and lower_median(blocks[-1]) > lower_median(block):
            block = [*blocks.pop(), *block]
        blocks.append(block)
    return np.repeat([lower_median(block) for block in blocks], [len(block) for block in blocks])


def filled(rows: np.ndarray, known: Sequence[int], seconds: Probabilities) -> Probabilities:
    """Return float64 [n]: a curve at all rows, by lines between the known points and on beyond them."""
    if len(known) == 1:
        return np.asarray(seconds[0] * (1 + SLOPE * (rows - 1)) / (1 + SLOPE * (known[0] - 1)))
    found = np.interp(rows, known, seconds)
    slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
    found += slope * np.maximum(rows - known[-1], 0)
    # Below the first known rows, as for one point.
    below = seconds[0] * (1 + SLOPE * (rows - 1)) / (1 + SLOPE * (known[0] - 1))
    return np.asarray(np.where(rows < known[0], below, found))
