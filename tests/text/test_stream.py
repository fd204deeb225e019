"""Text while it arrives: no broken character, no stop string, whatever the cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import UsageError
from paceline.text.tokenizer import IncrementalDecoder, StopMatcher, Tokenizer

from .conftest import byte_level, real, sentence_piece

TEXTS = [
    "안녕하세요 세계! 오늘 날씨가 정말 좋네요.",
    "नमस्ते दुनिया, क्षत्रिय ज्ञान",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 é\u0301 𝄞 ASCII",
    "你好，世界！\n  def f(): pass\n",
]
PLAIN = Tokenizer.from_gguf(byte_level(merges=()))


def streamed(tokenizer, ids, **options):
    decoder = IncrementalDecoder(tokenizer, **options)
    parts = [decoder.push(i) for i in ids]
    return parts, decoder.flush()


@pytest.mark.parametrize("text", TEXTS)
def test_one_byte_a_token_never_shows_a_broken_character(text):
    ids = PLAIN.encode(text)
    assert len(ids) == len(text.encode())
    parts, rest = streamed(PLAIN, ids)
    assert "".join(parts) == text
    assert rest == ""
    assert [part for part in parts if part] == list(text)  # each as soon as its last byte is there


@pytest.mark.parametrize("text", TEXTS)
def test_every_cut_is_honest_about_what_is_missing(text):
    ids = PLAIN.encode(text)
    for cut in range(len(ids) + 1):
        decoder = IncrementalDecoder(PLAIN)
        shown = "".join(decoder.push(i) for i in ids[:cut])
        assert text.startswith(shown)
        incomplete = decoder.incomplete
        rest = decoder.flush()
        assert incomplete == (rest == "\ufffd") == (len(shown.encode()) < cut)
        assert not decoder.incomplete
        assert shown + rest == PLAIN.decode(ids[:cut])


@given(st.lists(st.integers(0, PLAIN.vocab_size - 1), max_size=40))
def test_any_tokens_stream_to_what_they_decode_to(ids):
    parts, rest = streamed(PLAIN, ids)
    raw = b"".join(PLAIN.token_bytes(i) for i in ids if not PLAIN.is_special(i))
    assert "".join(parts) + rest == PLAIN.decode(ids) == raw.decode("utf-8", "replace")


def test_a_control_token_is_nothing_unless_asked():
    ids = PLAIN.encode("a<|im_end|>b", parse_special=True)
    assert streamed(PLAIN, ids)[0] == ["a", "", "b"]
    assert streamed(PLAIN, ids, show_special=True)[0] == ["a", "<|im_end|>", "b"]


def test_only_a_text_that_begins_here_loses_the_added_space():
    adds, plain = Tokenizer.from_gguf(sentence_piece()), Tokenizer.from_gguf(sentence_piece(add_space_prefix=False))
    ids = [adds.find("▁a"), adds.find("▁ab")]
    assert streamed(adds, ids)[0] == ["a", " ab"]
    assert streamed(adds, ids, at_start=False)[0] == [" a", " ab"]
    assert streamed(plain, ids)[0] == [" a", " ab"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_real_vocabulary_streams_the_same_text(text):
    tokenizer = real("smollm2-135m")
    parts, rest = streamed(tokenizer, tokenizer.encode(text))
    assert "".join(parts) == text
    assert rest == ""


def naive_stop(text, stops, least=0):
    """Read one character after the other, at least `least` of them, until the text read ends in a stop string."""
    for end in range(least + 1, len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            return text[: end - max(map(len, met))], True
    return text, False


def matched(stops, chunks):
    matcher = StopMatcher(stops)
    out = ""
    for chunk in chunks:
        part, hit = matcher.push(chunk)
        out += part
        if hit:
            return out, True, matcher
    return out + matcher.flush(), False, matcher


def chunkings(text):
    for cuts in range(1 << max(len(text) - 1, 0)):
        chunks, start = [], 0
        for i in range(1, len(text)):
            if cuts >> (i - 1) & 1:
                chunks.append(text[start:i])
                start = i
        yield [*chunks, text[start:]]


@given(st.text("ab", max_size=7), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_stop_strings_are_met_alike_in_every_chunking(text, stops):
    wanted = naive_stop(text, stops)
    for chunks in chunkings(text):
        out, hit, _ = matched(stops, chunks)
        assert (out, hit) == wanted, chunks


@given(
    st.lists(st.text("ab\n<", max_size=6), max_size=12),
    st.lists(st.text("ab\n<", min_size=1, max_size=6), min_size=1, max_size=4),
)
def test_long_texts_stop_where_reading_one_by_one_does(chunks, stops):
    out, hit, matcher = matched(stops, chunks)
    assert (out, hit) == naive_stop("".join(chunks), stops)
    assert not any(stop in out for stop in stops)
    assert (matcher.hit in stops) == hit


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_stop_string_not_counting_yet_hides_no_other(text, stops):
    for least in range(len(text) + 1):
        matcher, said, hit = StopMatcher(stops), "", False
        for count, letter in enumerate(text, 1):
            released, hit = matcher.push(letter, counts=count > least)
            said += released
            if hit:
                break
        assert (said if hit else said + matcher.flush(), hit) == naive_stop(text, stops, least)


def test_only_what_may_begin_a_stop_string_is_held():
    matcher = StopMatcher(["</s>", "\n\nUser:"])
    assert matcher.push("hi <") == ("hi ", False)
    assert matcher.push("b") == ("<b", False)
    assert matcher.push("\n") == ("", False)
    assert matcher.push("\nUse") == ("", False)
    assert matcher.push("ful") == ("\n\nUseful", False)
    assert matcher.push(" x</") == (" x", False)
    assert matcher.push("s> and more") == ("", True)
    assert matcher.push("more") == ("", True)
    assert matcher.flush() == ""
    assert matcher.hit == "</s>"


def test_senseless_stop_strings_are_refused():
    with pytest.raises(UsageError, match="at least one character"):
        StopMatcher(["a", ""])
    with pytest.raises(UsageError, match="list"):
        StopMatcher("abc")
    assert StopMatcher([]).push("abc") == ("abc", False)
