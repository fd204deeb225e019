"""A tiny model with a tokenizer, as a file: it writes letters, and after a while the same ones again.

For tests of what lies around a model: commands, signals, terminals, audits. What it says means nothing.
"""

from pathlib import Path

import numpy as np
from gguf_writer import tiny_metadata, tiny_tensors, write_gguf

from tests.text.conftest import byte_level

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_talker(
    path: Path, *, context: int = 1 << 16, seed: int = 1, template: str | None = None, padding: int = 0
) -> Path:
    """Write the file. Any prompt will do: bytes are tokens, turns are ChatML's unless `template` says otherwise."""
    vocabulary = byte_level()
    tokens = vocabulary["tokenizer.ggml.tokens"]
    metadata = tiny_metadata(heads=2, kv_heads=1) | {"llama.context_length": context}
    metadata |= {} if template is None else {"tokenizer.chat_template": template}
    rows = len(tokens) + padding  # some of them no token's
    tensors = tiny_tensors(metadata, vocab=rows, seed=seed)
    head = np.zeros((rows, metadata["llama.embedding_length"]), np.float32)
    said = [tokens.index(letter) for letter in LETTERS]
    head[said] = np.random.default_rng(seed).standard_normal((len(said), head.shape[1]))  # all others get a logit of 0
    return write_gguf(path, metadata | vocabulary, tensors | {"output.weight": head})
