"""The quick sort of a row is the plain one."""

import numpy as np
import pytest

from paceline.sample.order import best_first

ODD = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 3e38, -3e38, 1.0, 1.0, -1.0, 0.0, -0.0], np.float32)


@pytest.mark.parametrize("seed", range(8))
def test_tokens_come_best_first_and_ties_by_id(seed):
    chance = np.random.default_rng(seed)
    row = chance.standard_normal(5000).astype(np.float32)
    row[chance.integers(5000, size=2000)] = chance.choice(ODD, 2000)
    np.testing.assert_array_equal(best_first(row), np.argsort(-row, kind="stable"))
    np.testing.assert_array_equal(best_first(ODD[::-1][: seed + 1]), np.argsort(-ODD[::-1][: seed + 1], kind="stable"))
