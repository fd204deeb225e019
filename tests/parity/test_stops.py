"""Replies end where a stop string is complete after the minimum, wherever it began, with and without drafts."""

import pytest
from parity_tools import engine_of, run
from sweep import sweep

from paceline.core.request import SamplingParams
from paceline.engine.sequence import Request
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush, half_liar, oracle

VOCAB, COUNT = 16, 14
PROMPT = [1, 2, 3]


def plain(params, drafter=None, length=4, tokenizer=None):
    return run(TinyModel(VOCAB, reach=None), [PROMPT], params, drafter, length=length, tokenizer=tokenizer)[0]


def where(text, stop, least):
    """Return the text and the number of tokens of a reply of one letter a token, read by hand."""
    ends = [end for end in range(least + 1, len(text) + 1) if text[:end].endswith(stop)]
    return (text[: ends[0] - len(stop)], ends[0], "stop") if ends else (text, len(text), "length")


@pytest.mark.parametrize("length", sweep((1, 2, 3, 4, 8, 16), fast=(1, 3, 8)))
@pytest.mark.parametrize("script", [oracle, half_liar(VOCAB, 2), bush(VOCAB, right_for=3)])
def test_a_stop_string_over_the_minimum_is_found(script, length):
    free = plain(SamplingParams(max_tokens=COUNT))
    answers = {0: [*PROMPT, *free.tokens]}
    for start in range(0, COUNT - 3, 2):
        stop = free.text[start : start + 3]
        for least in range(COUNT + 1):
            params = SamplingParams(max_tokens=COUNT, min_tokens=least, stop=(stop,))
            wanted = where(free.text, stop, least)
            for drafter in (None, ScriptedDrafter(script, answers)):
                said = plain(params, drafter, length)
                assert (said.text, len(said.tokens), said.finish_reason) == wanted, (stop, least)


@pytest.mark.parametrize("least", range(5))
@pytest.mark.parametrize("count", range(1, 5))
def test_a_cut_character_completing_a_stop_string_is_a_stop(least, count):
    """Each token is the first byte of three: U+FFFD once the next one comes, or at the end."""
    tokenizer = ByteTokenizer([b"\xe4"] * VOCAB)
    params = SamplingParams(max_tokens=4, min_tokens=least, stop=(count * "\ufffd",))
    answers = {0: [*PROMPT, *plain(SamplingParams(max_tokens=4)).tokens]}
    drafters = [None, *(ScriptedDrafter(oracle, answers) for _ in range(3))]
    for drafter, length in zip(drafters, (1, 1, 3, 8), strict=True):
        (said,) = run(TinyModel(VOCAB, reach=None), [PROMPT], params, drafter, length=length, tokenizer=tokenizer)
        assert "".join(said.deltas) == said.text
        if least == 4:
            assert (said.finish_reason, said.text) == ("length", 4 * "\ufffd")
        else:
            ends = max(count, least, 1)  # characters, each out with the token behind it
            assert (said.finish_reason, len(said.tokens), said.text) == (
                "stop",
                min(ends + 1, 4),
                (ends - count) * "\ufffd",
            )


def test_a_stop_string_swallowing_the_cut_character_leaves_none():
    tokenizer = ByteTokenizer([b"\xe4"] * VOCAB)
    for stop, wanted in ((("\ufffd",), ("stop", "", False)), ((), ("length", "\ufffd", True))):
        engine = engine_of(TinyModel(VOCAB), tokenizer=tokenizer)
        engine.add(Request(0, PROMPT, SamplingParams(max_tokens=1, stop=stop)))
        (event,) = engine.run()
        assert (event.finish_reason, event.text, event.is_cut) == wanted
