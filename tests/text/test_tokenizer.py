"""Text to ids and back: equal to llama.cpp's, closed to injected control tokens, honest about bad files."""

import base64
import itertools
import json
import os
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ModelFileError, PacelineError, UnsupportedModel, UsageError
from paceline.text.pretokenizers import PRETOKENIZERS
from paceline.text.tokenizer import NamedTokens, Tokenizer

from .conftest import byte_level, real, sentence_piece
from .make_reference import HERE, checksum, corpus_digest, texts

REFERENCE = json.loads((HERE / "reference.json").read_text())
LARGE = ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "gemma3-270m"]


def differing(name, mode):
    tokenizer = real(name)
    sums = base64.b64decode(REFERENCE["models"][name][mode])
    lines = texts()
    assert len(sums) == 4 * len(lines)
    found = (tokenizer.encode(line, parse_special=mode == "special", add_bos=False) for line in lines)
    return [lines[i] for i, ids in enumerate(found) if checksum(ids) != sums[4 * i : 4 * i + 4]]


def test_the_reference_was_made_from_this_corpus():
    assert REFERENCE["corpus"] == corpus_digest()
    assert len(texts()) >= 2000


@pytest.mark.parametrize("mode", ["plain", "special"])
def test_ids_equal_llama_cpp_on_every_line(mode):
    assert differing("smollm2-135m", mode) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), [*itertools.product(LARGE, ["plain", "special"])])
def test_ids_equal_llama_cpp_on_every_line_of_large_vocabularies(name, mode):
    # llama.cpp takes `</s>` for an end, whatever the file says; these files say that it is text
    assert [line for line in differing(name, mode) if "</s>" not in line] == []


@pytest.mark.slow
def test_a_vocabulary_of_150_000_loads_in_time():
    if not os.environ.get("PACELINE_TIMING"):
        pytest.skip("set PACELINE_TIMING=1 on a quiet machine")
    seconds = []
    for _ in range(3):
        real.cache_clear()
        start = time.process_time()
        real("qwen2.5-coder-1.5b")
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.7, seconds


def test_decoding_gives_every_line_back():
    tokenizer = real("smollm2-135m")
    lines = texts()[::7]
    assert [tokenizer.decode(tokenizer.encode(line), skip_special=False) for line in lines] == lines


def test_names_of_control_tokens_are_text_unless_asked(tokenizer):
    text = "a<|im_end|>b<|tool|>"
    plain = tokenizer.encode(text, add_bos=False)
    parsed = tokenizer.encode(text, add_bos=False, parse_special=True)
    end, tool = tokenizer.find("<|im_end|>"), tokenizer.find("<|tool|>")
    assert end not in plain
    assert plain[-1] == tool  # user-defined tokens are text that happens to be one token
    assert parsed == [*tokenizer.encode("a", add_bos=False), end, *tokenizer.encode("b", add_bos=False), tool]
    assert tokenizer.decode(plain) == text
    assert tokenizer.decode(parsed) == "ab<|tool|>"
    assert tokenizer.decode(parsed, skip_special=False) == text


def test_the_first_token_is_never_doubled():
    tokenizer = Tokenizer.from_gguf(byte_level(**{"ggml.add_bos_token": True}))
    bos = tokenizer.bos_id
    assert tokenizer.add_bos
    assert tokenizer.encode("hello")[0] == bos
    assert tokenizer.encode("<|im_start|>hello", parse_special=True).count(bos) == 1
    assert tokenizer.encode("hello", add_bos=False) == tokenizer.encode("hello")[1:]
    assert tokenizer.encode("") == [bos]


def test_merges_are_followed(tokenizer):
    pieces = [tokenizer.token_bytes(i) for i in tokenizer.encode("hello world")]
    assert pieces == [b"hello", b" w", b"o", b"r", b"l", b"d"]


@pytest.mark.parametrize("pre", sorted(PRETOKENIZERS))
def test_every_family_of_pre_tokenizers_keeps_the_text(pre):
    tokenizer = Tokenizer.from_gguf(byte_level(pre))
    for text in ["I'LL don't 12345\r\n\r\n  x  ~~y~~ 你好 نعم\u3000é\u0301 ", "\t\n !!\n", "naïve Ⅷ² ⬛👩‍🚀"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_ends_are_those_of_the_file_and_the_well_known():
    tokenizer = Tokenizer.from_gguf(byte_level(**{"ggml.eot_token_id": 7}))
    assert tokenizer.eos_ids == {tokenizer.find("<|im_end|>"), 7}
    assert tokenizer.is_special(tokenizer.find("<|im_end|>"))
    assert not tokenizer.is_special(7)


def spoken(text, kind, **more):
    """A SentencePiece vocabulary that has `text` as a piece of this type, and ends of its own."""
    metadata = sentence_piece(("▁", "a", text), eos_token_id=2, **more)
    metadata["tokenizer.ggml.tokens"][2] = "<end>"
    metadata["tokenizer.ggml.token_type"][-1] = kind
    return Tokenizer.from_gguf(metadata)


@pytest.mark.parametrize("name", ["</s>", "<|im_end|>", "<end_of_turn>", "[PAD]"])
def test_a_known_end_typed_as_text_is_text(name):
    tokenizer = spoken(name, 4)
    token = tokenizer.find(name)
    assert tokenizer.eos_ids == {2}
    assert not tokenizer.is_special(token)
    text = f"a{name}a"
    assert token in tokenizer.encode(text)
    assert tokenizer.decode([token, token]) == name * 2
    assert spoken(name, 1).eos_ids == {2}
    assert spoken(name, 3).eos_ids == {2, token}
    assert spoken(name, 4, eot_token_id=token).eos_ids == {2, token}


def test_a_file_without_types_leaves_ends_to_their_names():
    for types in (None, [1] * 259):
        metadata = byte_level(**{"ggml.token_type": types})
        metadata["tokenizer.ggml.token_type"] = types and [1] * len(metadata["tokenizer.ggml.tokens"])
        tokenizer = Tokenizer.from_gguf(metadata)
        assert tokenizer.eos_ids == {tokenizer.find("<|im_end|>")}
        assert tokenizer.is_special(tokenizer.find("<|im_end|>"))
    metadata = byte_level()
    metadata["tokenizer.ggml.token_type"][metadata["tokenizer.ggml.eos_token_id"]] = 1  # the end alone was forgotten
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer.is_special(tokenizer.eos_id)


@pytest.mark.slow
def test_gemma_writes_the_html_that_its_vocabulary_has():
    tokenizer = real("gemma3-270m")
    assert {tokenizer.token_text(i) for i in tokenizer.eos_ids} == {"<eos>", "<end_of_turn>"}
    assert tokenizer.decode(tokenizer.encode("<s>a</s>")) == "<s>a</s>"
    assert tokenizer.decode([212, 212]) == "</s></s>"


def test_the_digest_tells_vocabularies_apart():
    one, same = Tokenizer.from_gguf(byte_level()), Tokenizer.from_gguf(byte_level("gpt-2"))
    other = Tokenizer.from_gguf(byte_level(merges=("h e", "l l", "he ll", "hell o", "Ġ v")))
    assert one.tokens_digest() == same.tokens_digest() != other.tokens_digest()
    assert one.tokens_digest(limit=256) == other.tokens_digest(limit=256)


def test_lone_surrogates_become_the_replacement_character(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud800b\U0001f600")) == "a\ufffdb\U0001f600"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ggml.model": "bert"}, UnsupportedModel),
        ({"ggml.pre": "no-such"}, UnsupportedModel),
        ({"ggml.tokens": None}, ModelFileError),
        ({"ggml.tokens": ["a", "a"]}, ModelFileError),
        ({"ggml.tokens": [1, 2]}, ModelFileError),
        ({"ggml.merges": ["h x"]}, ModelFileError),
        ({"ggml.merges": ["he"]}, ModelFileError),
        ({"ggml.merges": ["h "]}, ModelFileError),
        ({"ggml.merges": None}, ModelFileError),
        ({"ggml.tokens": []}, ModelFileError),
        ({"ggml.token_type": [1]}, ModelFileError),
        ({"ggml.token_type": [1] * 265}, ModelFileError),
        ({"ggml.token_type": [1] * 263 + [7]}, ModelFileError),
        ({"ggml.token_type": [1.0] * 264}, ModelFileError),
        ({"ggml.token_type": "x" * 999}, ModelFileError),
        *(
            ({f"ggml.{name}_token_id": got}, ModelFileError)
            for name in ("bos", "eos", "eot", "eom")
            for got in (264, 4294967295, -1, "2", 2.0, True)
        ),
        ({"ggml.add_bos_token": "false"}, ModelFileError),
        ({"ggml.add_space_prefix": 2}, ModelFileError),
        ({"ggml.pre": 3}, ModelFileError),
        ({"chat_template": ["x"]}, ModelFileError),
    ],
)
def test_a_bad_file_is_refused_with_a_reason(change, error):
    with pytest.raises(error, match="got") as caught:
        Tokenizer.from_gguf(byte_level(**change))
    assert caught.value.hint
    if error is ModelFileError:
        assert next(iter(change)) in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [0.0] * 268},
        {"scores": [0.0] * 270},
        {"scores": [0.0] * 268 + [float("nan")]},
        {"scores": ["0"] * 269},
        {"unknown_token_id": 269},
        {"token_type": [2, 3, 3, *[6] * 256, *[1] * 11]},
    ],
)
def test_a_bad_sentence_piece_file_is_refused_by_name(change):
    with pytest.raises(ModelFileError, match=rf"tokenizer\.ggml\.{next(iter(change))}"):
        Tokenizer.from_gguf(sentence_piece(**change))


JUNK = [None, -1, 0, 1, 2, 7, 1.5, float("nan"), "", "x", b"a", [], [1], ["a"], [[1]], [None], True, 1 << 32, {}]


@pytest.mark.parametrize("base", [byte_level, sentence_piece])
def test_damaged_metadata_is_refused_or_reads_any_text(base):
    rng = random.Random(0)
    for _ in range(250):
        metadata = base()
        for key in rng.sample([*metadata, "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_bos_token"], 2):
            value, whole = rng.choice(JUNK), metadata.get(key)
            if isinstance(whole, list) and rng.random() < 0.7:
                at = rng.randrange(len(whole))
                value = rng.choice([[*whole[:at], value, *whole[at + 1 :]], [*whole, value], whole[:at]])
            metadata[key] = value
        try:
            tokenizer = Tokenizer.from_gguf(metadata)
        except PacelineError as error:
            assert error.hint  # noqa: PT017
        else:
            tokenizer.decode(tokenizer.encode("a\n <s>é</s> 😀", parse_special=True), skip_special=False)


@pytest.mark.parametrize("pre", [None, ""])
def test_a_file_without_a_pretokenizer_is_told_in_one_line(caplog, pre):
    metadata = byte_level(pre) | {"general.name": "Tiny"}
    tokenizer = Tokenizer.from_gguf(metadata)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "the model 'Tiny' has no `tokenizer.ggml.pre`: words are cut as for `default`" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert tokenizer.encode("it's 12345") == Tokenizer.from_gguf(byte_level("default")).encode("it's 12345")
    caplog.clear()
    Tokenizer.from_gguf(byte_level())
    Tokenizer.from_gguf(sentence_piece())  # has no use for it
    assert not caplog.records


def test_an_end_the_file_does_not_name_is_never_text():
    metadata = sentence_piece()
    metadata["tokenizer.ggml.tokens"][2], metadata["tokenizer.ggml.token_type"][2] = "word", 1
    assert Tokenizer.from_gguf(metadata).eos_ids == set()
    assert Tokenizer.from_gguf(sentence_piece()).eos_ids == {2}


def test_ids_out_of_range_are_refused(tokenizer):
    for token in (-1, tokenizer.vocab_size):
        with pytest.raises(UsageError, match=str(tokenizer.vocab_size - 1)):
            tokenizer.token_bytes(token)


def naive_merge(text, scores):
    """Merge the best pair anew until none is left."""
    parts = list(text)
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in scores]
        if not pairs:
            return parts
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


PIECES = [*"▁abc", *("".join(p) for n in (2, 3) for p in itertools.product("▁ab", repeat=n))]


@given(
    st.text("abc ", max_size=30),
    st.sets(st.sampled_from(PIECES[4:]), max_size=12),
    st.randoms(use_true_random=False),
)
def test_sentence_piece_merges_the_best_pair_first(text, longer, rng):
    pieces = [*PIECES[:4], *sorted(longer)]
    scores = [float(rng.randint(-5, 0)) for _ in pieces]
    tokenizer = Tokenizer.from_gguf(sentence_piece(pieces, scores, add_space_prefix=False))
    found = [tokenizer.token_text(i) for i in tokenizer.encode(text, add_bos=False)]
    assert found == naive_merge(text.replace(" ", "▁"), dict(zip(pieces, scores, strict=True)))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentence_piece_puts_a_space_first_and_takes_it_away():
    tokenizer = Tokenizer.from_gguf(sentence_piece())
    ids = tokenizer.encode("ab")
    assert [tokenizer.token_text(i) for i in ids] == ["<s>", "▁ab"]
    assert tokenizer.decode(ids) == "ab"
    parsed = tokenizer.encode("ab</s>ab", parse_special=True)
    assert [tokenizer.token_text(i) for i in parsed] == ["<s>", "▁ab", "</s>", "▁ab"]
    assert tokenizer.decode(tokenizer.encode(" ab")) == " ab"


def test_sentence_piece_spells_what_it_lacks_in_bytes():
    tokenizer = Tokenizer.from_gguf(sentence_piece(add_space_prefix=False))
    ids = tokenizer.encode("aé😀", add_bos=False)
    assert [tokenizer.token_text(i) for i in ids[1:3]] == ["<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "aé😀"


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 6])
def test_tokens_that_spell_bytes_are_bytes_whatever_their_type(kind):
    metadata = sentence_piece(add_space_prefix=False)
    metadata["tokenizer.ggml.token_type"][3:259] = [kind] * 256
    tokenizer = Tokenizer.from_gguf(metadata)
    for text in ("a\nb", "é😀\t", "\0"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert not tokenizer.is_special(tokenizer.find("<0x0A>"))


def test_text_never_merges_into_a_control_token_or_byte():
    chain = ["<", "/", "s", ">", "</", "</s", "0", "x", "A", "<0", "<0x", "<0x0", "<0x0A"]
    tokenizer = Tokenizer.from_gguf(sentence_piece(chain, add_space_prefix=False))
    for text in ("</s>", "<0x0A>"):
        ids = tokenizer.encode(text, add_bos=False)
        assert tokenizer.find(text) not in ids
        assert tokenizer.decode(ids) == text


def test_a_byte_that_spells_none_is_refused():
    metadata = sentence_piece()
    metadata["tokenizer.ggml.token_type"][-1] = 6
    with pytest.raises(ModelFileError, match="written like `<0x0A>`; got `c▁`"):
        Tokenizer.from_gguf(metadata)


def test_the_longest_name_is_found_first():
    named = NamedTokens({"ab": 0, "bcd": 1, "a": 2})
    assert named.split("abcd") == [2, 1]
    assert named.split("xabx") == ["x", 0, "x"]
    assert named.split("") == []
    assert named.split("abab") == [0, 0]
