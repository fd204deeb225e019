"""Text to token ids and back, from the metadata of a GGUF file or from a tokenizer.json.

`tokenizer_gguf.py` and `tokenizer_json.py` read the files. Control tokens are read from a text only when asked
(`parse_special`): what a user typed is encoded without, the output of a chat template with. Knows nothing of models.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.text.sentencepiece import SPACE
from paceline.text.stream import IncrementalDecoder, StopMatcher

__all__ = ["IncrementalDecoder", "StopMatcher", "Tokenizer"]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
_SPECIAL = frozenset((UNKNOWN, CONTROL))

# Control tokens that end a reply beside those that the file names by id, as llama.cpp has them. A token of such a name
# that the file types as text is text: `</s>` is a piece of HTML to some vocabularies.
# fmt: off
ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
)
# fmt: on


def _byte_alphabet() -> dict[str, int]:
    """Map the characters that byte-level BPE writes for bytes to those bytes."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()
ALPHABET = {byte: character for character, byte in _BYTES.items()}  # how byte-level BPE writes a byte


@dataclass(frozen=True)
class Vocabulary:
    """What a file says about its tokens; `is_byte_level` tells how their text stands for bytes."""

    tokens: Sequence[str]
    kinds: Sequence[int]
    is_byte_level: bool
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    add_bos: bool
    add_space_prefix: bool
    chat_template: str | None


# Cuts (text, parse_special, mark) into ids. No name is read across a mark, a character that is left out; "" is no mark.
Cut = Callable[[str, bool, str], list[int]]


class Tokenizer:
    """A vocabulary and the way to cut a text into its tokens."""

    def __init__(self, vocabulary: Vocabulary, cut: Cut) -> None:
        self._vocabulary = vocabulary
        self._cut = cut
        self._pieces: list[bytes | None] = [None] * len(vocabulary.tokens)
        self._digests: dict[int, str] = {}  # by how many tokens they cover
        self._special_texts: list[str] | None = None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """Build from the `tokenizer.*` keys of a GGUF file; raise UnsupportedModel or ModelFileError."""
        from paceline.text.tokenizer_gguf import read_metadata

        return cls(*read_metadata(metadata))

    @classmethod
    def from_file(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """Build from the tokenizer.json and its neighbours in a Hugging Face folder."""
        from paceline.text.tokenizer_json import read_folder

        return cls(*read_folder(Path(folder)))

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        """The end that the file names first, which templates write as `eos_token`."""
        return self._vocabulary.eos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every token that ends a reply."""
        return self._vocabulary.eos_ids

    @property
    def add_bos(self) -> bool:
        """Whether the model wants its first token before every prompt."""
        return self._vocabulary.add_bos

    @property
    def add_space_prefix(self) -> bool:
        """Whether encoding puts a space before the text, which decoding then takes away."""
        return self._vocabulary.add_space_prefix

    @property
    def chat_template(self) -> str | None:
        return self._vocabulary.chat_template

    def token_text(self, token: int) -> str:
        """Return the token as the file writes it."""
        return self._vocabulary.tokens[self._check(token)]

    def find(self, text: str) -> int | None:
        """Return the id of the token that the file writes as `text`."""
        try:
            return self._vocabulary.tokens.index(text)
        except ValueError:
            return None

    def special_texts(self) -> list[str]:
        """Return the names of the tokens that control the model."""
        if self._special_texts is None:
            typed = zip(self._vocabulary.tokens, self._vocabulary.kinds, strict=True)
            self._special_texts = [text for text, kind in typed if kind in _SPECIAL and text]
        return self._special_texts

    def is_special(self, token: int) -> bool:
        """Tell whether the token controls the model and stands for no text."""
        return self._vocabulary.kinds[self._check(token)] in _SPECIAL

    def is_unused(self, token: int) -> bool:
        """Tell whether the token stands for no text and controls nothing."""
        kind = self._vocabulary.kinds[self._check(token)]
        return kind == UNUSED or (kind not in _SPECIAL and not self._vocabulary.tokens[token])

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes the token stands for; a control token's are its name."""
        piece = self._pieces[self._check(token)]
        if piece is None:
            piece = self._pieces[token] = self._bytes_of(token)
        return piece

    def tokens_digest(self, limit: int | None = None) -> str:
        """Return a SHA-256 over the bytes of all tokens in id order, or of the first `limit`.

        Two models with one digest share a vocabulary; padded ones may agree up to the shorter's size.
        """
        count = self.vocab_size if limit is None else min(limit, self.vocab_size)
        if count not in self._digests:
            digest = hashlib.sha256()
            for token in range(count):
                piece = self.token_bytes(token)
                digest.update(b"%d:%b" % (len(piece), piece))
            self._digests[count] = digest.hexdigest()
        return self._digests[count]

    def encode(
        self, text: str, *, parse_special: bool = False, add_bos: bool | None = None, mark: str = ""
    ) -> list[int]:
        """Return the ids of `text`.

        Args:
            parse_special: read the names of control tokens as these tokens; for what a template wrote, not for what a
                user typed.
            add_bos: None does what the model wants, but never doubles a first token that the text already has.
            mark: a character that stands inside names which are to stay text; it is left out.
        """
        ids = self._cut(_well_formed(text), parse_special, mark)
        bos = self.bos_id
        if add_bos is None:
            add_bos = self.add_bos and not (ids and ids[0] == bos)
        if add_bos:
            if bos is None:
                raise UsageError("a first token was asked for; this tokenizer has none", hint="call with add_bos=False")
            ids.insert(0, bos)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of `ids`; bytes that form no character become U+FFFD."""
        decoder = IncrementalDecoder(self, show_special=not skip_special)
        return "".join([decoder.push(token) for token in ids]) + decoder.flush()

    def _check(self, token: int) -> int:
        if not 0 <= token < self.vocab_size:
            raise UsageError(f"a token id must be in 0 … {self.vocab_size - 1}; got `{token}`")
        return token

    def _bytes_of(self, token: int) -> bytes:
        text, kind = self._vocabulary.tokens[token], self._vocabulary.kinds[token]
        if kind in _SPECIAL or kind == USER_DEFINED:
            return text.encode()
        if kind == UNUSED:
            return b""
        if not self._vocabulary.is_byte_level:
            return bytes.fromhex(text[3:5]) if kind == BYTE else text.replace(SPACE, " ").encode()
        try:
            return bytes([_BYTES[c] for c in text])
        except KeyError:  # not the alphabet's: a token added without a type
            return text.encode()


def _well_formed(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which have no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class NamedTokens:
    """Find the tokens whose names are read from the text itself, the longest name first, as llama.cpp does."""

    def __init__(self, names: Mapping[str, int]) -> None:
        self._ids = names
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(name[:2], []).append(name)
        # A vocabulary may hold thousands of names that all begin alike: look for that beginning first.
        self._groups = [(_common_start(min(group), max(group)), group) for group in groups.values()]

    def split(self, text: str) -> list[str | int]:
        """Return the text in order: ids where a name stood, the pieces between as they are."""
        present = [name for prefix, group in self._groups if prefix in text for name in group if name in text]
        parts: list[str | int] = [text] if text else []
        for name in sorted(present, key=lambda name: -len(name.encode())):
            parts = [piece for part in parts for piece in self._split_at(name, part)]
        return parts

    def _split_at(self, name: str, part: str | int) -> list[str | int]:
        if isinstance(part, int) or name not in part:
            return [part]
        pieces: list[str | int] = []
        for piece in part.split(name):
            pieces += (piece, self._ids[name]) if piece else (self._ids[name],)
        return pieces[:-1]


def _common_start(one: str, other: str) -> str:
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]
