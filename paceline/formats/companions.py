"""Smaller models on this disk that could draft for one: of its architecture and tokenizer, by what their files say.

Reads sizes, and of files small enough the head; no name decides, nothing is fetched, and what cannot be read is passed
over. Whether all tokens are the same is for the tokenizers to say, once both are loaded.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import PacelineError
from paceline.formats.catalog import is_first_part, models_folder, parts_of
from paceline.formats.gguf import peek

# A draft's step reads its weights, so at half the target's bytes it costs half a plain token. Guesses that are right
# two times in three then bring what they cost, and drafts of one family seldom do much better on prose.
MOST = 0.5
PADDING = 1024  # tokens by which vocabularies of one family differ: matrices are padded to round sizes
LOOKED_AT = 256  # files and folders of each place, so that a folder of thousands costs no more
LARGEST = 64 << 20  # bytes of a tokenizer.json


@dataclass(frozen=True, slots=True)
class Head:
    """What a model's head says: `line` is its family's own name, `first` are its first tokens."""

    architecture: str
    line: str
    tokens: int
    tokenizer: str
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Companion:
    """A smaller model, and in a few words why it."""

    path: Path
    bytes: int
    reason: str


def companions(target: Path) -> list[Companion]:
    """Return the models on this disk that could draft for one, the best first: of its own line, then the smallest.

    Looked for are files and folders beside the target, beside fetched models, and among those of the hub.
    """
    ours, size = head_of(target), bytes_of(target)
    if ours is None or not size:
        return []
    found: list[tuple[bool, int, str, Companion]] = []
    for path in dict.fromkeys(_beside(target)):
        theirs = bytes_of(path)
        if not 0 < theirs <= MOST * size or (head := head_of(path)) is None or not _speaks(head, ours):
            continue
        same = "line, " if head.line and head.line == ours.line else ""
        reason = f"the {same}architecture and tokenizer of the target in {theirs / size:.2f} of its bytes"
        found.append((not same, theirs, str(path), Companion(path, theirs, reason)))
    return [companion for *_, companion in sorted(found, key=lambda one: one[:3])]


def _speaks(head: Head, other: Head) -> bool:
    same = (head.architecture, head.tokenizer) == (other.architecture, other.tokenizer)
    both = min(len(head.first), len(other.first))
    return same and abs(head.tokens - other.tokens) <= PADDING and head.first[:both] == other.first[:both]


def _beside(target: Path) -> Iterator[Path]:
    """Yield the files and folders that are called as models are, in each place."""
    try:
        fetched = models_folder()
    except PacelineError:  # something else is where they would be
        places = [target.absolute().parent]
    else:
        hub = _entries(fetched / "hf")
        yield from filter(_is_folder, hub)
        places = [target.absolute().parent, fetched, *hub]
    for path in (path for place in places for path in _entries(place)):
        if path.suffix == ".gguf":
            if is_first_part(path.name) and "mmproj" not in path.name.lower():
                yield path
        elif _is_folder(path):
            yield path


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:LOOKED_AT]
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    """Whether it is a folder with a model's numbers in it."""
    try:
        return (path / "config.json").is_file()
    except OSError:  # no permission
        return False


def bytes_of(path: Path) -> int:
    """Return how large a model's files are, all parts together; 0 if there is nothing to read."""
    try:
        parts = path.glob("*.safetensors") if path.is_dir() else map(path.with_name, parts_of(path.name))
        found = [part.stat() for part in parts]
    except OSError:
        return 0
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else 0


def head_of(path: Path) -> Head | None:
    """Read a model's head; `None` if it is none."""
    try:
        return _head_of_folder(path) if path.is_dir() else _head_of_file(path)
    except (PacelineError, OSError, ValueError, RecursionError):
        return None


def _head_of_file(path: Path) -> Head | None:
    said, tokens, first = peek(path)
    architecture = said.get("general.architecture")
    if not isinstance(architecture, str):
        return None
    kind = f"{said.get('tokenizer.ggml.model')} {said.get('tokenizer.ggml.pre')}"
    return Head(architecture, str(said.get("general.basename", "")).lower(), tokens, kind, tuple(first))


def _head_of_folder(path: Path) -> Head | None:
    config = json.loads((path / "config.json").read_text())
    tokenizer = path / "tokenizer.json"
    if not isinstance(config, dict) or not isinstance(config.get("vocab_size"), int):
        return None
    if tokenizer.stat().st_size > LARGEST:
        return None
    digest = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    return Head(str(config.get("model_type")), "", config["vocab_size"], digest)
