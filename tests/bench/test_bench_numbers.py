"""Statistics, floors and bars say what they claim."""

import random

import numpy as np
import pytest

from paceline.bench.bars import BARS, judge
from paceline.bench.machine import Neighbours, describe
from paceline.bench.prompts import fresh_prompt, fresh_text
from paceline.bench.session import rotated
from paceline.bench.speculate import best_speedup
from paceline.bench.stats import Spread, forward_floor, geometric_mean, ratios, read_floor, rounded


def test_a_spread_is_numpy_s_quantiles():
    samples = [0.25, 3.0, 1.0, 2.0, 9.5, 4.25]
    spread = Spread.of(samples)
    assert (spread.count, spread.min, spread.max) == (6, min(samples), max(samples))
    np.testing.assert_allclose((spread.p25, spread.median, spread.p75), np.percentile(samples, [25, 50, 75]))


def test_a_spread_of_one_sample_is_that_sample():
    assert Spread.of([2.5]) == Spread(1, 2.5, 2.5, 2.5, 2.5, 2.5)


def test_a_scaled_spread_keeps_its_count():
    assert Spread.of([1.0, 2.0, 3.0]).scaled(1e3).to_json() == {
        "count": 3,
        "median": 2000.0,
        "min": 1000.0,
        "p25": 1500.0,
        "p75": 2500.0,
        "max": 3000.0,
    }


def test_ratios_go_pair_by_pair_and_leave_out_zero():
    assert ratios([2.0, 9.0, 5.0], [1.0, 3.0, 0.0]) == [2.0, 3.0]


def test_the_geometric_mean_undoes_opposite_ratios():
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([]) == 0.0


def test_rounded_numbers_fit_json():
    assert rounded(1234.56789, 4) == 1235.0
    assert rounded(float("nan")) == rounded(float("inf")) == 0.0


def test_the_floor_is_memory_or_arithmetic_whichever_is_longer():
    read = read_floor(900, 100, 500.0)
    assert read == 2.0
    assert forward_floor(read, products=10, products_per_second=10.0) == 2.0
    assert forward_floor(read, products=80, products_per_second=10.0) == 8.0
    assert forward_floor(read, products=80, products_per_second=0.0) == 2.0  # unknown rate: memory only


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: f"{bar.metric}-{bar.model}")
def test_each_bar_marks_its_own_limits(bar):
    worse = -0.01 if bar.higher_is_better else 0.01
    assert bar.mark(bar.aim) == "aim"
    assert bar.mark(bar.least) == bar.mark(bar.aim + worse) == "pass"
    assert bar.mark(bar.least + worse) == "fail"


def test_bars_apply_to_their_model_and_to_what_was_measured():
    judged = judge("smollm2-135m", [("decode_vs_peer", 2.0), ("v8", 9.0), ("outside_ms", 0.2)])
    assert [(bar["metric"], bar["mark"]) for bar in judged] == [("decode_vs_peer", "pass"), ("outside_ms", "aim")]
    assert judged[0]["at_least"] == 1.3
    assert judged[1]["at_most"] == 1.5


def test_the_best_length_counts_every_temperature():
    def at(**means):
        return {"all": {"ways": {name: {"speedup_geometric_mean": mean} for name, mean in means.items()}}}

    found = {
        "temperatures": {
            "0": at(**{"small fixed:2": 2.0, "small fixed:4": 1.5, "ngram fixed:4": 7.0}),
            "0.8": at(**{"small fixed:2": 0.5, "small fixed:4": 1.5, "ngram fixed:4": 7.0}),
        }
    }
    assert best_speedup(found, "small") == pytest.approx(1.5)
    assert best_speedup(found, "off") is None
    assert best_speedup({}, "small") is None


def test_no_two_texts_are_alike():
    rng = random.Random(1)
    assert len({fresh_text(rng, 1) for _ in range(50)}) == 50
    assert len({fresh_prompt(rng, "Why?") for _ in range(50)}) == 50


def test_rotation_keeps_every_width():
    assert rotated((1, 2, 3), -1) == [3, 1, 2]
    assert sorted(rotated((1, 2, 3), 7)) == [1, 2, 3]


def test_the_machine_is_described_with_its_load():
    found = describe()
    assert found["isa"] in found["isas"]
    assert len(found["load_average"]) == 3
    assert {"paceline", "numpy"} <= found["versions"].keys()


def test_our_own_work_is_no_neighbour():
    neighbours = Neighbours()
    sum(range(3_000_000))
    assert neighbours.cores() is None or neighbours.cores() >= 0
