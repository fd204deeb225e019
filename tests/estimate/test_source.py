"""A source recovers from wrong guesses, and sequences of one batch have rates of their own."""

import numpy as np
import pytest

from paceline.core.round import Spent
from paceline.estimate.source import Source


def observe(source, *kept, times, sequence=0):
    for _ in range(times):
        source.observe(sequence, np.ones(len(kept), np.int32), np.array(kept, np.int32), censored=False)


def source_of(right, depth=4):
    source = Source("m", depth)
    for i in range(40):
        observe(source, int(i % 10 < 10 * right), times=1, sequence=99)
    return source


def test_a_depth_no_longer_drafted_returns_to_the_common_rate():
    source = Source("m", 4)
    observe(source, 1, 0, times=20)
    assert source.survivals([0])[0, 1] < 0.15
    observe(source, 1, times=500)
    assert source.survivals([0])[0, 1] > 0.4


def test_a_few_right_guesses_bring_a_bad_source_back():
    source = Source("m", 4)
    observe(source, 0, times=30)
    assert source.survivals([0])[0, 0] < 0.1
    observe(source, 1, times=40)
    assert source.survivals([0])[0, 0] > 0.5


def test_a_sequence_without_guesses_is_like_its_source():
    source = source_of(0.5)
    observe(source, 0, times=9, sequence=3)
    usual = source.survivals([4])[0]
    told = source.survivals([3, 4])
    np.testing.assert_allclose(told[1], usual)
    assert told[0, 0] < 0.6 * told[1, 0]
    cut = source_of(0.5)
    cut.observe(3, [1], [0], censored=True)
    np.testing.assert_allclose(cut.survivals([3, 4])[0], cut.survivals([4])[0])


def test_unused_sequences_fade_to_the_common_rate_ended_ones_go():
    source = source_of(0.8)
    source.keep([3, 4])
    observe(source, 0, times=20, sequence=3)
    for i in range(100):
        observe(source, int(i % 10 > 1), times=1, sequence=4)
    before = source.survivals([3, 4])[0, 0]
    for _ in range(300):
        source.pass_round(None)
    assert source.survivals([3, 4])[0, 0] > before + 0.1
    source.keep([4])
    np.testing.assert_allclose(source.survivals([3, 4])[0], source.survivals([4])[0])


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_certain_sources_and_sequences_stay_finite(right):
    source = source_of(right)
    source.keep([0, 1, 2])
    for _ in range(200):
        observe(source, *[int(1 - right)] * 4, times=1, sequence=0)
        observe(source, *[int(right)] * 4, times=2, sequence=1)
    told = source.survivals([0, 1, 2])
    assert np.isfinite(told).all()
    assert ((told >= 0) & (told <= 1)).all()
    assert (np.diff(told, axis=1) <= 0).all()


def test_steps_are_the_median_of_rounds_that_read_nothing():
    source = Source("m", 4, step_seconds=1.0)
    for seconds in (0.2, 0.22, 5.0, 0.21):
        source.pass_round(Spent(2, 2 * seconds))
        source.pass_round(Spent(2, 100.0, read=50))
    assert source.step_seconds == pytest.approx(0.22)
    fresh = Source("m", 4)
    fresh.pass_round(Spent(1, 9.0))
    assert not fresh.is_costly, "a first round that nothing was known of may have read the text"
    fresh.pass_round(Spent(1, 0.3))
    assert (fresh.is_costly, fresh.step_seconds) == (True, 0.3)
