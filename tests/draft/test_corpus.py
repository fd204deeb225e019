"""A corpus comes back from its file as it was; a file that is not one is refused and left alone."""

import hashlib
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from paceline.draft.lookup.corpus import HEADER, Corpus
from paceline.draft.lookup.suffix_plain import KINDS
from paceline.errors import ModelFileError, PacelineError, UsageError, VocabMismatch
from paceline.testing import ByteTokenizer

BYTES = ByteTokenizer()
TEXTS = ["the wheel turns", "and the wheel turns again", "", "x"]


def state(corpus):
    """What a corpus would guess: its texts and both generations' counts."""
    rates = np.random.default_rng(0).random(KINDS)
    grown = [np.concatenate(a.grow([], rates, nodes=9, depth=4, chain=False)).tolist() for a in corpus.automata]
    return [text.tolist() for text in corpus.texts], [len(a) for a in corpus.automata], grown


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "kept.corpus"
    Corpus.build(TEXTS, BYTES).save(path)
    return path


def seal(body):
    return body + hashlib.sha256(body).digest()


def header(path, **changes):
    """The file's content with other numbers in its header, sealed again."""
    data = path.read_bytes()[:-32]
    names = ("magic", "version", "vocab", "digest", "texts", "tokens")
    fields = dict(zip(names, HEADER.unpack_from(data), strict=True)) | changes
    return seal(HEADER.pack(*fields.values()) + data[HEADER.size :])


def test_what_was_saved_is_what_is_loaded(saved):
    built, loaded = Corpus.build(TEXTS, BYTES), Corpus.load(saved, BYTES)
    assert state(loaded) == state(built)
    assert len(loaded) == sum(map(len, TEXTS))
    loaded.add(BYTES.encode("and on"))
    loaded.save()
    assert state(Corpus.load(saved, BYTES)) == state(loaded)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name], "no part is left behind"


@pytest.mark.parametrize("capacity", [2, 10, 64])
def test_the_oldest_is_forgotten_and_the_bound_holds(capacity, tmp_path):
    chance, path = np.random.default_rng(capacity), tmp_path / "c"
    corpus, added = Corpus(BYTES, capacity=capacity), []
    for _ in range(60):
        text = chance.integers(256, size=int(chance.integers(1, 20))).tolist()
        corpus.add(text)
        added += text
        kept = [token for text in corpus.texts for token in text]
        assert len(kept) <= capacity
        assert kept == added[len(added) - len(kept) :], "the latest, in order"
        assert len(kept) >= min(len(added), capacity // 2 - 20)
        assert corpus.nbytes <= 2 * (280 * capacity + 4096)
    corpus.save(path)
    assert state(Corpus.load(path, BYTES, capacity=capacity)) == state(corpus)


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 40, 79, 80, 100, -33, -32, -1])
def test_a_truncated_file_is_refused(saved, cut):
    data = saved.read_bytes()
    saved.write_bytes(data[:cut])
    with pytest.raises(ModelFileError) as caught:
        Corpus.open(saved, BYTES)
    assert str(saved) in str(caught.value)
    assert caught.value.hint
    assert saved.read_bytes() == data[:cut], "what is there is left alone"


def test_every_changed_byte_is_noticed(saved):
    data = saved.read_bytes()
    for place in range(0, len(data), 3):
        saved.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises(PacelineError):
            Corpus.load(saved, BYTES)


@pytest.mark.parametrize(
    "claims",
    [
        {"texts": 2**62}, {"tokens": 2**62}, {"texts": 2**64 - 1, "tokens": 1}, {"texts": 0}, {"tokens": 0},
        {"texts": 2**62, "tokens": 2**64 - 2**62 + 20}, {"version": 2}, {"magic": b"GGUF".ljust(16)},
    ],
    ids=str,
)  # fmt: skip
def test_hostile_headers_are_refused_whatever_they_claim(saved, claims):
    saved.write_bytes(header(saved, **claims))
    with pytest.raises(ModelFileError):
        Corpus.load(saved, BYTES)


@pytest.mark.parametrize("place", ["lengths", "tokens", "negative"])
def test_sealed_nonsense_is_refused(saved, place):
    body = bytearray(saved.read_bytes()[:-32])
    offset, value = {"lengths": (HEADER.size, 99), "tokens": (len(body) - 4, 256), "negative": (len(body) - 4, -1)}[
        place
    ]
    struct.pack_into("<i", body, offset, value)
    saved.write_bytes(seal(bytes(body)))
    with pytest.raises(ModelFileError, match="add up"):
        Corpus.load(saved, BYTES)


def test_a_corpus_of_another_tokenizer_is_refused(saved):
    pieces = [bytes([i]) for i in range(256)]
    pieces[65], pieces[66] = pieces[66], pieces[65]
    for other in (ByteTokenizer(pieces), ByteTokenizer(pieces[:100])):
        with pytest.raises(VocabMismatch, match="another tokenizer"):
            Corpus.load(saved, other)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing" / "file"):
        with pytest.raises(UsageError, match="corpus"):
            Corpus.open(path, BYTES)
    with pytest.raises(UsageError, match="from 0 to 255"):
        Corpus(BYTES).add([3, 256])
    with pytest.raises(UsageError, match="no file"):
        Corpus(BYTES).save()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelFileError, match="under"):
        Corpus.load(tmp_path / "huge", BYTES)


WRITER = """
import sys
from pathlib import Path
from paceline.draft.lookup.corpus import Corpus
from paceline.testing import ByteTokenizer
corpus = Corpus.load(Path(sys.argv[1]), ByteTokenizer())
for i in range(10):
    corpus.add([int(sys.argv[2]), i])
    corpus.save()
"""


def test_processes_that_save_at_once_lose_no_text(saved):
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(saved), str(n)]) for n in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    texts = {tuple(text.tolist()) for text in Corpus.load(saved, BYTES).texts}
    assert {(n, i) for n in range(3) for i in range(10)} <= texts


def test_what_another_process_saved_meanwhile_is_kept(saved):
    one, other = Corpus.load(saved, BYTES), Corpus.load(saved, BYTES)
    one.add(BYTES.encode("from one"))
    other.add(BYTES.encode("from the other"))
    other.save()
    one.save()
    texts = [BYTES.decode(text.tolist()) for text in Corpus.load(saved, BYTES).texts]
    assert texts[-2:] == ["from the other", "from one"]
    one.add(BYTES.encode("once more"))
    one.save()
    texts = [BYTES.decode(text.tolist()) for text in Corpus.load(saved, BYTES).texts]
    assert texts[-3:] == ["from the other", "from one", "once more"]
    saved.write_bytes(b"something else")
    one.add([1])
    with pytest.raises(ModelFileError):
        one.save()
    assert saved.read_bytes() == b"something else"
