"""What was recorded of a pair of models: replies, what the draft guesses at each place, what the target finds likely.

A file is `numpy.savez` without compression, compressed as one by xz. Token ids are dense: `vocabulary` [V] holds the
models' own, ascending, so that order is kept. One row per text in `texts`; prompts and replies lie behind each other in
`tokens`. A reply of n tokens has n + 1 *places*: place i comes before its token i, the last after the end. Per place:

    likely  [8]      the target's likeliest next tokens, best first
    guesses [DEEP]   the draft's chain from here; where its first guess is right only that one: the rest is the next
                     place's chain
    sure    [DEEP]   how likely the draft found each, times SURE
    beside  [DEEP,2] its runners-up at each, best first

Absent entries are -1. Knows nothing of models.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

HOME = Path(__file__).with_name("replies.npz.xz")
VERSION = 1
DEEP, LIKELY, BESIDE = 16, 8, 2
IDS = ("prompt", "reply", "likely", "guesses", "beside", "prediction")  # parts of a text that hold tokens
SURE = 65535  # what a certain guess is stored as

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Text:
    """One prompt with its reply, ids as in the recording; arrays as described above, `prediction` empty if none."""

    workload: str
    index: int
    max_tokens: int
    prompt: Array
    reply: Array
    likely: Array
    guesses: Array
    sure: Array
    beside: Array
    prediction: Array = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def name(self) -> str:
        return f"{self.workload} {self.index}"

    @property
    def tokens(self) -> Array:
        return np.concatenate([self.prompt, self.reply])


@dataclass(frozen=True, slots=True)
class Recording:
    """Texts over one vocabulary; `about` says of what models, and when. `ends`: dense ids that end a reply."""

    texts: tuple[Text, ...]
    vocabulary: Array
    ends: tuple[int, ...]
    about: dict[str, Any]

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(text.workload for text in self.texts))

    def check(self) -> None:
        """Recount everything.

        Raises:
            ValueError: something does not fit.
        """
        vocab = len(self.vocabulary)
        if not self.texts or not vocab or (np.diff(self.vocabulary) <= 0).any():
            raise ValueError(f"a recording has texts and ascending ids, got {len(self.texts)} texts, {vocab} ids")
        if not all(0 <= end < vocab for end in self.ends):
            raise ValueError(f"ends must be below {vocab}, got {self.ends}")
        for text in self.texts:
            _check(text, vocab, self.ends)


def _check(text: Text, vocab: int, ends: Sequence[int]) -> None:
    """See `Recording.check`."""
    count = len(text.reply)
    shapes = {
        "likely": (count + 1, LIKELY),
        "guesses": (count + 1, DEEP),
        "sure": (count + 1, DEEP),
        "beside": (count + 1, DEEP, BESIDE),
    }
    for name, shape in shapes.items():
        if getattr(text, name).shape != shape:
            raise ValueError(f"{text.name}: `{name}` must be {shape}, got {getattr(text, name).shape}")
    if not len(text.prompt) or not 1 <= count <= text.max_tokens:
        raise ValueError(f"{text.name}: {len(text.prompt)} tokens of prompt, {count} of {text.max_tokens} of reply")
    for name in IDS:
        found, least = getattr(text, name), 0 if name in ("prompt", "reply", "prediction") else -1
        if found.size and not (least <= found.min() and found.max() < vocab):
            raise ValueError(f"{text.name}: `{name}` has ids outside {least} to {vocab - 1}")
    if (text.likely[:-1, 0] != text.reply).any():
        raise ValueError(f"{text.name}: the reply is not what the target found likeliest")
    if np.isin(text.reply[:-1], ends).any() or (count < text.max_tokens and text.reply[-1] not in ends):
        raise ValueError(f"{text.name}: the reply does not stop where it ends")
    wrong = np.append(text.guesses[:-1, 0] != text.reply, True)
    if (text.guesses[:, 0] < 0).any() or (text.guesses[wrong] < 0).any():
        raise ValueError(f"{text.name}: a chain is missing behind a wrong guess")


def dense(texts: Sequence[Text], ends: Sequence[int], about: dict[str, Any]) -> Recording:
    """Return a recording of texts that have the models' own ids."""
    every = np.unique(np.concatenate([getattr(text, name).ravel() for text in texts for name in IDS]))
    vocabulary = every[every >= 0].astype(np.int32)

    def place(ids: Array) -> Array:
        return np.where(ids >= 0, np.searchsorted(vocabulary, ids), -1).astype(np.int32)

    found = [replace(text, **{name: place(getattr(text, name)) for name in IDS}) for text in texts]
    kept = np.flatnonzero(np.isin(vocabulary, list(ends))).tolist()
    recording = Recording(tuple(found), vocabulary, tuple(kept), about)
    recording.check()
    return recording


def save(recording: Recording, path: Path = HOME) -> int:
    """Write a recording; return its bytes."""
    texts, workloads = recording.texts, recording.workloads
    rows = [
        (workloads.index(t.workload), t.index, t.max_tokens, len(t.prompt), len(t.reply), len(t.prediction))
        for t in texts
    ]
    said = {"version": VERSION, "workloads": workloads, "ends": list(recording.ends), **recording.about}
    if len(recording.vocabulary) >= 2**15:
        raise ValueError(f"a recording has room for {2**15 - 1} different tokens, got {len(recording.vocabulary)}")
    parts: dict[str, Array] = {
        "about": np.frombuffer(json.dumps(said).encode(), np.uint8),
        "vocabulary": recording.vocabulary,
        "texts": np.array(rows, np.int32),
        "tokens": np.concatenate([np.concatenate([t.prompt, t.reply, t.prediction]) for t in texts]).astype(np.int16),
        "sure": np.concatenate([t.sure for t in texts]).astype(np.uint16),
    }
    for name in ("likely", "guesses", "beside"):
        parts[name] = np.concatenate([getattr(t, name) for t in texts]).astype(np.int16)
    raw = io.BytesIO()
    np.savez(raw, **parts)
    packed = lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    path.write_bytes(packed)
    return len(packed)


def load(path: Path = HOME) -> Recording:
    """Read a recording.

    Raises:
        ValueError: it is none, is damaged, or of another version.
    """
    try:
        found = dict(np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False))
        about = json.loads(found["about"].tobytes())
        if about.pop("version") != VERSION:
            raise ValueError("another version")
        recording = _read(found, about)
    except (lzma.LZMAError, EOFError, KeyError, IndexError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{path} is no recording of version {VERSION}: {error}") from error
    recording.check()
    return recording


def _read(found: dict[str, Array], about: dict[str, Any]) -> Recording:
    workloads, ends, texts = about.pop("workloads"), about.pop("ends"), list[Text]()
    tokens, at, place = found["tokens"].astype(np.int32), 0, 0
    for kind, index, most, prompt, reply, prediction in found["texts"].tolist():
        first, second, third = at + prompt, at + prompt + reply, at + prompt + reply + prediction
        rows = slice(place, place + reply + 1)
        texts.append(
            Text(
                workloads[kind],
                index,
                most,
                tokens[at:first],
                tokens[first:second],
                found["likely"][rows].astype(np.int32),
                found["guesses"][rows].astype(np.int32),
                found["sure"][rows].astype(np.int32),
                found["beside"][rows].astype(np.int32),
                tokens[second:third],
            )
        )
        at, place = third, rows.stop
    if at != len(tokens) or any(len(found[name]) != place for name in ("likely", "guesses", "sure", "beside")):
        raise ValueError("tokens and places do not add up")
    return Recording(tuple(texts), found["vocabulary"], tuple(ends), about)
