"""Never slower, whatever was measured: tables and steps wrong in every way, on a virtual clock, from the first reply.

All times are relative to plain decoding. The first reply of a process may lose 8 % to learning; from the second one on
little is left to learn, and replies gain.
"""

import itertools

import numpy as np
import pytest
from simulated import PLAIN, Simulated, Source, cliff, flat, linear
from sweep import sweep

from paceline.control.gate import Gate
from paceline.control.guard import Guard
from paceline.control.optimal import OptimalController
from paceline.estimate.cost import CostTable

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
TRUTHS = {"flat": linear(0.03), "steep": linear(0.2), "dear": linear(1.0), "cliff": cliff}
FACTORS = (0.02, 0.2, 5.0, 50.0)
TOKENS = 256
FIRST, LATER = (
    1.08,
    1.06,
)  # of plain seconds; a later reply may lose what earlier ones gained, up to the purse


def sources(kind):
    return {
        "liar": lambda: [Source("m", flat(0.02), 0.2)],
        "poor": lambda: [Source("m", flat(0.3), 0.2, heeds=True)],
        "copy": lambda: [Source("copy", flat(0.15), there=0.7)],
        "good": lambda: [Source("m", flat(0.8), 0.2, heeds=True)],
        "mix": lambda: [Source("copy", flat(0.2), there=0.5), Source("m", flat(0.6), 0.25, heeds=True)],
    }[kind]()


def tables(*, singles=False):
    """Yield names and functions of rows: times the truth, or missing. `singles`: each row by itself."""
    for f in FACTORS:
        yield f"all {f}", lambda rows, f=f: f
        yield f"all but one row {f}", lambda rows, f=f: f if rows > 1 else 1
        yield f"above eight {f}", lambda rows, f=f: f if rows > 8 else 1
        yield f"every other {f}", lambda rows, f=f: f if ROWS.index(rows) % 2 else 1
        for wrong in ROWS[:12] if singles else (4,):
            yield f"only {wrong} {f}", lambda rows, f=f, wrong=wrong: f if rows == wrong else 1
    for seed in range(6):
        chance = np.exp(np.random.default_rng(seed).uniform(np.log(0.02), np.log(50), len(ROWS)))
        yield f"by chance {seed}", lambda rows, c=chance: c[ROWS.index(rows)]
    for there in ((1,), (8,), (1, 2), (1, 64)):
        yield f"only rows {there}", lambda rows, there=there: 1 if rows in there else None
    yield "right", lambda rows: 1


def controller_of(found, v, wrong=lambda rows: 1, *, steps=1.0, most=16):
    table = CostTable({rows: PLAIN * v(rows) * wrong(rows) for rows in ROWS if wrong(rows)})
    calibrated = {source.name: source.step * PLAIN * steps for source in found if source.step}
    weighing = [source.name for source in found if source.heeds]
    return OptimalController(
        table, [source.name for source in found], most=most, step_seconds=calibrated, weighing=weighing
    )


def replies(kind, v, wrong=lambda rows: 1, *, steps=1.0, sequences=1, count=2, seed=0, guard=Guard, hidden=0.0):
    """Return each reply's seconds over those of plain decoding."""
    found = sources(kind)
    controller = controller_of(found, v, wrong, steps=steps)
    controller.guard = guard()
    engine = Simulated(found, v, noise=0.05, seed=seed, hidden=hidden)
    return [1 / engine.play(controller, TOKENS, sequences=sequences, rounds_from=100 * i) for i in range(count)]


def check(kind, v, cases, *, sequences=1):
    """Play the cases, (name, table, steps); none may be slower than plain, and all gain as with a true table."""
    right = replies(kind, v, sequences=sequences)
    slow, behind = [], []
    for name, wrong, steps in cases:
        first, second = replies(kind, v, wrong, steps=steps, sequences=sequences)
        if first > FIRST or second > LATER:
            slow.append((name, steps, first, second))
        behind.append(second / right[1])
    assert not slow, slow
    assert np.mean(behind) < 1.1, (np.mean(behind), np.max(behind))


PAIRS = [f"{kind}-{truth}" for kind, truth in itertools.product(("liar", "poor", "copy", "good", "mix"), TRUTHS)]


FEW = [("mix-dear", False), ("good-flat", False)]


@pytest.mark.parametrize(("pair", "singles"), sweep([*FEW, *((pair, True) for pair in PAIRS)], fast=FEW))
def test_no_table_makes_a_reply_slower(pair, singles):
    kind, truth = pair.split("-")
    check(kind, TRUTHS[truth], [(name, wrong, 1.0) for name, wrong in tables(singles=singles)])


@pytest.mark.parametrize("steps", [0.02, 50.0])
@pytest.mark.parametrize("pair", sweep(PAIRS, fast=["mix-dear", "good-flat"]))
def test_no_step_makes_a_reply_slower(pair, steps):
    kind, truth = pair.split("-")
    some = [table for table in tables() if table[0].startswith(("all", "by chance", "right", "above"))]
    check(kind, TRUTHS[truth], [(name, wrong, steps) for name, wrong in some])


@pytest.mark.parametrize("pair", sweep(PAIRS, fast=["mix-dear"]))
def test_no_table_makes_eight_replies_slower(pair):
    kind, truth = pair.split("-")
    some = [table for table in tables() if not table[0].startswith("only")]
    check(kind, TRUTHS[truth], [(name, wrong, 1.0) for name, wrong in some], sequences=8)


@pytest.mark.parametrize("sequences", [1, 8])
@pytest.mark.parametrize("kind", ["copy", "good", "mix"])
@pytest.mark.parametrize("after", ["dear", "flat", "cliff", "slow", "fast"])
def test_the_truth_may_change_in_mid_reply(kind, after, sequences):
    """Verifying becomes dear, or cheap; everything becomes three times slower, or faster."""
    now = {"v": TRUTHS["steep"], "pace": 1.0}
    found = sources(kind)
    controller = controller_of(found, now["v"])
    engine = Simulated(found, lambda rows: now["pace"] * now["v"](rows), noise=0.05, seed=1)
    engine.play(controller, TOKENS, sequences=sequences)
    now.update({"slow": {"pace": 3.0}, "fast": {"pace": 1 / 3}}.get(after, {"v": TRUTHS.get(after)}))
    gained = [engine.play(controller, TOKENS, sequences=sequences) for _ in range(2)]
    # A reference from a machine three times slower holds until the next one.
    assert 1 / gained[0] < (1.15 if after == "fast" else FIRST), (gained, controller.reason)
    assert 1 / gained[1] < LATER, (gained, controller.reason)
    if kind == "good" and after == "flat" and sequences == 1:
        assert gained[1] > 1.3


def test_a_poisoned_process_gains_in_its_first_reply():
    """A calibration from a busy machine: one row alone, 40 times too long, and steps alike."""
    first, second = replies("good", TRUTHS["flat"], lambda rows: 40 if rows == 1 else None, steps=130.0)
    right, _ = replies("good", TRUTHS["flat"])
    assert first < right * 1.15
    assert second < 0.8


class Open(Guard):
    """Never empties its purse."""

    def add(self, *arguments, **settings):
        super().add(*arguments, **settings)
        self.purse = 30.0


@pytest.mark.parametrize("sequences", [1, 8])
def test_only_a_true_guard_keeps_the_promise(sequences, monkeypatch):
    """Tables that promise free rows, and gates that never close: without a purse each costs many long rounds."""
    monkeypatch.setattr(Gate, "is_open", lambda self, sequence: True)

    def worst(guard):
        return max(
            replies(kind, TRUTHS["dear"], wrong, steps=0.02, sequences=sequences, count=1, guard=guard)[0]
            for kind in ("liar", "copy", "mix")
            for name, wrong in tables()
            if name.startswith(("all 0.02", "all but one row 0.02", "above eight 0.02", "only rows"))
        )

    assert worst(Guard) < FIRST < worst(Open)
