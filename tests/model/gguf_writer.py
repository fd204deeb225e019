"""Write GGUF files for tests: any metadata, any tensors, and whole tiny models of every family."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from paceline.kernels.tensor import GgmlType

_CODES = {
    "u8": (0, "<B"),
    "i8": (1, "<b"),
    "u16": (2, "<H"),
    "i16": (3, "<h"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<?"),
    "u64": (10, "<Q"),
    "i64": (11, "<q"),
    "f64": (12, "<d"),
}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def encode(value: object) -> bytes:
    """Encode a value with its type; `("u16", 3)` picks the type, else it follows from Python's."""
    if isinstance(value, tuple):
        code, form = _CODES[value[0]]
        return struct.pack("<I", code) + struct.pack(form, value[1])
    if isinstance(value, (bool, np.bool_)):
        return encode(("bool", bool(value)))
    if isinstance(value, int):
        return encode(("u32", value))
    if isinstance(value, float):
        return encode(("f32", value))
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", 8) + text(value)
    assert isinstance(value, list), value
    items = [encode(item) for item in value] or [encode(0)[:4]]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(value)) + b"".join(item[4:] for item in items)


def quantize_q8_0(values: np.ndarray) -> np.ndarray:
    groups = values.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(groups).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(groups / np.maximum(scale.astype(np.float32), 1e-12)).clip(-127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], axis=1)


def quantize_q4_0(values: np.ndarray) -> np.ndarray:
    groups = values.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(groups).max(1, keepdims=True) / 7).astype(np.float16)
    codes = np.rint(groups / np.maximum(scale.astype(np.float32), 1e-12)).clip(-8, 7).astype(np.int8) + 8
    return np.concatenate([scale.view(np.uint8), _pair(codes)], axis=1)


def quantize_q4_1(values: np.ndarray) -> np.ndarray:
    groups = values.astype(np.float32).reshape(-1, 32)
    least = groups.min(1, keepdims=True).astype(np.float16)
    scale = ((groups.max(1, keepdims=True) - least) / 15).astype(np.float16)
    codes = np.rint((groups - least) / np.maximum(scale.astype(np.float32), 1e-12)).clip(0, 15)
    return np.concatenate([scale.view(np.uint8), least.view(np.uint8), _pair(codes)], axis=1)


def _pair(codes: np.ndarray) -> np.ndarray:
    codes = codes.astype(np.uint8)
    return codes[:, :16] | codes[:, 16:] << 4


_PACK: dict[GgmlType, Callable[[np.ndarray], np.ndarray]] = {
    GgmlType.F32: lambda values: values.astype("<f4").view(np.uint8),
    GgmlType.F16: lambda values: values.astype("<f2").view(np.uint8),
    GgmlType.BF16: lambda values: (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2").view(np.uint8),
    GgmlType.Q4_0: quantize_q4_0,
    GgmlType.Q4_1: quantize_q4_1,
    GgmlType.Q8_0: quantize_q8_0,
}


def packed(values: np.ndarray, kind: GgmlType) -> tuple[GgmlType, tuple[int, ...], bytes]:
    """Quantise an array for `write_gguf`."""
    return kind, values.shape, _PACK[kind](np.ascontiguousarray(values)).tobytes()


def write_gguf(
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, np.ndarray | tuple[GgmlType, tuple[int, ...], bytes]],
    *,
    version: int = 3,
) -> Path:
    """Write a file; arrays are stored as F32, triples as they are."""
    alignment = metadata.get("general.alignment", 32)
    assert isinstance(alignment, int)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += text(key) + encode(value)
    body = b""
    for name, tensor in tensors.items():
        kind, shape, raw = packed(tensor, GgmlType.F32) if isinstance(tensor, np.ndarray) else tensor
        body += b"\0" * (-len(body) % alignment)
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += raw
    path.write_bytes(head + b"\0" * (-len(head) % alignment) + body)
    return path


def rewrite(path: Path, raw: bytes) -> None:
    """Write a file anew. To cut an old one short instead makes some file systems write it to the disk at once."""
    path.unlink(missing_ok=True)
    path.write_bytes(raw)


def tiny_metadata(
    family: str = "llama", *, layers: int = 2, width: int = 64, heads: int = 4, kv_heads: int = 2, ffn: int = 96
) -> dict[str, object]:
    """Give the numbers of a tiny model."""
    metadata: dict[str, object] = {
        "general.architecture": family,
        f"{family}.block_count": layers,
        f"{family}.context_length": 256,
        f"{family}.embedding_length": width,
        f"{family}.feed_forward_length": ffn,
        f"{family}.attention.head_count": heads,
        f"{family}.attention.head_count_kv": kv_heads,
        f"{family}.attention.key_length": 32 if family in ("gemma2", "gemma3") else width // heads,
        f"{family}.attention.value_length": 32 if family in ("gemma2", "gemma3") else width // heads,
        f"{family}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{family}.rope.freq_base": 10_000.0,
    }
    if family in ("gemma2", "gemma3"):
        metadata[f"{family}.attention.sliding_window"] = 8
    return metadata


def tiny_tensors(
    metadata: Mapping[str, object], *, vocab: int = 256, kind: GgmlType = GgmlType.F32, tied: bool = True, seed: int = 0
) -> dict[str, np.ndarray | tuple[GgmlType, tuple[int, ...], bytes]]:
    """Make seeded weights: matrices in `kind`, norms and biases in F32."""
    family = metadata["general.architecture"]
    number = {key.removeprefix(f"{family}."): value for key, value in metadata.items()}
    width, ffn, heads = number["embedding_length"], number["feed_forward_length"], number["attention.head_count"]
    head_dim = number["attention.key_length"]
    queries, keys = heads * head_dim, number["attention.head_count_kv"] * head_dim
    random = np.random.default_rng(seed)

    def matrix(rows: int, cols: int) -> tuple[GgmlType, tuple[int, ...], bytes]:
        return packed(random.normal(0, cols**-0.5, (rows, cols)).astype(np.float32), kind)

    def norm(size: int) -> np.ndarray:
        return random.uniform(0.5, 1.5, size).astype(np.float32)

    tensors = {"token_embd.weight": matrix(vocab, width)}
    for layer in range(number["block_count"]):
        part = {
            "attn_norm.weight": norm(width),
            "attn_q.weight": matrix(queries, width),
            "attn_k.weight": matrix(keys, width),
            "attn_v.weight": matrix(keys, width),
            "attn_output.weight": matrix(width, queries),
            "ffn_norm.weight": norm(width),
            "ffn_gate.weight": matrix(ffn, width),
            "ffn_up.weight": matrix(ffn, width),
            "ffn_down.weight": matrix(width, ffn),
        }
        if family == "qwen2":
            part |= {f"attn_{one}.bias": norm(size) for one, size in (("q", queries), ("k", keys), ("v", keys))}
        if family in ("qwen3", "gemma3", "exaone4"):
            part |= {"attn_q_norm.weight": norm(head_dim), "attn_k_norm.weight": norm(head_dim)}
        if family == "olmo2":
            part |= {"attn_q_norm.weight": norm(queries), "attn_k_norm.weight": norm(keys)}
        if family in ("gemma2", "gemma3", "glm4", "olmo2", "exaone4"):
            part |= {"post_attention_norm.weight": norm(width), "post_ffw_norm.weight": norm(width)}
        if family in ("olmo2", "exaone4"):
            del part["attn_norm.weight"], part["ffn_norm.weight"]
        if family == "phi3":
            del part["attn_q.weight"], part["attn_k.weight"], part["attn_v.weight"], part["ffn_gate.weight"]
            part |= {"attn_qkv.weight": matrix(queries + 2 * keys, width), "ffn_up.weight": matrix(2 * ffn, width)}
        tensors |= {f"blk.{layer}.{name}": tensor for name, tensor in part.items()}
    tensors["output_norm.weight"] = norm(width)
    if not tied:
        tensors["output.weight"] = matrix(vocab, width)
    return tensors


def write_tiny(path: Path, family: str = "llama", *, kind: GgmlType = GgmlType.F32, seed: int = 0) -> Path:
    """Write a whole tiny model without a tokenizer."""
    metadata = tiny_metadata(family)
    return write_gguf(path, metadata, tiny_tensors(metadata, kind=kind, seed=seed))
