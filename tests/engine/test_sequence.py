"""A sequence takes tokens one by one and stops at the first that ends it, wherever a block was cut."""

import numpy as np
import pytest

from paceline.core.request import SamplingParams
from paceline.engine.sequence import Request, Sequence
from paceline.testing import ByteTokenizer


def sequence(prompt=(65, 66), *, context=100, tokenizer=None, **params):
    request = Request(0, list(prompt), SamplingParams(**params))
    return Sequence(request, tokenizer or ByteTokenizer(), context)


def in_blocks(tokens, chance):
    start = 0
    while start < len(tokens):
        end = start + int(chance.integers(1, 6))
        yield tokens[start:end]
        start = end


def test_tokens_are_kept_until_the_limit():
    one = sequence(max_tokens=3)
    assert one.room == 3
    assert one.append([67, 68]) == (2, "CD")
    assert one.finish_reason is None
    assert one.append([69, 70, 71]) == (1, "E")
    assert one.finish_reason == "length"
    assert one.room == 0
    assert one.output == [67, 68, 69]
    assert one.tokens.tolist() == [65, 66, 67, 68, 69]


def test_the_shown_tokens_are_read_only():
    one = sequence(max_tokens=3)
    for shown in (one.tokens, one.view().tokens, one.tokens[:1]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            shown.flags.writeable = True
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 9
    one.append([67])
    assert one.tokens.tolist() == [65, 66, 67]


def test_the_context_is_a_limit_as_well():
    one = sequence(context=4, max_tokens=100)
    assert one.append([67, 68, 69]) == (2, "CD")
    assert (one.finish_reason, len(one)) == ("length", 4)


@pytest.mark.parametrize("place", range(5))
def test_an_end_token_in_a_block_ends_it_there(place):
    tokens = [67, 68, 69, 70, 71]
    one = sequence(tokenizer=ByteTokenizer(eos_ids=[tokens[place]], special=[tokens[place]]))
    assert one.append(tokens) == (place + 1, "CDEFG"[:place])
    assert one.finish_reason == "stop"


def test_an_end_token_at_the_limit_is_a_stop():
    one = sequence(max_tokens=2, tokenizer=ByteTokenizer(eos_ids=[68], special=[68]))
    assert one.append([67, 68]) == (2, "C")
    assert one.finish_reason == "stop"


def test_end_tokens_can_be_ignored():
    one = sequence(max_tokens=3, ignore_eos=True, tokenizer=ByteTokenizer(eos_ids=[68]))
    assert one.append([68, 68, 68]) == (3, "DDD")
    assert one.finish_reason == "length"


@pytest.mark.parametrize("seed", range(20))
def test_a_stop_string_cuts_the_text_however_tokens_arrive(seed):
    chance = np.random.default_rng(seed)
    text = "one, two, three. Stop! Go on."
    one, said = sequence(stop=("Stop!", "never")), ""
    kept = 0
    for block in in_blocks(list(text.encode()), chance):
        count, delta = one.append(block)
        said, kept = said + delta, kept + count
        if one.finish_reason:
            break
    assert said == "one, two, three. "
    assert one.finish_reason == "stop"
    assert kept == text.index("!") + 1


def test_an_unfinished_stop_string_is_shown_at_the_end():
    one = sequence(max_tokens=4, stop=("DEFG!",))
    assert one.append(list(b"CD")) == (2, "C")
    assert one.append(list(b"EF")) == (2, "DEF")
    assert one.finish_reason == "length"


TEXTS = ["안녕하세요 세계", "नमस्ते दुनिया", "👩‍👩‍👧‍👦 family 🇰🇷 flag", "plain", "é̂ + ẞ"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(5))
def test_no_delta_shows_half_a_character(text, seed):
    data = list(text.encode())
    one, said = sequence(max_tokens=len(data)), ""
    for block in in_blocks(data, np.random.default_rng(seed)):
        _, delta = one.append(block)
        assert "\ufffd" not in delta
        said += delta
    assert said == text
    assert not one.is_cut


@pytest.mark.parametrize("text", TEXTS)
def test_a_cut_character_is_shown_once_at_the_end(text):
    data = text.encode()
    for count in range(1, len(data)):
        one = sequence(max_tokens=count)
        _, said = one.append(list(data))
        assert "\ufffd" not in said[:-1]
        assert said == data[:count].decode(errors="replace")
        assert one.finish_reason == "length"
        assert one.is_cut == (said[-1:] == "\ufffd")


def test_a_view_does_not_move_with_the_sequence():
    one = sequence()
    view = one.view()
    one.append([70])
    assert view.tokens.tolist() == [65, 66]
