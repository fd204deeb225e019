"""Bad words become the tokenizer's own sequences: at a line's start, after a space, never a first token with them."""

import pytest

from paceline.core.request import SamplingParams
from paceline.engine.logit_edits import edits_of, spellings
from paceline.testing import ByteTokenizer


def test_a_word_is_banned_with_and_without_a_space():
    tokenizer = ByteTokenizer([b"h", b"i", b" ", b"hi", b" hi", b"\n"])
    assert spellings("hi", tokenizer) == [[3], [4]]
    assert spellings(" hi", tokenizer) == [[3], [4]]
    assert spellings("  hi", tokenizer) == [[3], [4], [2, 4]]
    assert spellings("ih", tokenizer) == [[1, 0], [2, 1, 0]]
    assert spellings(" ", tokenizer) == [[2], [2, 2]]


def test_a_tokenizers_added_space_differs_from_the_texts_own():
    class Prefixed(ByteTokenizer):
        add_space_prefix = True

        def encode(self, text, *, add_bos=None):
            return super().encode(" " + text)

    tokenizer = Prefixed([b"h", b"i", b" ", b"hi", b" hi", b"\n"])
    assert tokenizer.encode("hi") == [4]
    assert spellings("hi", tokenizer) == [[3], [4]]


def test_edits_hold_every_spelling_once():
    tokenizer = ByteTokenizer([b"h", b"i", b" ", b"hi", b" hi", b"\n"])
    edits = edits_of(SamplingParams(bad_words=("hi", "ih", " hi"), logit_bias={4: 1}), tokenizer)
    sequences = [edits.banned[a:b].tolist() for a, b in zip(edits.ban_starts[:-1], edits.ban_starts[1:], strict=True)]
    assert sequences == [[3], [4], [1, 0], [2, 1, 0]]
    assert not edits.is_empty
    assert edits_of(SamplingParams(), tokenizer).is_empty


@pytest.mark.parametrize("given", [{"logit_bias": {1: 2.0}}, {"allowed_tokens": [1]}, {"bad_words": ["a"]}])
def test_settings_are_kept_as_tuples_and_can_be_keys(given):
    params = SamplingParams(**given)
    (value,) = (getattr(params, name) for name in given)
    assert isinstance(value, tuple)
    assert hash(params) == hash(SamplingParams(**given))
