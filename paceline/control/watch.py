"""Whether verifying has come to take another time since plain decoding was last seen.

If everything has become slower, drafting pays as before; if only verifying has, it may not. One plain round tells.
Knows rows and how far off the cost table was.
"""

from __future__ import annotations

import math

MOVED = 0.25  # change (log) of what verifying takes after which a plain round is due
BETWEEN = 128  # rounds between two such checks


class Watch:
    """Compares, row by row, how far off the table is now with how far it was beside the latest plain round."""

    def __init__(self) -> None:
        self._shifts: dict[int, float] = {}
        self._knows_plain = self._has_moved = False
        self._since = BETWEEN

    def forget(self) -> None:
        """Start over: another table is gone by."""
        self._knows_plain = self._has_moved = False
        self._shifts.clear()

    def is_due(self) -> bool:
        """Whether the next round should be a plain one; asked once a round that would draft."""
        self._since += 1
        if not self._has_moved or self._since < BETWEEN:
            return False
        self._since, self._has_moved = 0, False
        return True

    def see(self, rows: int, correction: float, *, drafted: bool) -> None:
        """Note a round: its rows, and seconds now over seconds as measured for so many."""
        if not drafted:
            self._shifts.clear()
            self._knows_plain, self._has_moved = True, False
            return
        shift = math.log(correction)
        before = self._shifts.setdefault(rows, shift if self._knows_plain else 0.0)
        self._has_moved = abs(shift - before) > MOVED
