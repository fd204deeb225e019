"""The cost table: rising, interpolated, corrected by medians, unmoved by nonsense."""

import math

import numpy as np
import pytest

from paceline.estimate.cost import GRID, PATIENCE, SLACK, SLOPE, SOON, CostTable, hull, rising

MEASURED = {1: 0.020, 2: 0.022, 4: 0.026, 8: 0.034, 16: 0.05}


def test_points_are_kept_and_lines_drawn_between_and_beyond():
    table = CostTable(MEASURED)
    np.testing.assert_allclose(
        table.seconds([0, 1, 2, 3, 8, 12, 16, 24]), [0, 20e-3, 22e-3, 24e-3, 34e-3, 42e-3, 50e-3, 66e-3]
    )
    assert table.at(12) == pytest.approx(0.042)
    one = CostTable({4: 0.13})
    np.testing.assert_allclose(one.seconds([1, 4, 64]), 0.1 * (1 + SLOPE * np.array([0, 3, 63])))
    assert CostTable({2: 0.02, 4: 0.03}).at(1) < 0.02, "fewer rows than any measured take less"


def test_a_measured_dip_is_levelled():
    assert rising([3, 1, 2, 5, 4]).tolist() == [1, 1, 2, 4, 4]
    assert (np.diff(CostTable({1: 3e-3, 2: 1e-3, 4: 2e-3}).seconds(range(1, 9))) >= 0).all()


def test_an_untried_dear_point_lies_between_its_neighbours():
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


def test_json_restores_a_table_and_refuses_anything_else():
    table = CostTable(MEASURED)
    np.testing.assert_array_equal(CostTable.from_json(table.to_json()).base, table.base)
    for wrong in (None, [], {}, {"1": 0}, {"0": 1.0}, {"1": "x"}, {"one": 1.0}, {"1": math.nan}, {"1": None}):
        with pytest.raises(ValueError, match="cost table"):
            CostTable.from_json(wrong)


def test_one_disturbed_round_changes_nothing_and_many_do():
    table = CostTable(MEASURED)
    chance = np.random.default_rng(0)
    for _ in range(200):
        table.observe(1, 0.020 * (10 if chance.random() < 0.2 else 1))
    assert table.at(1) == pytest.approx(0.020)
    for _ in range(9):
        table.observe(1, 0.040)
    assert table.at(1) == pytest.approx(0.040)
    assert table.at(8) == pytest.approx(0.068), "what was not seen moves along"


def test_points_seen_of_late_keep_their_own_correction():
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


def test_one_wild_value_moves_no_other_but_the_one_before():
    """A value far too low and the one before contradict each other, and the higher one is taken for disturbed."""
    known = sorted(MEASURED)
    for place, rows in enumerate(known):
        for wild, others in ((1.0, {*known} - {rows}), (0.0004, {*known} - {*known[max(place - 1, 0) : place + 1]})):
            table = CostTable({**MEASURED, rows: wild})
            for other in others:
                assert table.at(other) == pytest.approx(MEASURED[other], rel=0.3), (wild, rows, other)


@pytest.mark.parametrize("factor", [0.02, 0.2, 5, 50])
def test_two_rounds_overrule_what_was_measured(factor):
    for wrong in ((1,), (4,), (8,), (2, 8), (2, 4, 8, 16), tuple(MEASURED)):
        table = CostTable({rows: seconds * (factor if rows in wrong else 1) for rows, seconds in MEASURED.items()})
        for _ in range(2):
            for rows in (1, 2, 4, 8):
                table.observe(rows, MEASURED[rows])
        np.testing.assert_allclose(table.seconds([1, 2, 4, 8]), [MEASURED[n] for n in (1, 2, 4, 8)])
        assert MEASURED[8] <= table.at(16) <= 3 * MEASURED[8]


def test_unseen_rows_lie_between_the_seen_ones():
    for factor in (0.02, 50):
        table = CostTable({rows: seconds * (factor if rows > 1 else 1) for rows, seconds in MEASURED.items()})
        for _ in range(2):
            table.observe(1, 0.02)
        assert 0.0199 <= table.at(2) <= SLACK * 0.04
        for _ in range(2):
            table.observe(16, 0.05)
        assert 0.0199 <= table.at(2) <= table.at(8) <= 0.0501


def test_a_first_look_at_a_point_moves_no_seen_point():
    """A table five times too low: the second point that is seen corrects itself, not the first one once more."""
    table = CostTable({rows: seconds / 5 for rows, seconds in MEASURED.items()})
    for _ in range(6):
        table.observe(1, 0.02)
    for _ in range(6):
        table.observe(16, 0.05)
    assert table.at(1) == pytest.approx(0.02)


def test_two_stalls_at_a_rare_number_of_rows_are_forgotten():
    table = CostTable(MEASURED)
    for _ in range(6):
        table.observe(1, 0.020)
    for _ in range(2):
        table.observe(8, 3.0)
    for _ in range(SOON + len(GRID) + 1):
        table.observe(1, 0.020)
    assert table.at(8) == pytest.approx(0.034, rel=0.1)


def test_reach_allows_for_a_table_that_seen_points_contradict():
    table = CostTable({rows: (1 if rows == 1 else 25) * seconds for rows, seconds in MEASURED.items()})
    for _ in range(2):
        table.observe(1, 0.02)
        table.observe(2, 0.02)
    assert table.reach(0.02 * 5) == 9, "at most 10 ms a row"
    assert table.reach(0.0) == 2, "what was seen is known; prices weigh it"
    for _ in range(2):
        table.observe(4, 0.025)
    assert table.reach(0.02 * 5) == 16, "at most 6.25 ms a row"
    for _ in range(2):
        table.observe(16, 0.05)
    assert table.reach(0.02 * 5) == 31
    assert table.reach(0.03) == 4, "five may take as long as sixteen"
    true = CostTable(MEASURED)
    for rows in (1, 1, 2, 2):
        true.observe(rows, 1.5 * MEASURED[rows])
    assert true.reach(1.5 * 0.05) == 4, "as measured where what was seen agrees, up to twice the rows of it"
    for rows in (4, 8):
        true.observe(rows, 1.5 * MEASURED.get(rows, true.at(rows)))
    assert true.reach(1.5 * 0.05) == 16


def test_unseen_rows_are_unknown_once_seen_ones_contradict_the_table():
    table = CostTable(MEASURED)
    for rows in (1, 2, 1, 2):
        table.observe(rows, 3 * MEASURED[rows])
    assert table.unknown == [], "the whole machine is slower"
    for _ in range(2):
        table.observe(4, 10 * MEASURED[4])
    assert table.unknown[:2] == [256, 192]
    table.observe(8, MEASURED[8])
    assert table.unknown[:2] == [8, 256]
    assert not {1, 2, 4} & {*table.unknown}


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
