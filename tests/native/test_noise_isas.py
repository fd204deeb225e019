"""The noise of a draw is one and the same on every instruction set, so that which one draws need not be said."""

import numpy as np
import pytest

from paceline.kernels.native import native

KEYS = [(0, 0, 0), (1, 3, 7), (2**64 - 1, 1, 2**32 + 5), (0x9E3779B97F4A7C15, 2, 2**31), (42, 0, 2**62)]


@pytest.mark.parametrize("isa", native().isas())
@pytest.mark.parametrize("count", [1, 63, 64, 65, 5000])
def test_every_instruction_set_gives_the_same_words(isa, count):
    for key in KEYS:
        assert np.array_equal(native().philox(*key, count, isa=isa), native().philox(*key, count)), (isa, key)


@pytest.mark.parametrize("isa", native().isas())
@pytest.mark.parametrize("count", [1, 15, 16, 17, 300])
def test_tokens_anywhere_have_their_own_words(isa, count):
    tokens = np.random.default_rng(count).integers(0, 5000, count).astype(np.int32)
    for key in KEYS:
        assert np.array_equal(native().philox_of(*key, tokens, isa=isa), native().philox(*key, 5000)[tokens]), key


def test_every_instruction_set_is_asked_by_its_own_name():
    with pytest.raises(ValueError, match="does not run `none such`"):
        native().philox(0, 0, 0, 1, isa="none such")
