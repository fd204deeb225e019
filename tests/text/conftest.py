"""Small vocabularies made in the test, and the real ones where their files are."""

import functools
import os
from pathlib import Path

import pytest

from paceline.formats.gguf import GgufFile
from paceline.text.tokenizer import Tokenizer

BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES += [byte for byte in range(256) if byte not in BYTES]
ALPHABET = [chr(byte if i < 188 else 256 + i - 188) for i, byte in enumerate(BYTES)]
NAMED = {"<|im_start|>": 3, "<|im_end|>": 3, "<|tool|>": 4}


def byte_level(pre="qwen2", merges=("h e", "l l", "he ll", "hell o", "Ġ w"), **more):
    """The metadata of a byte-level vocabulary: 256 bytes, the merged, three named tokens."""
    tokens = [*ALPHABET, *(pair.replace(" ", "") for pair in merges), *NAMED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NAMED.get(token, 1) for token in tokens],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        **{f"tokenizer.{key}": value for key, value in more.items()},
    }


def sentence_piece(pieces=("▁", "a", "b", "c", "ab", "bc", "▁a", "▁ab", "abc", "c▁"), scores=None, **more):
    """The metadata of a SentencePiece vocabulary: the usual three, 256 bytes, the pieces from best to worst."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "tokenizer.ggml.scores": [0.0] * 259 + (scores or [-float(i) for i in range(len(pieces))]),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


@functools.cache
def real(name):
    """The tokenizer of a model in Paceline's cache; skip where it is not."""
    home = os.environ.get("PACELINE_HOME") or Path.home() / ".cache" / "paceline"
    path = Path(home) / "models" / f"{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{name} is not in the cache; fetch it with `paceline pull {name}`")
    file = GgufFile.open(path)
    try:
        return Tokenizer.from_gguf(file.metadata)
    finally:
        file.close()


@pytest.fixture
def tokenizer():
    return Tokenizer.from_gguf(byte_level())
