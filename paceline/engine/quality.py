"""How far a calibration can be trusted: the conditions it was made under, and the doubts that follow.

Knows numbers only: seconds by rows, and the system's counters. Disturbances add time, so a disturbed calibration makes
drafting look dearer or cheaper than it is, for as long as it is kept. Each doubt is one sign; each limit below lies
between the values of quiet and busy machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from paceline.core.aliases import Json

# Measured on two cores with SmolLM2-135M and a 1.5B: quiet / beside 1, 2 and 14 busy loops.
SURE = (1, 2, 4, 8)  # rows of most rounds, timed more than once even on a slow machine
REPEATS = 2  # forwards of each: a single one has no spread, and a disturbed one would become the table
SPREAD = 0.3  # median / least - 1: 0.02 to 0.2 / 0.01 to 3.6; only this shows load that comes and goes
SHARE = 0.8  # processor time / wall time of the threads: 0.94 to 0.99 / 0.50 to 0.005; only this shows a quota
SERIAL = 5e-4  # seconds of a forward that one thread alone prepares, which on many cores looks like waiting
SWITCHES = 60.0  # involuntary ones a second and thread: 12, at times 270 that cost nothing / 80 to 3600
FEW = 20  # switches: fewer give no rate
COST = 0.12  # of the time that they must have taken: 0.01 to 0.1 / 0.5; without, kernel work at each tick is a doubt
FALL = 0.8  # of the seconds of fewer rows: 0.95 / 0.18 to 0.84; less than that is no rounding
TOO_FAST = 0.7  # times the floor: the floor was measured under load, and so may be the rest
TOO_SLOW = 8.0  # times the floor: 1.7 to 2.2 / up to 75; slow kernels and full caches take up to 5
BUSY = 0.25  # cores that other processes use: 0.02 / 0.8 to 2.0; a desktop's idle programs take 0.1
BUSY_SHARE = 0.01  # of a core for each thread, which a large machine's daemons take
MARGIN = 0.2  # cores by which their use must have fallen, and to half at most; else each load would measure
AGE = 600.0  # seconds after which a doubt that load does not explain is measured again; else it is kept for ever
MOST, LONGEST = 16, 200  # doubts in a file, and characters of one


@dataclass(frozen=True, slots=True)
class Quality:
    """The evidence for and against a calibration.

    Args:
        made: when, UTC, ISO 8601.
        repeats: forwards of the row that had the fewest.
        spread: median over least seconds, less 1; the median over rows.
        cpu_share: processor time of the threads that worked / wall time; 1 if none waited for a core.
        switches: involuntary context switches of this process meanwhile.
        neighbours: cores that other processes used meanwhile; `None` where the system does not say.
        floor_seconds: to read the target's weights once; 0 if unknown.
        doubts: in words, empty for a sound calibration.
    """

    made: str
    repeats: int
    spread: float
    cpu_share: float
    switches: int
    neighbours: float | None
    floor_seconds: float
    doubts: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether there are doubts: use it with caution, and measure again when the machine is quieter."""
        return bool(self.doubts)

    @property
    def age(self) -> float:
        """Return the seconds since it was made; 0 if the clock was put back meanwhile."""
        return max((datetime.now(UTC) - datetime.fromisoformat(self.made)).total_seconds(), 0.0)

    def to_json(self) -> Json:
        """Return it as plain data."""
        return {**asdict(self), "doubts": list(self.doubts)}

    @staticmethod
    def from_json(value: object) -> Quality:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            return _sound(value)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"a quality is an object of numbers and doubts, got {value!r:.80}") from error


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed while forwards were measured."""

    seconds: Mapping[int, Sequence[float]]  # of every forward, by rows
    wall: float  # seconds of all of them
    cpu: float  # seconds of this process's threads meanwhile
    switches: int
    threads: int
    neighbours: float | None
    spare: int  # cores the threads leave to other processes
    floor_seconds: float


def judge(seen: Observed, *, made: str | None = None) -> Quality:
    """Derive the quality from the observations.

    Args:
        made: now if not given.
    """
    seconds = {rows: list(found) for rows, found in sorted(seen.seconds.items()) if found}
    repeats = min((len(found) for rows, found in seconds.items() if rows in SURE), default=0)
    spreads = [float(np.median(found)) / min(found) - 1 for found in seconds.values() if len(found) > 1]
    quality = Quality(
        made or datetime.now(UTC).isoformat(timespec="seconds"),
        repeats,
        float(np.median(spreads)) if spreads else 0.0,
        seen.cpu / (seen.wall * seen.threads) if seen.wall > 0 else 1.0,
        seen.switches,
        seen.neighbours,
        seen.floor_seconds,
    )
    return replace(quality, doubts=(*_of_forwards(seconds, quality), *_of_load(seen, quality)))


def worth_replacing(quality: Quality, neighbours_now: float | None) -> bool:
    """Whether to measure again: it is doubtful, and other processes use clearly less now than then.

    A doubt that load does not explain is measured again once it is old and the machine is quiet.

    Args:
        neighbours_now: cores that other processes use; `None` where the system does not say.
    """
    if not quality.is_doubtful:
        return False
    then = quality.neighbours
    if then is not None and then > BUSY:
        return neighbours_now is not None and neighbours_now <= min(then - MARGIN, then / 2)
    return quality.age >= AGE and (neighbours_now is None or neighbours_now <= BUSY)


def _of_forwards(seconds: Mapping[int, Sequence[float]], quality: Quality) -> list[str]:
    """Return the doubts that the forwards themselves raise."""
    least = {rows: min(found) for rows, found in seconds.items()}
    doubts = []
    if len(least) < 2:
        doubts.append("only one number of rows was measured")
    if quality.repeats < REPEATS:
        doubts.append(f"forwards were measured {quality.repeats} times, fewer than {REPEATS}")
    if quality.spread > SPREAD:
        doubts.append(f"repeats of a forward differed by {100 * quality.spread:.0f} %")
    for (fewer, before), (more, after) in pairwise(least.items()):
        if after < FALL * before:
            doubts.append(f"{more} rows took {after / before:.2f} times what {fewer} took")
            break
    if len(least) > 1 and least[max(least)] <= least[min(least)]:
        doubts.append(f"{max(least)} rows took no longer than {min(least)}")
    floor, plain = quality.floor_seconds, least.get(1, 0.0)
    if floor and plain and not TOO_FAST * floor <= plain <= TOO_SLOW * floor:
        doubts.append(f"one row took {plain / floor:.1f} times what reading the weights took")
    return doubts


def _of_load(seen: Observed, quality: Quality) -> list[str]:
    """Return the doubts that the machine raises."""
    doubts = []
    lost = 1 - quality.cpu_share
    if lost * seen.wall <= SERIAL * sum(map(len, seen.seconds.values())):
        lost = 0.0
    if lost > 1 - SHARE:
        doubts.append(f"threads ran {100 * quality.cpu_share:.0f} % of the time")
    rate = seen.switches / (seen.wall * seen.threads) if seen.wall > 0 else 0.0
    if rate > SWITCHES and seen.switches >= FEW and lost > COST:
        doubts.append(f"threads were interrupted {rate:.0f} times a second")
    others = quality.neighbours
    if others is not None and others - seen.spare > max(BUSY, BUSY_SHARE * seen.threads):
        doubts.append(f"measured while {others:.1f} cores were busy with other work")
    return doubts


def _sound(value: Any) -> Quality:
    numbers = [value["spread"], value["cpu_share"], value["floor_seconds"]]
    if value["neighbours"] is not None:
        numbers.append(value["neighbours"])
    if not all(type(number) in (int, float) and math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(f"shares and seconds are finite and not below 0, got {numbers}")
    counts = [value["repeats"], value["switches"]]
    if not all(type(count) is int and 0 <= count < 2**31 for count in counts):
        raise ValueError(f"repeats and switches are counts, got {counts}")
    doubts = value["doubts"]
    if not isinstance(doubts, list) or len(doubts) > MOST or not all(map(_is_plain, doubts)):
        raise ValueError("doubts are short texts")
    if datetime.fromisoformat(value["made"]).tzinfo is None:
        raise ValueError(f"a date has a time zone, got {value['made']}")
    return Quality(**{field.name: value[field.name] for field in fields(Quality)} | {"doubts": tuple(doubts)})


def _is_plain(text: object) -> bool:
    """Whether a text is safe to show on a terminal."""
    return isinstance(text, str) and len(text) <= LONGEST and text.isprintable()
