"""How much of the time may go into trying sources again that did not pay: a small share, saved up and spent.

A probe that is right gives back what it brought, so that the next one follows at once; one that is wrong makes the
savings grow more slowly.
"""

from __future__ import annotations

SHARE = 0.006  # of the time; with what the first rounds cost, under a hundredth
SLOWEST = 0.25  # of that share, after many probes in vain
BACK_OFF = 0.7  # of the share with each probe in vain
MOST = 4.0  # plain rounds to have saved up at most


class Allowance:
    """Seconds saved for probes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._share = 1.0

    def earn(self, seconds: float, *, most: float) -> None:
        """Save a share of a round's time, until `most` seconds are there."""
        if self.seconds < most:
            self.seconds = min(self.seconds + SHARE * self._share * seconds, most)

    def settle(self, lost: float, *, hit: bool) -> None:
        """Pay for a probe; what it lost is negative if it brought more than it took."""
        self.seconds -= lost
        self._share = 1.0 if hit else max(self._share * BACK_OFF, SLOWEST)
