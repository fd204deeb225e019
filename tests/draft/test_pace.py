"""What a round promises at the prices of the long run, and how those prices follow it."""

import numpy as np
import pytest

from paceline.core.round import Budget
from paceline.draft.compose.mix import _fair, best_pace


@pytest.mark.parametrize("seed", range(20))
def test_a_pace_is_the_best_of_all_counts(seed):
    chance = np.random.default_rng(seed)
    survival, step = np.sort(chance.random(seed % 12))[::-1], float(chance.random()) * (seed % 2)
    budget = Budget(8, 8, np.cumsum(np.append(0.0, chance.random(8))), plain=0.5)
    counts = range(min(len(survival), 8) + 1)
    wanted = max((1 + survival[:n].sum()) / (0.5 + budget.price[n] + n * step) for n in counts)
    assert best_pace(survival, step, budget) == pytest.approx(wanted)


def test_prices_fall_in_a_poor_round_and_rise_beside_copies():
    budget = Budget(8, 8, np.array([0.0, 0.25]), {"m": 0.25}, plain=0.5)
    sure, unlikely = np.ones(1), np.full(1, 0.01)
    assert _fair(budget, sure, []).step["m"] == pytest.approx(0.25 * 2 / 0.75), "a copy earns more than the price"
    dear = Budget(8, 8, np.array([0.0, 1.0]), {"m": 1.0}, plain=2.0)
    assert _fair(dear, unlikely, []).plain == pytest.approx(2.0 * 0.5)
    assert _fair(dear, unlikely, [(sure, 0.5)]).plain == pytest.approx(2.0 * 2 / 3.5), "neither earns it"
    assert _fair(budget, np.zeros(0), [(sure, 0.1)]).step["m"] > 0.25
    assert _fair(Budget(8, 8), sure, []) == Budget(8, 8), "prices do not matter"
