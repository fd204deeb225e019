"""Read the tokenizer of a GGUF file: the `tokenizer.*` keys of its metadata, without trusting them.

Byte-level BPE is the `tokenizers` library's; SentencePiece BPE is `sentencepiece.py`. Ids equal llama.cpp's for the
same file, but where llama.cpp overrides a type of the file: `</s>` stays text to a file that says so.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from tokenizers import Regex
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as InTurn

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.text.pretokenizers import pretokenizer
from paceline.text.sentencepiece import SentencePieceEncoder
from paceline.text.tokenizer import BYTE, CONTROL, ENDS, NORMAL, UNKNOWN, USER_DEFINED, Cut, NamedTokens, Vocabulary

log = logging.getLogger(__name__)

_KINDS = frozenset(range(NORMAL, BYTE + 1))
_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_TEXT = frozenset((NORMAL, USER_DEFINED))  # types of tokens that a text may be merged into
_CURE = "the file describes no possible vocabulary: take another file of this model, or convert it again"


def read_metadata(metadata: Mapping[str, object]) -> tuple[Vocabulary, Cut]:
    """Return the vocabulary of a file and the function that cuts a text with it."""
    family = metadata.get("tokenizer.ggml.model")
    if family not in ("gpt2", "llama"):
        raise UnsupportedModel(
            f"the file's tokenizer must be `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE); got `{family}`",
            hint="use a model of another family",
        )
    keys, is_byte_level = _Keys(metadata), family == "gpt2"
    tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(keys.strings("tokens"))]
    count = len(tokens)
    ids = {text: i for i, text in enumerate(tokens)}
    if not ids:
        raise _misfit("tokenizer.ggml.tokens", "a list of strings", "an empty one")
    if len(ids) != count:
        twice = next(text for i, text in enumerate(tokens) if ids[text] != i)
        raise _misfit("tokenizer.ggml.tokens", "a list of strings that differ", f"twice `{twice:.80}`")
    kinds = keys.kinds(count)
    says_types = CONTROL in kinds
    spelled = {} if is_byte_level else _type_bytes(tokens, kinds)
    bos, eos = keys.token("bos", count), keys.token("eos", count)
    if not is_byte_level:  # SentencePiece's own ids, unless the file says that they are text
        first, second = (i if i < count and (not says_types or kinds[i] == CONTROL) else None for i in (1, 2))
        bos, eos = first if bos is None else bos, second if eos is None else eos
    own = {i for i in (eos, keys.token("eot", count), keys.token("eom", count)) if i is not None}
    named = {ids[text] for text in ENDS if text in ids}
    _type_ends(kinds, named & own if says_types else named)
    ends = own | {token for token in named if kinds[token] == CONTROL}
    pre = pretokenizer(keys.text("tokenizer.ggml.pre") or _assumed(metadata)) if is_byte_level else None
    wants_bos = keys.flag("add_bos_token", pre.add_bos if pre else True)
    wants_space = keys.flag("add_space_prefix", True)
    vocabulary = Vocabulary(
        tokens,
        kinds,
        is_byte_level,
        bos,
        eos,
        frozenset(ends),
        wants_bos and bos is not None,
        not is_byte_level and wants_space,
        keys.text("tokenizer.chat_template"),
    )
    if pre:
        encode = _byte_level(ids, keys.strings("merges"), pre.patterns, ignore_merges=pre.ignore_merges)
    else:
        byte_ids = [spelled.get(byte) for byte in range(256)]
        texts = {text: i for text, i in ids.items() if kinds[i] in _TEXT}
        unknown = keys.token("unknown", count, 0)
        encode = SentencePieceEncoder(texts, keys.scores(count), byte_ids=byte_ids, unknown=unknown).encode
    visible = NamedTokens({text: i for i, text in enumerate(tokens) if kinds[i] == USER_DEFINED})
    every = NamedTokens({text: i for i, text in enumerate(tokens) if kinds[i] in (UNKNOWN, CONTROL, USER_DEFINED)})
    prefix = " " if vocabulary.add_space_prefix else ""

    def cut(text: str, parse_special: bool, mark: str) -> list[int]:
        found: list[int] = []
        lead = prefix  # before the text and after every token that is none
        parts = (every if parse_special else visible).split(text)
        if mark:
            parts = [
                piece
                for part in parts
                for piece in (visible.split(part.replace(mark, "")) if isinstance(part, str) else [part])
            ]
        for part in parts:
            if isinstance(part, int):
                found.append(part)
                lead = "" if kinds[part] == USER_DEFINED else prefix
            else:
                found += encode(lead + part)
                lead = ""
        return found

    return vocabulary, cut


def _assumed(metadata: Mapping[str, object]) -> str:
    """Say that the file lacks the name of its pre-tokenizer, and return the one that llama.cpp assumes."""
    log.warning(
        "%s has no `tokenizer.ggml.pre`: words are cut as for `default`, which is wrong for most models and makes "
        "replies worse; take a newer file of this model",
        f"the model {name!r:.80}" if isinstance(name := metadata.get("general.name"), str) else "the model",
    )
    return "default"


def _type_bytes(tokens: Sequence[str], kinds: list[int]) -> dict[int, int]:
    """Return the token of each byte that has one; make every token that spells a byte one of that type.

    Old converters type them as text. Nothing but a byte is written that way in a SentencePiece vocabulary, and a
    newline must not be read as one thing and written as another.
    """
    found: dict[int, int] = {}
    for token, text in enumerate(tokens):
        match = _BYTE_NAME.fullmatch(text) if text.startswith("<0x") else None
        if match:
            found[int(match[1], 16)] = token
            kinds[token] = BYTE
        elif kinds[token] == BYTE:
            raise ModelFileError(
                f"a token for a byte must be written like `<0x0A>`; got `{text:.40}` with id `{token}`", hint=_CURE
            )
    return found


def _type_ends(kinds: list[int], ends: Set[int]) -> None:
    """Make ends control tokens where a converter forgot to say so; a type that it gave stays."""
    for token in ends:
        if kinds[token] == NORMAL:
            kinds[token] = CONTROL


def _byte_level(
    ids: dict[str, int], merges: Sequence[str], patterns: Sequence[str], *, ignore_merges: bool
) -> Callable[[str], list[int]]:
    pairs = []
    for pair in merges:
        at = pair.find(" ", 1)
        if not 0 < at < len(pair) - 1:
            raise _misfit("tokenizer.ggml.merges", "pairs of tokens with a space between", f"`{pair:.80}`")
        pairs.append((pair[:at], pair[at + 1 :]))
    try:
        library = LibraryTokenizer(BPE(vocab=ids, merges=pairs, ignore_merges=ignore_merges))
    except Exception as error:
        raise _misfit("tokenizer.ggml.merges", "pairs of tokens that make a third", f"`{error}`") from error
    splits = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    library.pre_tokenizer = InTurn([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


class _Keys:
    """The file's `tokenizer.*` keys, each checked when it is read."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata

    def strings(self, name: str) -> Sequence[str]:
        found = self._metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(found, Sequence) or isinstance(found, str) or not set(map(type, found)) <= {str}:
            got = "nothing" if found is None else type(found).__name__
            raise _misfit(f"tokenizer.ggml.{name}", "a list of strings", got)
        return found

    def kinds(self, count: int) -> list[int]:
        """Read the type of each token; a file without them types all as text."""
        found = self._per_token("token_type", count)
        if found is None:
            return [NORMAL] * count
        for kind in set(found) - _KINDS if set(map(type, found)) <= {int} else found[:1]:
            raise _misfit("tokenizer.ggml.token_type", f"types from {NORMAL} to {BYTE}", f"`{kind}`")
        return found

    def scores(self, count: int) -> list[float]:
        found = self._per_token("scores", count)
        if found is None:
            return [0.0] * count
        if not set(map(type, found)) <= {int, float} or any(map(math.isnan, found)):
            raise _misfit("tokenizer.ggml.scores", "numbers", "something else among them")
        return found

    def token(self, name: str, count: int, default: int | None = None) -> int | None:
        """Read the id of a token with a part of its own; None if the file names none."""
        key = f"tokenizer.ggml.{name}_token_id"
        found = self._metadata.get(key)
        if found is None:
            return default if default is not None and default < count else None
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < count:
            raise _misfit(key, f"the id of a token, from 0 to {count - 1}", f"`{found!r:.40}`")
        return found

    def flag(self, name: str, default: bool) -> bool:
        key = f"tokenizer.ggml.{name}"
        found = self._metadata.get(key)
        if found is not None and found not in (0, 1):
            raise _misfit(key, "true or false", f"`{found!r:.40}`")
        return default if found is None else bool(found)

    def text(self, key: str) -> str | None:
        found = self._metadata.get(key)
        if found is not None and not isinstance(found, str):
            raise _misfit(key, "a text", type(found).__name__)
        return found

    def _per_token(self, name: str, count: int) -> list[Any] | None:
        key = f"tokenizer.ggml.{name}"
        found = self._metadata.get(key)
        if found is None:
            return None
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != count:
            got = f"`{len(found)}`" if isinstance(found, Sequence) else type(found).__name__
            raise _misfit(key, f"`{count}` numbers, one for each token", got)
        return list(found)


def _misfit(key: str, wanted: str, got: str) -> ModelFileError:
    return ModelFileError(f"the file's `{key}` must be {wanted}; got {got}", hint=_CURE)
