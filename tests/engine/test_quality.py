"""Each sign of a bad calibration raises its doubt alone; none is raised where nothing is wrong."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from paceline.engine.quality import AGE, Observed, Quality, judge, worth_replacing

SOUND = Observed(
    seconds={rows: [0.01 * (1 + 0.1 * rows)] * 3 for rows in (1, 2, 3, 4, 8, 16)},
    wall=0.3,
    cpu=0.57,
    switches=8,
    threads=2,
    neighbours=0.02,
    spare=0,
    floor_seconds=0.006,
)


def seconds(**changes):
    return {**SOUND.seconds, **{int(rows[1:]): found for rows, found in changes.items()}}


def test_a_quiet_machine_raises_no_doubt():
    quality = judge(SOUND)
    assert quality.doubts == ()
    assert not quality.is_doubtful
    assert quality.repeats == 3
    assert quality.spread == pytest.approx(0.0)
    assert quality.cpu_share == pytest.approx(0.95)
    assert (quality.switches, quality.neighbours, quality.floor_seconds) == (8, 0.02, 0.006)
    assert datetime.fromisoformat(quality.made).utcoffset() == timedelta(0)
    assert quality.age < 5


SIGNS = [
    ({"seconds": seconds(_4=[0.014])}, "forwards were measured 1 times"),
    ({"seconds": {rows: [found[0], 1.4 * found[0]] for rows, found in SOUND.seconds.items()},
      "wall": 0.33, "cpu": 0.63, "switches": 0}, None),  # half of it is the median: 20 %
    ({"seconds": {rows: [found[0], 2 * found[0]] for rows, found in SOUND.seconds.items()}}, "differed by 50 %"),
    ({"seconds": seconds(_8=[0.009] * 3)}, "8 rows took 0.64 times what 4 took"),
    ({"seconds": {1: [0.01] * 3, 2: [0.011] * 3, 8: [0.0098] * 3}}, "8 rows took no longer than 1"),
    ({"seconds": {1: [0.01] * 3}}, "only one number of rows"),
    ({"cpu": 0.4}, "threads ran 67 % of the time"),
    ({"switches": 60, "cpu": 0.5}, "interrupted 100 times a second"),
    ({"neighbours": 0.9}, "measured while 0.9 cores were busy"),
    ({"floor_seconds": 0.02}, "0.6 times what reading the weights took"),
    ({"floor_seconds": 0.001}, "11.0 times what reading the weights took"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), SIGNS)
def test_each_sign_is_a_doubt_of_its_own(changes, said):
    doubts = judge(replace(SOUND, **changes)).doubts
    if said is None:
        assert doubts == ()
    else:
        assert len(doubts) == 1, doubts
        assert said in doubts[0]


@pytest.mark.parametrize("changes", [
    {"seconds": seconds(_16=[0.026])},  # a large row had once is no doubt
    {"seconds": seconds(_2=[0.0105] * 3)},  # a hundredth less than one row is rounding
    {"seconds": seconds(_3=[0.013, 0.026, 0.026])},  # one row's spread is not the machine's
    {"neighbours": None},
    {"neighbours": 0.9, "spare": 1},  # a core that no thread uses is free for others
    {"neighbours": 0.5, "threads": 64, "cpu": 0.3 * 64 * 0.95},
    {"floor_seconds": 0.0},
    {"wall": 0.003, "cpu": 0.003, "switches": 99},  # tiny forwards are prepared by one thread
    {"wall": 0.15, "cpu": 0.25, "switches": 19},  # few are no rate
    {"switches": 160},  # a kernel's work at each tick costs no time
    {"switches": 160, "cpu": 0.54},
    {"wall": 0.0, "cpu": 0.0, "switches": 0},
])  # fmt: skip
def test_what_is_usual_is_no_doubt(changes):
    assert judge(replace(SOUND, **changes)).doubts == ()


def made(ago):
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="seconds")


@pytest.mark.parametrize(("then", "now", "ago", "worth"), [
    (1.9, 0.05, 0, True),
    (1.9, 0.05, AGE + 9, True),
    (1.9, 1.5, AGE + 9, False),  # as busy as before
    (1.9, None, AGE + 9, False),
    (0.3, 0.05, 0, True),
    (0.3, 0.2, 0, False),  # no clear margin
    (0.1, 0.0, 0, False),  # load does not explain it: not at once
    (0.1, 0.0, AGE + 9, True),
    (0.1, 1.0, AGE + 9, False),  # and not beside other work
    (None, None, 0, False),
    (None, None, AGE + 9, True),
    (None, 0.0, AGE + 9, True),
])  # fmt: skip
def test_a_doubtful_one_is_replaced_when_the_machine_is_quieter(then, now, ago, worth):
    quality = replace(judge(SOUND), neighbours=then, made=made(ago), doubts=("something",))
    assert worth_replacing(quality, now) is worth
    assert not worth_replacing(replace(quality, doubts=()), now)


def test_a_clock_put_back_makes_nothing_older():
    assert replace(judge(SOUND), made=made(-3600)).age == 0


def test_it_comes_back_from_json_as_it_was():
    for quality in (judge(SOUND), judge(replace(SOUND, neighbours=None, cpu=0.1))):
        assert Quality.from_json(quality.to_json()) == quality


HOSTILE = [
    ("made", "yesterday"), ("made", 5), ("made", "2026-11-30T23:10:00"), ("made", None), ("repeats", -1),
    ("repeats", 2.5), ("repeats", True), ("repeats", 10**30), ("spread", float("nan")), ("spread", -0.1),
    ("spread", "0.1"), ("cpu_share", float("inf")), ("cpu_share", 10**400), ("switches", None),
    ("neighbours", float("nan")), ("neighbours", -1), ("neighbours", "many"), ("floor_seconds", None),
    ("floor_seconds", True), ("doubts", "a text"), ("doubts", [1]), ("doubts", ["\x1b[2J"]), ("doubts", ["x" * 999]),
    ("doubts", ["x"] * 99), ("doubts", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_a_hostile_quality_is_refused(name, value):
    with pytest.raises(ValueError, match=r".+"):
        Quality.from_json({**judge(SOUND).to_json(), name: value})


def test_a_partial_quality_is_refused():
    said = judge(SOUND).to_json()
    for field in fields(Quality):
        with pytest.raises(ValueError, match="a quality is"):
            Quality.from_json({name: value for name, value in said.items() if name != field.name})
    for value in (None, [], 3, "x"):
        with pytest.raises(ValueError, match="a quality is"):
            Quality.from_json(value)
