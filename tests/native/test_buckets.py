"""Where the native distribution cuts: in every bucket, on its edges, among thousands of equals, by all filters
together.
"""

import itertools

import numpy as np
import pytest
from sweep import sweep
from views import distribution_of_row, draw_at, draw_plain_at

from paceline.core.request import SamplingParams
from paceline.kernels.native import native

VOCAB = 20_011  # enough for more than 4096 tokens in one bucket, and a block that is not full


def rows(seed):
    """Yield (name, float32 [V]) of flat, peaked and tied distributions."""
    random = np.random.default_rng(seed)
    normal = random.standard_normal(VOCAB).astype(np.float32)
    for scale in (0.1, 1, 3):
        yield f"normal {scale}", normal * np.float32(scale)
    yield "equal", np.full(VOCAB, normal[0], np.float32)
    yield "halves", np.round(normal * 2) / 2
    eighths = np.round(normal * 4) / 8
    yield "edges", eighths - eighths.max()  # at temperature 1 / ln 2 these are the depths: each lies on an edge
    yield "two", np.where(normal > 0.5, np.float32(1), np.float32(0.99))
    yield "two and some", np.where(np.abs(normal) < 2.5, np.float32(0), normal)
    peaked = normal * 2
    peaked[random.integers(VOCAB)] = 22
    yield "peaked", peaked
    yield "mostly forbidden", np.where(normal < 1.5, np.float32(-np.inf), normal)
    yield "a step", np.where(np.arange(VOCAB) % 3 == 0, normal, normal - np.float32(19))


def survivors(row, params):
    return native.survivors(row, params.temperature, params.top_k, params.top_p, params.min_p, params.typical_p)


COMBINATIONS = list(
    itertools.product((0, 50, 9000), (1.0, 0.95, 0.3), (1.0, 0.9, 0.2), (0.0, 0.05), (0.3, 1 / np.log(2)))
)


@pytest.mark.parametrize("count", sweep((3, len(COMBINATIONS)), fast=(3,)))
def test_every_combination_of_filters_keeps_the_distributions_tokens(count):
    random = np.random.default_rng(count)
    for name, row in rows(1):
        for place in random.permutation(len(COMBINATIONS))[:count]:
            top_k, top_p, typical_p, min_p, temperature = COMBINATIONS[place]
            params = SamplingParams(temperature, top_k=top_k, top_p=top_p, typical_p=typical_p, min_p=min_p, seed=3)
            np.testing.assert_array_equal(
                survivors(row, params), distribution_of_row(row, params).ids, err_msg=f"{name} {params}"
            )
            assert draw_at(row, params, 5) == draw_plain_at(row, params, 5), (name, params)


@pytest.mark.parametrize("filter", ["top_p", "typical_p", "top_k"])
@pytest.mark.parametrize("count", sweep((3, 50), fast=(3,)))
def test_a_cut_falls_wherever_it_is_asked_to(filter, count):
    random = np.random.default_rng(count)
    for name, row in rows(2):
        for share in (*random.random(count), *10 ** -(12 * random.random(count)), 0.5, 1 - 1e-4, np.nextafter(1, 0)):
            value = 1 + int(share * VOCAB) if filter == "top_k" else float(share)
            params = SamplingParams(1 / np.log(2), **{filter: value})
            np.testing.assert_array_equal(
                survivors(row, params), distribution_of_row(row, params).ids, err_msg=f"{name} {params}"
            )


@pytest.mark.parametrize("count", sweep((2, 50), fast=(2,)))
def test_a_cut_falls_rightly_among_what_another_left(count):
    """Behind top-k only its tokens are looked at: ties at both cuts, as many as there are, one alone."""
    random = np.random.default_rng(100 + count)
    for name, row in rows(3):
        finite = int(np.isfinite(row).sum())
        for top_k in (1, 2, 64, 313, 314, finite, finite + 1, *random.integers(1, VOCAB, count)):
            for filters in ({"top_p": random.random()}, {"typical_p": random.random()}, {"top_p": 0.9, "min_p": 0.5}):
                params = SamplingParams(1 / np.log(2), top_k=int(top_k), seed=9, **filters)
                np.testing.assert_array_equal(
                    survivors(row, params), distribution_of_row(row, params).ids, err_msg=f"{name} {params}"
                )
                assert draw_at(row, params, 5) == draw_plain_at(row, params, 5), (name, params)


def test_the_distributions_tokens_come_by_id_whatever_cut_them():
    for name, row in rows(4):
        for filters in ({"top_k": 5000}, {"top_p": 0.7}, {"typical_p": 0.6}, {"min_p": 0.2}):
            p = SamplingParams(0.7, **filters)
            ids = native.kept(row, p.temperature, p.top_k, p.top_p, p.typical_p, p.min_p)
            np.testing.assert_array_equal(ids, np.sort(distribution_of_row(row, p).ids), err_msg=f"{name} {filters}")
