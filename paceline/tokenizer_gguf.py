"""Read the tokenizer of a GGUF file: the `tokenizer.*` keys of its metadata, without trusting them.

Byte-level BPE is the `tokenizers` library's; SentencePiece BPE is `sentencepiece.py`. Ids equal llama.cpp's for the
same file, but where llama.cpp overrides a type of the file: `</s>` stays text to a file that says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set

from tokenizers import Regex
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as InTurn

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.pretokenizers import pretokenizer
from paceline.sentencepiece import SentencePieceEncoder
from paceline.tokenizer import BYTE, CONTROL, ENDS, NORMAL, UNKNOWN, USER_DEFINED, NamedTokens, Vocabulary

_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_TEXT = frozenset((NORMAL, USER_DEFINED))  # types of tokens that a text may be merged into
_CURE = "the file describes no possible vocabulary: take another file of this model, or convert it again"


def read_metadata(metadata: Mapping[str, object]) -> tuple[Vocabulary, Callable[[str, bool], list[int]]]:
    """Return the vocabulary of a file and the function that cuts a text with it."""
    family = metadata.get("tokenizer.ggml.model")
    if family not in ("gpt2", "llama"):
        raise UnsupportedModel(
            f"the file's tokenizer must be `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE); got `{family}`",
            hint="use a model of another family",
        )
    is_byte_level = family == "gpt2"
    tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(_strings(metadata, "tokens"))]
    ids = {text: i for i, text in enumerate(tokens)}
    if len(ids) != len(tokens):
        twice = next(text for i, text in enumerate(tokens) if ids[text] != i)
        raise ModelFileError(f"every token of a vocabulary must be there once; got twice `{twice}`")
    kinds = _numbers(metadata, "token_type", len(tokens), default=1)
    spelled = {} if is_byte_level else _type_bytes(tokens, kinds)

    def special(name: str, default: int | None = None) -> int | None:
        found = metadata.get(f"tokenizer.ggml.{name}_token_id", default)
        return int(found) if isinstance(found, int) and 0 <= found < len(tokens) else default

    usual = (None, None) if is_byte_level else (1, 2)
    bos, eos = (special(name, default) for name, default in zip(("bos", "eos"), usual, strict=True))
    own = {i for i in (eos, special("eot"), special("eom")) if i is not None}
    _type_ends(kinds, named={ids[text] for text in ENDS if text in ids}, own=own)
    ends = own | {ids[text] for text in ENDS if text in ids and kinds[ids[text]] == CONTROL}
    pre = pretokenizer(str(metadata.get("tokenizer.ggml.pre") or "default")) if is_byte_level else None
    wants_bos = metadata.get("tokenizer.ggml.add_bos_token", pre.add_bos if pre else True)
    wants_space = metadata.get("tokenizer.ggml.add_space_prefix", True)
    template = metadata.get("tokenizer.chat_template")
    vocabulary = Vocabulary(
        tokens,
        kinds,
        is_byte_level,
        bos,
        eos,
        frozenset(ends),
        bool(wants_bos) and bos is not None,
        not is_byte_level and bool(wants_space),
        template if isinstance(template, str) else None,
    )
    if pre:
        encode = _byte_level(ids, _strings(metadata, "merges"), pre.patterns, ignore_merges=pre.ignore_merges)
    else:
        byte_ids = [spelled.get(byte) for byte in range(256)]
        texts = {text: i for text, i in ids.items() if kinds[i] in _TEXT}
        scores = _numbers(metadata, "scores", len(tokens), default=0)
        encode = SentencePieceEncoder(texts, scores, byte_ids=byte_ids, unknown=special("unknown", 0)).encode
    visible = NamedTokens({text: i for i, text in enumerate(tokens) if kinds[i] == USER_DEFINED})
    every = NamedTokens({text: i for i, text in enumerate(tokens) if kinds[i] in (UNKNOWN, CONTROL, USER_DEFINED)})
    prefix = " " if vocabulary.add_space_prefix else ""

    def cut(text: str, parse_special: bool) -> list[int]:
        found: list[int] = []
        lead = prefix  # before the text and after every named token
        for part in (every if parse_special else visible).split(text):
            if isinstance(part, int):
                found.append(part)
                lead = prefix
            else:
                found += encode(lead + part)
                lead = ""
        return found

    return vocabulary, cut


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


def _type_ends(kinds: list[int], *, named: Set[int], own: Set[int]) -> None:
    """Make ends control tokens where a converter forgot to say so; what it said of a token's type stays.

    Args:
        named: ids of well-known ends.
        own: ids that the file itself calls ends.
    """
    says_types = CONTROL in kinds
    for token in named if not says_types else named & own:
        if kinds[token] == NORMAL:
            kinds[token] = CONTROL


def _byte_level(
    ids: dict[str, int], merges: Sequence[str], patterns: Sequence[str], *, ignore_merges: bool
) -> Callable[[str], list[int]]:
    pairs = [(pair[:at], pair[at + 1 :]) for pair in merges if (at := pair.find(" ", 1)) > 0]
    try:
        library = LibraryTokenizer(BPE(vocab=ids, merges=pairs, ignore_merges=ignore_merges))
    except Exception as error:
        raise ModelFileError(f"every merge must join two tokens into a third; got `{error}`") from error
    splits = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    library.pre_tokenizer = InTurn([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


def _strings(metadata: Mapping[str, object], name: str) -> Sequence[str]:
    found = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, Sequence) or isinstance(found, str) or not set(map(type, found)) <= {str}:
        got = "nothing" if found is None else type(found).__name__
        raise ModelFileError(f"the file's `tokenizer.ggml.{name}` must be a list of strings; got {got}")
    return found


def _numbers(metadata: Mapping[str, object], name: str, count: int, *, default: int) -> list[int]:
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is None:
        return [default] * count
    values = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) < count:
        got = len(values) if isinstance(values, Sequence) else type(values).__name__
        raise ModelFileError(f"the file's `tokenizer.ggml.{name}` must hold `{count}` numbers; got `{got}`")
    return list(values)
