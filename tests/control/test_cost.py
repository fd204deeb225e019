"""The cost table: rising, interpolated, corrected by medians, unmoved by nonsense."""

import math

import numpy as np
import pytest

from paceline.control.cost import PATIENCE, CostTable, hull, rising

MEASURED = {1: 0.020, 2: 0.022, 4: 0.026, 8: 0.034, 16: 0.05}


def test_points_are_kept_and_lines_drawn_between_and_beyond():
    table = CostTable(MEASURED)
    np.testing.assert_allclose(
        table.seconds([0, 1, 2, 3, 8, 12, 16, 24]), [0, 20e-3, 22e-3, 24e-3, 34e-3, 42e-3, 50e-3, 66e-3]
    )
    assert table.at(12) == pytest.approx(0.042)
    assert CostTable({4: 0.1}).at(64) == pytest.approx(0.1)


def test_a_measured_dip_is_levelled():
    assert rising([3, 1, 2, 5, 4]).tolist() == [2, 2, 2, 4.5, 4.5]
    assert (np.diff(CostTable({1: 3e-3, 2: 1e-3, 4: 2e-3}).seconds(range(1, 9))) >= 0).all()


def test_a_point_that_looks_dear_is_taken_for_what_its_neighbours_say_until_it_is_tried():
    """Noise in the measurement: five rows were 91 ms and six 127, so a sixth was never checked, and took 97."""
    table = CostTable({1: 0.058, 4: 0.079, 5: 0.091, 6: 0.127, 8: 0.126, 12: 0.19})
    assert table.at(6) == pytest.approx(0.091 + (0.1265 - 0.091) / 3, rel=0.02)
    table.observe(6, 0.097)
    assert table.at(6) < 0.105, "one try does not undo it"
    for _ in range(9):
        table.observe(6, 0.150)
    assert table.at(6) == pytest.approx(0.150), "a step is believed in when it is seen"
    assert hull(np.array([1, 2, 4, 8]), np.array([1.0, 3.0, 4.0, 8.0])).tolist() == [1.0, 2.0, 4.0, 8.0]
    assert hull(np.array([3]), np.array([1.0])).tolist() == [1.0]


def test_json_brings_it_back_and_refuses_what_is_none():
    table = CostTable(MEASURED)
    np.testing.assert_array_equal(CostTable.from_json(table.to_json()).base, table.base)
    for wrong in (None, [], {}, {"1": 0}, {"0": 1.0}, {"1": "x"}, {"one": 1.0}, {"1": math.nan}, {"1": None}):
        with pytest.raises(ValueError, match="cost table"):
            CostTable.from_json(wrong)


def test_one_disturbed_round_means_nothing_and_many_do():
    table = CostTable(MEASURED)
    chance = np.random.default_rng(0)
    for _ in range(200):
        table.observe(1, 0.020 * (10 if chance.random() < 0.2 else 1))
    assert table.at(1) == pytest.approx(0.020)
    for _ in range(9):
        table.observe(1, 0.040)
    assert table.at(1) == pytest.approx(0.040)
    assert table.at(8) == pytest.approx(0.068), "what was not seen moves along"


def test_points_seen_of_late_speak_for_themselves():
    """Verifying became slower and plain decoding did not: a uniform correction would hide it."""
    table = CostTable(MEASURED)
    for _ in range(20):
        table.observe(1, 0.020)
        table.observe(8, 0.068)
    assert table.at(1) == pytest.approx(0.020)
    assert table.at(8) == pytest.approx(0.068)
    assert table.at(16) == pytest.approx(0.100), "as its nearest neighbour"
    for _ in range(20):  # the whole machine, seen by plain rounds alone
        table.observe(1, 0.002)
    assert table.at(8) == pytest.approx(0.0068)


def test_doubt_lets_the_next_round_decide():
    table = CostTable(MEASURED)
    for _ in range(20):
        table.observe(8, 0.102)
    assert table.at(1) == pytest.approx(0.060)
    table.doubt(1)
    table.observe(1, 0.020)
    assert table.at(1) == pytest.approx(0.020)
    assert table.at(8) == pytest.approx(0.102)


def test_nonsense_is_ignored():
    table = CostTable(MEASURED)
    for seconds in (math.nan, math.inf, 0.0, -1.0):
        table.observe(1, seconds)
    table.observe(0, 1.0)
    table.observe(300, 1.0)
    np.testing.assert_array_equal(table.seconds([1, 8]), [0.020, 0.034])
    for wrong in ({}, {1: 0.0}, {0: 1.0}, {1: math.nan}):
        with pytest.raises(ValueError, match="cost table"):
            CostTable(wrong)


def test_lasting_drift_is_noticed_and_passing_drift_is_not():
    table = CostTable(MEASURED)
    for _ in range(PATIENCE - 20):
        table.observe(1, 0.030)
    assert not table.has_drifted
    for _ in range(10):
        table.observe(1, 0.020)
    for _ in range(PATIENCE + 10):
        table.observe(1, 0.030)
    assert table.has_drifted
