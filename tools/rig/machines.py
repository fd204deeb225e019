"""What forwards take on the machines measured so far, and a virtual clock that tells it with noise.

Seconds of the target's forward with M rows are `plain` times v(M): the points of `v`, lines between them, the last line
going on beyond. A forward of the draft with M rows takes `step` times v(M) of a plain one, from eight rows on in
proportion to them: reading takes v(8) / 8 of a step a token, as control/draft_prefill.py assumes. Sections named
below are those of docs/log.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

CHUNK = 8  # rows from which on the draft's seconds are in proportion to them
NOISE = 0.05  # of the logarithm of a forward's seconds ("One guess a round for good": 5 % a forward)
DISTURBED, LONGER = 1 / 33, 1.5  # one forward in so many takes so much longer (same section)
# The log says that the pace drifts, not how: here a tenth up and down (two deviations), as plain tokens vary there
# within an hour, forgotten after some 256 forwards.
DRIFT, MEMORY = 0.05, 256


@dataclass(frozen=True, slots=True)
class Machine:
    """Costs: `plain` in seconds, `step` in plain forwards.

    `outside` seconds of a round are spent beside the forwards, and `drafting` more if guesses were made.
    """

    name: str
    plain: float
    v: Mapping[int, float]
    step: float
    outside: float
    drafting: float

    def target(self, rows: int) -> float:
        """Return the seconds of a forward of the target."""
        return self.plain * self._v(rows)

    def draft(self, rows: int) -> float:
        """Return the seconds of a forward of the draft."""
        return self.plain * self.step * (self._v(rows) if rows <= CHUNK else self._v(CHUNK) * rows / CHUNK)

    def _v(self, rows: int) -> float:
        known, values = list(self.v), list(self.v.values())
        if rows <= known[-1]:
            return float(np.interp(rows, known, values))
        return values[-1] + (values[-1] - values[-2]) / (known[-1] - known[-2]) * (rows - known[-1])


MACHINES = {
    machine.name: machine
    for machine in (
        # "Real guesses on a virtual clock": a plain token 38 to 40 ms, t(1) 39 and t(8) 65 to 66, v(4) 1.23, v(8) 1.63,
        # 7 guesses at 66 ms and 16 at 150: v(17) is 3.85. Eight rows share a tile, so 16 are taken to be twice 8. A
        # step 0.20 (doctor), 0.75 ms outside at the worst; plain 0.6 ("The first table").
        Machine("xeon-vnni", 0.039, {1: 1, 4: 1.23, 8: 1.63, 16: 3.26, 17: 3.85, 24: 4.89}, 0.20, 0.0006, 0.00015),
        # "One guess a round for good": five rows 91, six 97 (true), eight 126 ms, v(4) 1.40, v(8) 2.14, so t(1) is
        # 58.9. 3.9 ms a round outside with auto. Above eight rows the shape of "Without VNNI": t(16) 1.95 and t(32)
        # 3.78 of t(8). A step 0.25 ("Speculation on the real pair, without VNNI": 0.25 to 0.30); plain 0.8 ms outside.
        Machine(
            "zen3",
            0.0589,
            {1: 1, 4: 1.40, 5: 1.54, 6: 1.65, 8: 2.14, 16: 4.17, 32: 8.09},
            0.25,
            0.0008,
            0.0031,
        ),
        # "Prefetching on a Zen 4", memory at 34 GB/s: 30.2, 32.8 and 53.5 ms for 1, 4 and 8 rows; two rows as t(2) to
        # t(1) at 56 GB/s, six between 4 and 8 where 46.1 lies between 33.4 and 59.2 there. 0.48 to 0.66 ms outside
        # ("Both tables on a Zen 4"). Sixteen rows are taken to be twice eight, as for the Xeon. The step is not in the
        # log: by bytes 0.21 (207 MB of 1000, "Cheaper drafts and distributions"), and the Granite Rapids lies 0.01
        # above that.
        Machine("zen4", 0.0302, {1: 1, 2: 1.03, 4: 1.09, 6: 1.42, 8: 1.77, 16: 3.54}, 0.22, 0.0005, 0.00015),
        # "Speculation on the real pair, with VNNI": a step 8.1 ms of a plain token's 37.4, v(4) 1.28, v(8) 1.55, 0.63
        # ms outside when plain, 1.4 with four guesses. Sixteen rows are taken to be twice eight.
        Machine("granite", 0.0374, {1: 1, 4: 1.28, 8: 1.55, 16: 3.10}, 0.22, 0.0006, 0.0008),
    )
}


def seconds(trace: Mapping[tuple[str, int], int], machine: Machine) -> float:
    """Return what a trace takes on a machine that nothing disturbs."""
    each: dict[str, Callable[[int], float]] = {
        "target": machine.target,
        "draft": machine.draft,
        "round": lambda drafted: machine.outside + machine.drafting * drafted,
    }
    return sum(count * each[kind](size) for (kind, size), count in trace.items())


@dataclass(slots=True)
class Clock:
    """Virtual seconds. `trace` counts what they went into: forwards by model and rows, rounds without and with guesses.

    The engine sees disturbed seconds; a trace is judged by undisturbed ones, so that luck does not count.
    """

    machine: Machine
    seed: int = 0
    is_quiet: bool = False
    now: float = 0.0
    trace: Counter[tuple[str, int]] = field(default_factory=Counter)
    _pace: float = 0.0
    _chance: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._chance = np.random.default_rng(self.seed)

    def __call__(self) -> float:
        return self.now

    def forward(self, kind: str, rows: int) -> None:
        """Let a forward of `target` or `draft` pass."""
        took = self.machine.target(rows) if kind == "target" else self.machine.draft(rows)
        self.trace[kind, rows] += 1
        self.now += took if self.is_quiet else took * self._disturbance()

    def round(self, *, drafted: bool) -> None:
        """Let what a round does beside its forwards pass."""
        self.trace["round", int(drafted)] += 1
        self.now += self.machine.outside + self.machine.drafting * drafted

    def _disturbance(self) -> float:
        drift, noise = self._chance.standard_normal(2).tolist()
        self._pace += DRIFT * math.sqrt(2 / MEMORY) * drift - self._pace / MEMORY
        return math.exp(self._pace + NOISE * noise) * (LONGER if self._chance.random() < DISTURBED else 1.0)
