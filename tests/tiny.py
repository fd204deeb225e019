"""Tiny models of every family as real files, seeded, and the numpy twin of the model that runs them.

`tiny` writes one and opens it; `PlainModel` has `NativeModel`'s face, so a proof is written once for both.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
from gguf_writer import packed, tiny_metadata, tiny_tensors, write_gguf

from paceline.core.batch import Forward
from paceline.core.tree import TokenTree
from paceline.formats.files import open_model
from paceline.kernels.dequantize import dequantize
from paceline.kernels.native import native, new_pool
from paceline.kernels.ops import Linear
from paceline.kernels.plain import PlainOps, PlainStore
from paceline.kernels.tensor import GgmlType
from paceline.model.base import Capabilities
from paceline.model.cache import PAGE, PagedCache
from paceline.model.decoder import decode
from paceline.model.flatten import flatten
from paceline.model.native import NativeModel, load_weights

VOCAB = 300
ISAS = native.isas()

# name: family, sizes, other numbers of the file, whether input and output embeddings are one
FAMILIES = {
    "llama": ("llama", {"width": 64, "heads": 2, "kv_heads": 1}, {}, True),
    "mistral": ("llama", {"width": 96, "heads": 3, "kv_heads": 1}, {"llama.attention.sliding_window": 16}, False),
    "qwen2": ("qwen2", {"width": 128, "heads": 4, "kv_heads": 2, "ffn": 160}, {}, False),
    "qwen3": ("qwen3", {"width": 64, "heads": 4, "kv_heads": 2}, dict.fromkeys(
        ("qwen3.attention.key_length", "qwen3.attention.value_length"), 64), True),
    "smollm3": ("smollm3", {"layers": 4, "width": 64, "heads": 2, "kv_heads": 2}, {}, True),
    "gemma3": ("gemma3", {"layers": 3, "width": 64, "heads": 4, "kv_heads": 1}, {
        "gemma3.rope.freq_base": 1e6, "gemma3.attention.sliding_window_pattern": 3,
        "gemma3.final_logit_softcapping": 3.0}, True),
    "gemma2": ("gemma2", {"layers": 3, "width": 64, "heads": 4, "kv_heads": 1}, {
        "gemma2.final_logit_softcapping": 3.0, "gemma2.attn_logit_softcapping": 2.0}, True),
    "olmo2": ("olmo2", {"layers": 4, "width": 64, "heads": 2, "kv_heads": 1}, {
        "olmo2.attention.sliding_window": 16}, False),
    "exaone4": ("exaone4", {"layers": 4, "width": 64, "heads": 2, "kv_heads": 1}, {
        "exaone4.attention.sliding_window": 16}, True),
    "glm4": ("glm4", {"width": 128, "heads": 4, "kv_heads": 2}, {"glm4.rope.dimension_count": 16}, False),
    "phi3": ("phi3", {"width": 64, "heads": 2, "kv_heads": 1}, {}, False),
    "granite": ("granite", {"width": 64, "heads": 2, "kv_heads": 1}, {
        "granite.embedding_scale": 12.0, "granite.attention.scale": 0.1, "granite.residual_scale": 0.22,
        "granite.logit_scale": 3.0}, True),
    "mistral3": ("mistral3", {"width": 64, "heads": 2, "kv_heads": 1}, {
        "mistral3.attention.temperature_scale": 0.1, "mistral3.rope.scaling.type": "yarn",
        "mistral3.rope.scaling.factor": 8.0, "mistral3.rope.scaling.original_context_length": 16}, False),
    "wide": ("llama", {"width": 256, "heads": 8, "kv_heads": 2, "ffn": 512}, {}, False),
}  # fmt: skip


def quantize_q4_k(values: np.ndarray) -> np.ndarray:
    """Blocks of Q4_K: eight groups of 32 with six-bit scales and minima."""
    groups = values.astype(np.float32).reshape(-1, 8, 32)
    low = np.maximum(-groups.min(-1), 0)
    step = (groups.max(-1) + low) / 15
    d, dmin = ((part.max(-1, keepdims=True) / 63).astype(np.float16) for part in (step, low))
    scale, least = (
        np.rint(part / np.maximum(unit.astype(np.float32), 1e-12)).clip(0, 63).astype(np.uint8)
        for part, unit in ((step, d), (low, dmin))
    )
    real, offset = d.astype(np.float32) * scale, dmin.astype(np.float32) * least
    codes = np.rint((groups + offset[..., None]) / np.maximum(real, 1e-12)[..., None]).clip(0, 15).astype(np.uint8)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), _six_bits(scale, least), _halves(codes)], 1)


def _six_bits(scale: np.ndarray, least: np.ndarray) -> np.ndarray:
    first = scale[:, :4] | scale[:, 4:] >> 4 << 6
    second = least[:, :4] | least[:, 4:] >> 4 << 6
    return np.concatenate([first, second, scale[:, 4:] & 15 | (least[:, 4:] & 15) << 4], 1)


def _halves(codes: np.ndarray) -> np.ndarray:
    pairs = codes.reshape(len(codes), 4, 2, 32)
    return (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(codes), 128)


def quantize_q6_k(values: np.ndarray) -> np.ndarray:
    """Blocks of Q6_K: sixteen groups of 16 with int8 scales."""
    groups = values.astype(np.float32).reshape(-1, 16, 16)
    step = np.abs(groups).max(-1) / 31
    d = (step.max(-1, keepdims=True) / 127).astype(np.float16)
    scale = np.rint(step / np.maximum(d.astype(np.float32), 1e-12)).clip(-128, 127).astype(np.int8)
    real = np.maximum(d.astype(np.float32) * scale, 1e-12)[..., None]
    codes = (np.rint(groups / real).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.concatenate([codes[:, :, :2] & 15 | (codes[:, :, 2:] & 15) << 4], 2).reshape(-1, 128)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = np.bitwise_or.reduce(codes >> 4 << shifts, axis=2).reshape(-1, 64)
    return np.concatenate([low, high, scale.view(np.uint8), d.view(np.uint8)], 1)


def quantize_q5_0(values: np.ndarray) -> np.ndarray:
    groups = values.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(groups).max(1, keepdims=True) / 15).astype(np.float16)
    codes = np.rint(groups / np.maximum(scale.astype(np.float32), 1e-12)).clip(-16, 15).astype(np.int8) + 16
    codes = codes.astype(np.uint8)
    high = np.packbits(codes >> 4, axis=1, bitorder="little")
    return np.concatenate([scale.view(np.uint8), high, codes[:, :16] & 15 | (codes[:, 16:] & 15) << 4], 1)


_QUANTIZE = {GgmlType.Q4_K: quantize_q4_k, GgmlType.Q6_K: quantize_q6_k, GgmlType.Q5_0: quantize_q5_0}


def quantised(values: np.ndarray, kind: GgmlType) -> tuple[GgmlType, tuple[int, ...], bytes]:
    """Quantise an array for `write_gguf`, in any of the formats these tests use."""
    if kind in _QUANTIZE:
        return kind, values.shape, np.ascontiguousarray(_QUANTIZE[kind](np.ascontiguousarray(values))).tobytes()
    return packed(values, kind)


def write_model(path: Path, name: str, kind: GgmlType = GgmlType.F32, *, seed: int = 0) -> Path:
    """Write one of `FAMILIES`: matrices in `kind`, norms and biases in F32."""
    family, sizes, numbers, tied = FAMILIES[name]
    metadata = tiny_metadata(family, **sizes) | numbers
    tensors = tiny_tensors(metadata, vocab=VOCAB, tied=tied, seed=seed)
    for key, tensor in tensors.items():
        if not isinstance(tensor, np.ndarray):
            values = np.frombuffer(tensor[2], np.float32).reshape(tensor[1])
            tensors[key] = quantised(values, kind)
    return write_gguf(path, metadata, tensors)


@functools.cache
def file_of(name: str, kind: GgmlType = GgmlType.F32):
    """Return one of `FAMILIES`, opened; the file itself is gone."""
    with tempfile.TemporaryDirectory() as folder:
        return open_model(write_model(Path(folder) / f"{name}.gguf", name, kind))


@functools.cache
def pool_of(threads: int = 1):
    return new_pool(threads)


@functools.cache
def tiny(name: str, kind: GgmlType = GgmlType.F32, isa: str = "", *, threads: int = 1, quant: str = "auto"):
    """Return one of `FAMILIES` on the native kernels; models are never changed, so tests share them."""
    return NativeModel(_Kept(file_of(name, kind)), pool_of(threads), isa=isa, quant=quant)


class _Kept:
    """An open file that keeps its pages: several models are made of it."""

    def __init__(self, file) -> None:
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def release(self, tensor) -> None:
        pass


class PlainModel:
    """A decoder in numpy, with `NativeModel`'s face. Keys and values are kept as `kept`."""

    capabilities = Capabilities(trees=True, taps=True)  # numpy's products of many rows are not those of one

    def __init__(self, spec, weights, *, dtype=np.float64, quantized=False, kept=None, context=None) -> None:
        self.spec = spec.reading(context or spec.plain_reach)
        self.weights, self.dtype, self.quantized = weights, dtype, quantized
        self.kept = kept or dtype

    @classmethod
    def of(cls, file, **settings) -> PlainModel:
        """Read the numbers a file stands for."""
        weights = load_weights(file, lambda t, bias: Linear(dequantize(t), bias), dequantize, dequantize_vector)
        return cls(file.spec, weights, **settings)

    @property
    def page_bytes(self) -> int:
        spec = self.spec
        return 2 * spec.layers * spec.kv_heads * spec.head_dim * PAGE * np.dtype(self.kept).itemsize

    def new_cache(self, tokens: int) -> PagedCache:
        spec = self.spec
        return PagedCache(PlainStore(spec.layers, spec.kv_heads, spec.head_dim, -(-tokens // PAGE), self.kept))

    def forward(self, batch, cache, *, taps=()) -> Forward:
        ops = PlainOps(batch, cache.store, dtype=self.dtype, quantized=self.quantized)
        logits = decode(ops, self.spec, self.weights).value
        return Forward(logits, {layer: ops.taps[layer] for layer in taps})


def dequantize_vector(tensor) -> np.ndarray:
    return dequantize(tensor).reshape(-1)


# ---- forwarding


def text(seed: int, length: int, vocab: int = VOCAB) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab, length)]


def feed(model, cache, sequence, tokens, *, chunk=10**6):
    """Forward and commit `tokens` as chains of at most `chunk`; return the logits after each, [n, V]."""
    rows = []
    for start in range(0, len(tokens), chunk):
        part = tokens[start : start + chunk]
        batch = flatten(cache, [sequence], [TokenTree.chain(part)], [len(part)])
        rows.append(model.forward(batch, cache).logits.copy())
        cache.commit(sequence, range(len(part)), part)
    return np.concatenate(rows)


def alone(model, tokens):
    """Logits after each token, forwarded one by one in a cache of their own: what every other path must equal."""
    cache = model.new_cache(len(tokens) + PAGE)
    return feed(model, cache, cache.open(), tokens, chunk=1)


def random_tree(random, nodes: int, root: int, vocab: int = VOCAB) -> TokenTree:
    """Make a tree whose nodes lie in a random topological order, siblings with tokens of their own."""
    parents, tokens, used = [-1], [root], {}
    for node in range(1, nodes):
        parent = int(random.integers(max(0, node - int(random.integers(1, nodes + 1))), node))
        token = int(random.integers(vocab))
        while token in used.setdefault(parent, set()):
            token = int(random.integers(vocab))
        used[parent].add(token)
        parents.append(parent)
        tokens.append(token)
    return TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))


def root_path(tree: TokenTree, node: int) -> list[int]:
    """The nodes from the root, included, down to `node`."""
    return [0, *tree.path(node)]


def same(got, want, what: str = "") -> None:
    """Assert that two arrays of floats are the same bits."""
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    differ = got.view(np.uint32) != want.view(np.uint32)
    if differ.any():
        rows = np.flatnonzero(differ.reshape(len(got), -1).any(1))
        apart = np.abs(got.astype(np.float64) - want).max()
        raise AssertionError(
            f"{what}: {differ.sum()} of {differ.size} numbers differ, rows {rows[:8]}, by up to {apart}"
        )
