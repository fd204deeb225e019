"""The native distribution is the plain one to the bit: tokens, probabilities, the likeliest, refusals."""

import itertools

import numpy as np
import pytest
from views import view_at

from paceline.core.request import SamplingParams
from paceline.errors import NumericalError
from paceline.sample.coupled import distribution_fast
from paceline.sample.distribution import distribution
from paceline.sample.rng import PART, pick

FILTERS = [
    {},
    {"top_k": 1},
    {"top_k": 300},
    {"top_p": 0.95},
    {"top_p": 0.2, "typical_p": 0.7},
    {"typical_p": 0.5},
    {"min_p": 0.05},
    {"repetition_penalty": 1.3, "logit_bias": ((3, 5.0),)},
    {"allowed_tokens": (5, 1, 7), "top_p": 0.9},
]


def rows(vocab):
    random = np.random.default_rng(vocab)
    normal = random.standard_normal(vocab).astype(np.float32)
    yield normal * 3
    yield np.round(normal * 2) / 2
    yield np.where(normal < 0.3, np.float32(-np.inf), normal).astype(np.float32)
    yield np.zeros(vocab, np.float32)


@pytest.mark.parametrize("vocab", [9, 64, 1000])
def test_native_distributions_are_the_plain_ones_to_the_bit(vocab):
    for row, filters, temperature in itertools.product(rows(vocab), FILTERS, (0.0, 0.7, 1.0)):
        row[[1, 5, 7]] = 1.0
        view = view_at(6, SamplingParams(temperature, **filters))
        plain, fast = distribution(row, view, [2, 4]), distribution_fast(row, view, [2, 4])
        want, got = plain.probabilities(vocab), fast.probabilities(vocab)
        assert want.tobytes() == got.tobytes(), (filters, temperature, np.flatnonzero(want != got))
        possible = np.count_nonzero(np.isfinite(plain.scores))
        for count in (0, 1, 3, vocab + 5):
            count = min(count, possible)
            assert fast.best(count).tolist() == plain.best(count).tolist() == plain.ids[:count].tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}], ids=str)
def test_rows_without_a_distribution_are_refused(bad, filters):
    row = np.full(70, -np.inf, np.float32)
    row[3] = bad
    with pytest.raises(NumericalError, match="NaN" if np.isnan(bad) else "inf"):
        distribution_fast(row, view_at(1, SamplingParams(0.8, **filters)))


@pytest.mark.parametrize("length", [1, PART - 1, PART, PART + 1, 3 * PART + 7])
def test_picks_by_parts_are_where_the_running_sum_says(length):
    random = np.random.default_rng(length)
    weights = random.integers(0, 3, length).astype(float)
    weights[-1] = 1
    running = np.cumsum(weights)
    for wanted in (*(np.arange(running[-1]) + 0.5), *(running[:-1])):  # whole numbers: sums are exact
        index = int(np.searchsorted(running, wanted, side="right"))
        assert pick(weights, wanted / running[-1]) == index or wanted / running[-1] * running[-1] != wanted
    weights[-1] = 0
    weights[0] = 1
    assert pick(weights, 1 - 2.0**-53) == np.flatnonzero(weights)[-1]
