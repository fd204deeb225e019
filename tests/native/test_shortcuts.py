"""The native draw's short cuts: cuts by rank, slices of mass and skipped blocks lose no token and add none."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from sweep import sweep
from views import distribution_of_row, draw_at, draw_plain_at

from paceline.core.request import SamplingParams
from paceline.errors import NumericalError
from paceline.kernels.native import native
from paceline.sample.rng import Stream, gumbel, words

FILTERS = [
    {},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 60},
    {"top_k": 10**6},
    {"top_p": 0.9},
    {"top_p": 1e-9},
    {"top_p": 0.999999},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"min_p": 1e-12},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.1},
    {"top_k": 300, "top_p": 0.5},
    {"top_k": 300, "typical_p": 0.5},
    {"typical_p": 0.9},
    {"typical_p": 0.2},
    {"typical_p": 1e-9},
    {"typical_p": 0.999999},
    {"top_p": 0.95, "typical_p": 0.5},
    {"typical_p": 0.5, "min_p": 0.3},
    {"top_k": 50, "top_p": 0.9, "typical_p": 0.7, "min_p": 0.1},
]


def rows(vocab, seed=0):
    """Yield (name, float32 [V]) of distributions that provoke every short cut."""
    random = np.random.default_rng(seed)
    normal = random.standard_normal(vocab).astype(np.float32)
    yield "spread", normal * 4
    yield "flat", normal * 0.01
    yield "equal", np.zeros(vocab, np.float32)
    yield "tied", np.round(normal * 2) / 2
    yield "signed zeros", np.where(normal > 0, np.float32(0.0), np.float32(-0.0))
    forbidden = random.random(vocab) < 0.9
    forbidden[0] = False
    yield "mostly forbidden", np.where(forbidden, np.float32(-np.inf), normal * 2)
    one = np.full(vocab, -np.inf, np.float32)
    one[random.integers(vocab)] = -3.0
    yield "one allowed", one
    yield "huge", normal * 1e30
    yield "peaked", np.where(np.arange(vocab) == vocab // 2, np.float32(30), normal)


@pytest.mark.parametrize("vocab", sweep((1, 3, 16, 63, 64, 65, 1000, 4099), fast=(1, 3, 64, 65, 1000)))
def test_native_distribution_keeps_the_plain_tokens_in_the_plain_order(vocab):
    for (name, row), filters, temperature in itertools.product(rows(vocab), FILTERS, (0.0, 0.05, 0.8, 3.0)):
        params = SamplingParams(temperature=temperature, **filters)
        want = distribution_of_row(row, params).ids
        got = native.survivors(row, temperature, params.top_k, params.top_p, params.min_p, params.typical_p)
        np.testing.assert_array_equal(got, want, err_msg=f"{name} V={vocab} T={temperature} {filters}")


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("vocab", sweep((9_001, 70_001), fast=(9_001,)))
def test_native_draw_is_the_plain_draw_at_a_large_vocabulary(vocab, filters):
    for position, (name, row) in enumerate(rows(vocab, seed=9)):
        params = SamplingParams(temperature=0.8, seed=2**63 + 11, **filters)
        assert draw_at(row, params, 10**6 + position) == draw_plain_at(row, params, 10**6 + position), name


def test_bounds_skip_only_losers_when_the_favourite_draws_badly():
    # Seeds whose noise for the best token is poor make every other token a candidate.
    row = np.linspace(0, 0.5, 300, dtype=np.float32)
    row[150] = 1.0
    seeds = np.arange(1000)
    noise = np.array([gumbel(words(int(s), Stream.GUMBEL, 5, np.array([150])))[0] for s in seeds])
    for seed in seeds[np.argsort(noise)[:40]]:
        params = SamplingParams(temperature=1.0, seed=int(seed))
        assert draw_at(row, params, 5) == draw_plain_at(row, params, 5)


def test_draw_follows_the_logits_not_where_they_lie_in_memory():
    table = np.random.default_rng(0).standard_normal((5, 1001)).astype(np.float32)
    params = SamplingParams(temperature=1.0, seed=3)
    assert [draw_at(row, params, 4) for row in table] == [draw_at(row.copy(), params, 4) for row in table]


GUARDED = """
import ctypes, mmap
import numpy as np
from paceline.kernels.native import native
page, count = mmap.PAGESIZE, 65
memory = mmap.mmap(-1, 2 * page)
second = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + page
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(second), page, 0) == 0
tokens = np.frombuffer(memory, np.int32, count, page - 4 * count)
tokens[:] = 3 * np.arange(count)
drawn = {native.draw_among(np.zeros(count, np.float32), tokens, 1e300, 0, 1.0, 0.0, seed, 5) for seed in range(9)}
print(len(drawn) > 1 and drawn <= set(tokens.tolist()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory as Linux does")
def test_no_temperature_reads_tokens_behind_the_last():
    """Behind the tokens lies a page that must not be read, and no bound leaves the last block's padding out."""
    said = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "True\n"), said.stderr


@pytest.mark.parametrize("call", [draw_at, draw_plain_at])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("bad", "says"), [(np.nan, "NaN"), (-np.nan, "NaN"), (np.inf, "got inf")], ids=["nan", "-nan", "inf"]
)
def test_rows_that_are_no_distribution_are_refused(call, temperature, bad, says):
    for vocab, at in ((10, 3), (64, 63), (130, 129)):
        row = np.zeros(vocab, np.float32)
        row[at] = bad
        with pytest.raises(NumericalError, match=says):
            call(row, SamplingParams(temperature=temperature), 0)
    with pytest.raises(NumericalError, match="forbidden"):
        call(np.full(9, -np.inf, np.float32), SamplingParams(temperature=temperature), 0)


def test_a_far_behind_block_wins_one_draw_in_millions():
    """Of ten million words the largest lifts its token by 15 or more; only then may it beat the leader."""
    vocab, seed = 100_000, 21
    every = np.arange(vocab, dtype=np.int32)
    rarest = max((int(native.philox(seed, 0, position, every).max()), position) for position in range(100))
    position = rarest[1]
    noise = gumbel(words(seed, Stream.GUMBEL, position, np.arange(vocab)))
    token, leader = int(noise.argmax()), 7
    assert noise[token] > 15
    params = SamplingParams(temperature=1.0, seed=seed)
    for margin, wins in ((1e-3, True), (-1e-3, False)):
        row = np.full(vocab, -80.0, np.float32)
        row[leader], row[token] = 0.0, noise[leader] - noise[token] + margin
        assert draw_at(row, params, position) == draw_plain_at(row, params, position) == (token if wins else leader)
