"""Read the tokenizer of a Hugging Face folder: tokenizer.json, and its configuration files for what the text means.

The `tokenizers` library does the cutting, exactly as the model's authors configured it.
"""

from __future__ import annotations

import json
import threading
from codecs import BOM_UTF8
from pathlib import Path

from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.pre_tokenizers import Sequence as InTurn
from tokenizers.pre_tokenizers import Split

from paceline.errors import ModelFileError, ModelNotFound, UnsupportedModel
from paceline.text.tokenizer import ALPHABET, BYTE, CONTROL, ENDS, USER_DEFINED, Cut, Vocabulary

_CURE = "the folder's files do not belong together: download the whole repository again"


def read_folder(folder: Path) -> tuple[Vocabulary, Cut]:
    """Return the vocabulary of the folder and the function that cuts a text with it."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelNotFound(
            f"a model folder must hold tokenizer.json; got none in `{folder}`",
            hint="save the tokenizer with transformers' save_pretrained, or use a GGUF file",
        )
    try:
        library = LibraryTokenizer.from_buffer(path.read_bytes().removeprefix(BOM_UTF8))
    except Exception as error:
        raise ModelFileError(f"tokenizer.json must be one that the tokenizers library reads; got `{error}`") from error
    config = _read_json(folder / "tokenizer_config.json")
    ids = library.get_vocab(with_added_tokens=True)
    most = max(ids.values(), default=-1) + 1
    if most > 2 * len(ids) + 4096:  # a few ids may be unused; more is a claim that would cost memory
        raise ModelFileError(
            f"tokenizer.json must number its tokens without large gaps; got {len(ids)} tokens with ids up to {most - 1}"
        )
    tokens = [""] * most
    for text, token in ids.items():
        tokens[token] = text
    is_byte_level, adds_space = _decoding(library)
    kinds = [1] * len(tokens)
    if not is_byte_level:
        for byte in range(256):
            if (spelled := ids.get(f"<0x{byte:02X}>")) is not None:
                kinds[spelled] = BYTE
    for token, added in library.get_added_tokens_decoder().items():
        if kinds[token] != BYTE:
            kinds[token] = CONTROL if added.special else USER_DEFINED

    ends = {ids[text] for text in ENDS if text in ids and kinds[ids[text]] == CONTROL}
    if (called := _text(config.get("eos_token"))) and called not in ids:
        raise ModelFileError(
            f"tokenizer_config.json's `eos_token` must be a token of tokenizer.json; got `{called:.80}`", hint=_CURE
        )
    if (eos := ids.get(called)) is not None:
        ends.add(eos)  # whatever its type
    for name in ("generation_config.json", "config.json"):
        ends.update(_ids(_read_json(folder / name).get("eos_token_id"), name, len(tokens)))
    bos = ids.get(_text(config.get("bos_token")))
    opened = _encoded(library, "", add_special_tokens=True)
    vocabulary = Vocabulary(
        tokens,
        kinds,
        is_byte_level,
        bos,
        eos,
        frozenset(ends),
        bos is not None and opened[:1] == [bos],
        adds_space,
        _template(folder, config),
    )
    lock = threading.Lock()  # the switches belong to the library's tokenizer, not to one call
    usual = library.pre_tokenizer

    def cut(text: str, parse_special: bool, mark: str) -> list[int]:
        with lock:
            library.encode_special_tokens = not parse_special
            if not mark or mark not in text:
                return _encoded(library, text, add_special_tokens=False)
            # The library takes no part of a text literally. It looks for names first and for words later: a word ends
            # at the mark, which goes.
            spelled = "".join(map(ALPHABET.__getitem__, mark.encode())) if is_byte_level else mark
            drop = Split(spelled, "removed")
            library.pre_tokenizer = drop if usual is None else InTurn([usual, drop])
            try:
                return _encoded(library, text, add_special_tokens=False)
            finally:
                library.pre_tokenizer = usual

    return vocabulary, cut


def _encoded(library: LibraryTokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    try:
        return list(library.encode(text, add_special_tokens=add_special_tokens).ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library's panics derive from BaseException
        raise ModelFileError(
            f"tokenizer.json must cut any text; it failed on one of {len(text)} characters: {error}",
            hint="take the tokenizer of the model's publisher",
        ) from error


def _decoding(library: LibraryTokenizer) -> tuple[bool, bool]:
    """Tell whether tokens are written in the byte alphabet and whether a space is put before a text."""
    decoder = library.decoder
    state = decoder.__getstate__().decode() if decoder is not None else ""
    if '"ByteLevel"' in state:
        return True, False
    if "▁" in state:
        return False, '"Strip"' in state or '"prepend_scheme":"always"' in state or '"prepend_scheme":"first"' in state
    raise UnsupportedModel(
        "tokenizer.json must describe byte-level BPE or SentencePiece; its decoder is neither",
        hint="use a GGUF file of the model",
    )


def _template(folder: Path, config: dict[str, object]) -> str | None:
    """Return the chat template: a file of its own, one string, or the default of several."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"`{path.name}` must be UTF-8 text; byte {error.start} is none", hint=_CURE) from error
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _text(token: object) -> str:
    """Return a token's text, which the file gives plainly or with settings around it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _ids(value: object, name: str, count: int) -> list[int]:
    """Return the ends that a configuration file names: one id, several, or none."""
    found: list[int] = []
    for token in value if isinstance(value, list) else [] if value is None else [value]:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < count:
            raise ModelFileError(
                f"{name}'s `eos_token_id` must be ids of tokens, from 0 to {count - 1}; got `{token!r:.40}`", hint=_CURE
            )
        found.append(token)
    return found


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"`{path.name}` must be JSON; got `{error}`") from error
    if not isinstance(found, dict):
        raise ModelFileError(f"`{path.name}` must hold an object; got {type(found).__name__}")
    return found
