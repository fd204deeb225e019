"""Texts that guesses are looked up in: earlier outputs and files, as tokens, within a bound, kept in a file.

Two generations of texts, each an automaton; when the younger is full, the older is forgotten. An automaton takes about
130 bytes a token and at most 280, so the default capacity takes some 35 MB.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from paceline.core.aliases import Ints
from paceline.errors import ModelFileError, UsageError, VocabMismatch
from paceline.kernels.native import native
from paceline.store import turn_or_later, write

CAPACITY = 1 << 18  # tokens
MOST_BYTES = 1 << 30  # of a file
MAGIC, VERSION = b"PACELINE CORPUS\0", 1
HEADER = struct.Struct("<16sII32sQQ")  # magic, version, vocabulary, digest of its tokens, texts, tokens
END = np.array([-1], np.int32)  # between texts; no token
_HINT = "name another file, or move this one away to start anew"


class Vocabulary(Protocol):
    """What a corpus must know of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    def tokens_digest(self, limit: int | None = None) -> str: ...

    def encode(self, text: str) -> list[int]: ...


class _Generation:
    def __init__(self) -> None:
        self.texts = list[Ints]()
        self.size = 0  # tokens
        self.automaton = native.Automaton()

    def add(self, text: Ints) -> None:
        self.texts.append(text)
        self.size += len(text)
        self.automaton.extend(np.concatenate([text, END]))


class Corpus:
    """Texts of one tokenizer, `capacity` tokens at most, the oldest forgotten first."""

    def __init__(self, tokenizer: Vocabulary, *, capacity: int = CAPACITY, path: Path | None = None) -> None:
        if capacity < 2:
            raise UsageError(f"a corpus must hold at least 2 tokens, got a capacity of `{capacity}`")
        self.capacity, self.path, self._tokenizer = capacity, path, tokenizer
        self.vocab = tokenizer.vocab_size
        self._digest = hashlib.sha256(tokenizer.tokens_digest().encode()).digest()
        self._generations = [_Generation()]  # the younger one first
        self._unsaved = list[Ints]()
        self._stamp = _stamp(path)

    @staticmethod
    def build(texts: Iterable[str], tokenizer: Vocabulary, *, capacity: int = CAPACITY) -> Corpus:
        """Make a corpus of texts; of too many, the last ones stay."""
        corpus = Corpus(tokenizer, capacity=capacity)
        for text in texts:
            corpus.add(tokenizer.encode(text))
        return corpus

    @staticmethod
    def open(path: Path, tokenizer: Vocabulary, *, capacity: int = CAPACITY) -> Corpus:
        """Load a corpus, or start an empty one that will be saved there."""
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError) as error:  # the path is too long, forbidden, or has a zero byte
            raise UsageError(f"a corpus must be a file, `{path!s:.80}` names none: {error}") from error
        else:
            return Corpus.load(path, tokenizer, capacity=capacity)
        if not path.parent.is_dir() or not path.name:
            raise UsageError(f"a corpus needs a folder that exists, got `{path}`", hint=f"mkdir -p {path.parent}")
        return Corpus(tokenizer, capacity=capacity, path=path)

    @staticmethod
    def load(path: Path, tokenizer: Vocabulary, *, capacity: int = CAPACITY) -> Corpus:
        """Load a corpus that `save` wrote.

        Raises:
            UsageError: it cannot be read.
            ModelFileError: it is no such file, or damaged.
            VocabMismatch: it was made with another tokenizer.
        """
        corpus = Corpus(tokenizer, capacity=capacity, path=path)
        for text in corpus._read(path):
            corpus._keep(text)
        return corpus

    def add(self, tokens: Sequence[int] | Ints) -> None:
        """Add a text.

        Raises:
            UsageError: a token is not in the vocabulary.
        """
        text = np.array(tokens, np.int32)  # a copy: the caller's may change
        if len(text) == 0:
            return
        if text.ndim != 1 or text.min() < 0 or text.max() >= self.vocab:
            raise UsageError(f"a corpus takes token ids from 0 to {self.vocab - 1}, got `{text.min()}…{text.max()}`")
        self._keep(text)
        self._unsaved.append(text)

    @property
    def automata(self) -> list[native.Automaton]:
        return [generation.automaton for generation in self._generations]

    @property
    def texts(self) -> list[Ints]:
        """int32 [n] each, oldest first; texts longer than half the capacity come in pieces."""
        return [text for generation in reversed(self._generations) for text in generation.texts]

    @property
    def nbytes(self) -> int:
        """Bytes the automata hold."""
        return sum(int(automaton.nbytes) for automaton in self.automata)

    def __len__(self) -> int:
        return sum(generation.size for generation in self._generations)

    def save(self, path: Path | None = None, *, now: bool = True) -> None:
        """Write all texts to a file atomically; with no path, to the corpus's own file if texts were added.

        Texts that another process has written there meanwhile are kept. Without `now`, the call returns unsaved
        where it would have to wait for another writer.

        Raises:
            UsageError: there is no path, or it cannot be written.
            PacelineError: the file there is no longer a corpus of this tokenizer.
        """
        if path is None:
            if self.path is None:
                raise UsageError("this corpus has no file to be saved to", hint="corpus.save(path)")
            if not self._unsaved:
                return
        target = path or self.path
        assert target is not None
        with turn_or_later(target.parent, now=now) as goes_on:
            if not goes_on:
                return
            whole = self
            if target == self.path and target.exists() and _stamp(target) != self._stamp:
                whole = Corpus.load(target, self._tokenizer, capacity=self.capacity)
                for text in self._unsaved:
                    whole._keep(text)
            try:
                write(target, whole._bytes(), is_durable=True)
            except OSError as error:
                raise UsageError(f"the corpus `{target}` cannot be written: {error.strerror}", hint=_HINT) from error
            if target == self.path or self.path is None:
                self.path, self._unsaved = target, []
                self._stamp = _stamp(target) if whole is self else None  # the file holds more texts than this object

    def _keep(self, text: Ints) -> None:
        half = self.capacity // 2
        for start in range(0, len(text), half):
            piece = text[start : start + half]
            young = self._generations[0]
            if young.size + len(piece) > half:
                self._generations = [_Generation(), young]
            self._generations[0].add(piece)

    def _bytes(self) -> bytes:
        texts = self.texts
        lengths = np.array([len(text) for text in texts], "<u4")
        tokens = np.concatenate([*texts, np.zeros(0, np.int32)]).astype("<i4")
        header = HEADER.pack(MAGIC, VERSION, self.vocab, self._digest, len(texts), len(tokens))
        body = header + lengths.tobytes() + tokens.tobytes()
        return body + hashlib.sha256(body).digest()

    def _read(self, path: Path) -> list[Ints]:
        data = _content(path)
        if len(data) < HEADER.size + 32 or not data.startswith(MAGIC):
            raise ModelFileError(f"`{path}` must be a corpus that Paceline wrote, and is none", hint=_HINT)
        _, version, vocab, digest, count, total = HEADER.unpack_from(data)
        if version != VERSION:
            raise ModelFileError(f"`{path}` must be a corpus of version {VERSION}, got `{version}`", hint=_HINT)
        # Python's integers do not overflow, and nothing is allocated before the file's size confirms the header.
        if len(data) != HEADER.size + 4 * count + 4 * total + 32:
            raise ModelFileError(
                f"corpus `{path}` must have {count} texts of {total} tokens and has `{len(data)}` bytes", hint=_HINT
            )
        if hashlib.sha256(data[:-32]).digest() != data[-32:]:
            raise ModelFileError(f"corpus `{path}` is damaged: its checksum does not fit", hint=_HINT)
        if (vocab, digest) != (self.vocab, self._digest):
            raise VocabMismatch(
                f"corpus `{path}` is of another tokenizer, of {vocab} tokens, than the model's of {self.vocab}",
                hint="keep one corpus for each family of models",
            )
        lengths = np.frombuffer(data, "<u4", count, HEADER.size).astype(np.int64)
        tokens = np.frombuffer(data, "<i4", total, HEADER.size + 4 * count).astype(np.int32)
        if lengths.sum() != total or (lengths == 0).any() or (total and not 0 <= tokens.min() <= tokens.max() < vocab):
            raise ModelFileError(
                f"corpus `{path}` has texts that do not add up, or tokens of no vocabulary", hint=_HINT
            )
        return np.split(tokens, np.cumsum(lengths)[:-1]) if count else []


def _content(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # opening a pipe must not block
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"a corpus must be a file, got `{path}`")
            if found.st_size > MOST_BYTES:
                raise ModelFileError(f"corpus `{path}` must be under {MOST_BYTES} bytes, got `{found.st_size}`")
            return file.read(found.st_size)
    except OSError as error:
        raise UsageError(f"the corpus `{path}` cannot be read: {error.strerror}", hint=_HINT) from error


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
