"""Which tokens of a vocabulary texts are made of, most frequent first.

`pieces.json.xz` says how often words, marks and runs of white space come in code and prose of many kinds
(tools/make_pieces.py counts them); a tokenizer's own ranking follows by cutting them. Tokens of no piece come last, in
the order of their ids, which for byte-pair vocabularies is that of their frequency where they were made.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import lzma
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np

from paceline import store
from paceline.core.aliases import Ints
from paceline.draft.base import Loaded
from paceline.formats.catalog import models_folder
from paceline.model.base import packed
from paceline.text.tokenizer import Tokenizer

WORTH_CUTTING = 2  # least ratio of the vocabulary to the head that was asked for

log = logging.getLogger(__name__)


def outputs_for(draft: Loaded, count: int) -> Ints | None:
    """Return the `count` tokens most worth guessing, int32 [count]; `None` if a draft model should guess them all."""
    vocab = draft.model.spec.vocab
    if count == 0 or vocab < WORTH_CUTTING * count or packed(draft.model) is None:
        return None
    return ranked(draft.tokenizer, vocab, models_folder().parent / "ranks")[:count]


def ranked(tokenizer: Tokenizer, vocab: int, folder: Path) -> Ints:
    """Return int32 [vocab], every token once: control tokens first, then by frequency. Kept in `folder`.

    Args:
        vocab: the model's number of ids; tokens behind them are padding.
    """
    data = resources.files("paceline.draft.model").joinpath("pieces.json.xz").read_bytes()
    key = hashlib.sha256(f"{tokenizer.tokens_digest()} {vocab} padding last ".encode() + data).hexdigest()[:32]
    path = folder / f"{key}.npy"
    known = _read(path, vocab)
    if known is not None:
        return known
    ids = rank(tokenizer, vocab, data)
    _write(path, ids)
    return ids


def rank(tokenizer: Tokenizer, vocab: int, data: bytes) -> Ints:
    """Return the ranking by the pieces in `data`."""
    weights = np.zeros(vocab)
    for group, pieces in json.loads(lzma.decompress(data)).items():
        share = 2.0 ** (-int(group) / 4)
        for text in _joined(pieces):
            np.add.at(weights, tokenizer.encode(text, add_bos=False), share)
    for token in range(min(tokenizer.vocab_size, vocab)):
        if tokenizer.is_special(token) or token in tokenizer.eos_ids:
            weights[token] = np.inf
        elif not tokenizer.token_bytes(token):  # padding
            weights[token] = -1
    return np.argsort(-weights, kind="stable").astype(np.int32)


def _joined(pieces: list[str]) -> Iterator[str]:
    """Yield texts to cut: words by the hundred, because a call costs more than a word; the others alone.

    A line's end between words joins no tokens, and is frequent anyway.
    """
    words = [piece for piece in pieces if piece[-1].isalpha()]
    for start in range(0, len(words), 100):
        yield "\n".join(words[start : start + 100])
    yield from (piece for piece in pieces if not piece[-1].isalpha())


def _read(path: Path, vocab: int) -> Ints | None:
    try:
        ids: Ints = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_sound = ids.shape == (vocab,) and ids.dtype == np.int32 and np.array_equal(np.sort(ids), np.arange(vocab))
    return ids if is_sound else None


def _write(path: Path, ids: Ints) -> None:
    """Write a ranking; a failure costs only making it again."""
    data = io.BytesIO()
    np.save(data, ids)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store.write(path, data.getvalue())
    except OSError as error:
        log.info("the ranking of tokens could not be kept at `%s`: %s", path, error)
