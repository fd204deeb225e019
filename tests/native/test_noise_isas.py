"""The noise of a draw is one and the same on every instruction set, so that which one draws need not be said."""

import numpy as np
import pytest

from paceline.kernels.native import native
from paceline.sample.rng import Stream, words

KEYS = [(0, 0, 0), (1, 3, 7), (2**64 - 1, 1, 2**32 + 5), (0x9E3779B97F4A7C15, 2, 2**31), (42, 0, 2**62)]


@pytest.mark.parametrize("isa", native.isas())
@pytest.mark.parametrize("count", [1, 15, 16, 17, 300])
def test_every_instruction_set_gives_tokens_anywhere_the_same_words(isa, count):
    tokens = np.random.default_rng(count).integers(0, 5000, count).astype(np.int32)
    for seed, stream, position in KEYS:
        expected = words(seed, Stream(stream), position, tokens)
        assert np.array_equal(native.philox(seed, stream, position, tokens, isa=isa), expected), (isa, seed)


@pytest.mark.parametrize("isa", native.isas())
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 1.0])
def test_every_instruction_set_finds_the_logits_that_may_win(isa, share):
    random = np.random.default_rng(int(100 * share))
    for _ in range(50):
        block = np.where(random.random(64) < share, 1.0, -1.0).astype(np.float32)
        block[random.integers(64)] = -np.inf
        ones = np.flatnonzero(block >= 1.0)
        assert np.array_equal(native.reaching(block, 1.0, 2.0, 640, 1, isa=isa), 640 + ones)
        assert np.array_equal(native.reaching(block, 1.0, 2.0, 640, 4, isa=isa), 640 + np.unique(ones // 4) * 4)


@pytest.mark.parametrize("isa", native.isas())
def test_every_instruction_set_excludes_only_a_ranges_end(isa):
    block = np.random.default_rng(1).choice(np.array([-np.inf, -1.5, -0.0, 0.0, 1e-45, 2.5], np.float32), 64)
    for floor, end in [(-1.5, 0.0), (-0.0, 2.5), (0.0, 1e-45), (1e-45, np.inf), (2.5, 2.5), (-np.inf, np.inf)]:
        inside = np.flatnonzero((block >= np.float32(floor)) & (block < np.float32(end)))
        assert np.array_equal(native.reaching(block, floor, end, 64, 1, isa=isa), 64 + inside), (floor, end)


def test_every_instruction_set_is_asked_by_its_own_name():
    with pytest.raises(ValueError, match="does not run `none such`"):
        native.philox(0, 0, 0, np.zeros(1, np.int32), isa="none such")
