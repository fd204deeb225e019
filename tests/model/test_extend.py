"""Reading on leaves the cache with a beginning of the text, and never with its last token."""

import numpy as np
import pytest

from paceline.model.extend import extend, read_on
from paceline.testing import TinyModel


@pytest.mark.parametrize("left", [1, 2, 256, 1000])
@pytest.mark.parametrize("read", [0, 300])
def test_a_text_is_read_until_so_few_tokens_are_left(left, read):
    model, text = TinyModel(8, reach=2, context=1024), (np.arange(600) % 7).astype(np.int32)
    cache = model.new_cache(1024)
    sequence = cache.open()
    if read:
        extend(model, cache, [sequence], [text[:read].tolist()], wanted=0)
    read_on(model, cache, sequence, text, left=left)
    known = cache.tokens(sequence)
    assert max(read, len(text) - left) <= len(known) < len(text)
    assert known == text[: len(known)].tolist()
    cache.check()
