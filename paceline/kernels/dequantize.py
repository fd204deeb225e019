"""Unpack every supported ggml format to float32, in plain numpy. The reference for the native repacking.

Formulas follow the block definitions of ggml; each product is rounded to float32 in ggml's order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from paceline.kernels.tensor import GgmlType, Tensor

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_CHUNK_NUMBERS = 1 << 22  # bounds the temporaries, which are several times the output


def dequantize(tensor: Tensor, rows: slice = slice(None)) -> Floats:
    """Unpack `rows` of a tensor to float32 of its shape. Raises UnsupportedModel for a format it does not know."""
    tensor.require_supported()
    unpack, kind = _UNPACK[tensor.type], tensor.type
    first, last, step = rows.indices(tensor.rows)
    assert step == 1, rows
    per_row = tensor.cols // kind.block
    blocks = tensor.data.reshape(-1, kind.block_bytes)
    out = np.empty((max(last - first, 0), tensor.cols), np.float32)
    stride = max(1, _CHUNK_NUMBERS // tensor.cols)
    for start in range(first, last, stride):
        stop = min(start + stride, last)
        out[start - first : stop - first] = unpack(blocks[start * per_row : stop * per_row]).reshape(-1, tensor.cols)
    return out if len(tensor.shape) > 1 else out.reshape(-1)


def _half(b: Bytes) -> Floats:
    return np.ascontiguousarray(b).view(np.float16).astype(np.float32)


def _nibbles(b: Bytes) -> Bytes:
    """Split uint8 [..., n] to [..., 2n]: all low nibbles, then all high ones."""
    return np.concatenate([b & 15, b >> 4], axis=-1)


def _f32(b: Bytes) -> Floats:
    return np.ascontiguousarray(b).view(np.float32)


def _bf16(b: Bytes) -> Floats:
    return (np.ascontiguousarray(b).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(b: Bytes) -> Floats:
    return _half(b[:, :2]) * (_nibbles(b[:, 2:]).astype(np.float32) - 8)


def _q4_1(b: Bytes) -> Floats:
    return _half(b[:, :2]) * _nibbles(b[:, 4:]).astype(np.float32) + _half(b[:, 2:4])


def _fifth_bits(b: Bytes) -> Bytes:
    return np.unpackbits(np.ascontiguousarray(b), axis=-1, bitorder="little") << np.uint8(4)


def _q5_0(b: Bytes) -> Floats:
    return _half(b[:, :2]) * ((_nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6])).astype(np.float32) - 16)


def _q5_1(b: Bytes) -> Floats:
    return _half(b[:, :2]) * (_nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8])).astype(np.float32) + _half(b[:, 2:4])


def _q8_0(b: Bytes) -> Floats:
    return _half(b[:, :2]) * np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(np.float32)


def _six_bit_scales(b: Bytes) -> tuple[Floats, Floats]:
    """Unpack uint8 [n, 12] to eight scales and eight minima, [n, 8, 1] each."""
    scale = np.concatenate([b[:, :4] & 63, (b[:, 8:] & 15) | (b[:, :4] >> 6 << 4)], axis=1)
    least = np.concatenate([b[:, 4:8] & 63, (b[:, 8:] >> 4) | (b[:, 4:8] >> 6 << 4)], axis=1)
    return scale.astype(np.float32)[..., None], least.astype(np.float32)[..., None]


def _scaled_k(b: Bytes, codes: Bytes) -> Floats:
    scale, least = _six_bit_scales(b[:, 4:16])
    d, dmin = _half(b[:, :2])[:, None], _half(b[:, 2:4])[:, None]
    return (d * scale) * codes.reshape(-1, 8, 32).astype(np.float32) - dmin * least


def _q4_k(b: Bytes) -> Floats:
    return _scaled_k(b, _nibbles(b[:, 16:].reshape(-1, 4, 32)))


def _q5_k(b: Bytes) -> Floats:
    shifts = np.arange(8, dtype=np.uint8)[None, :, None]
    high = (b[:, None, 16:48] >> shifts & np.uint8(1)) << np.uint8(4)
    return _scaled_k(b, _nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | high)


def _q6_k(b: Bytes) -> Floats:
    low = _nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
    codes = (low | high << 4).astype(np.float32).reshape(-1, 16, 16) - 32
    scale = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    return (_half(b[:, 208:]) * scale)[..., None] * codes


_IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _iq4_nl(b: Bytes) -> Floats:
    return _half(b[:, :2]) * _IQ4_NL[_nibbles(b[:, 2:])]


def _pairs(b: Bytes) -> Bytes:
    """Split uint8 [n, 64] into two-bit codes [n, 2, 4, 32]: halves of 128, then the four shifts of their 32 bytes."""
    codes: Bytes = (b.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & np.uint8(3)
    return codes


def _q2_k(b: Bytes) -> Floats:
    codes = _pairs(b[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    scale = _half(b[:, 80:82]) * (b[:, :16] & 15).astype(np.float32)
    low = _half(b[:, 82:84]) * (b[:, :16] >> 4).astype(np.float32)
    return scale[..., None] * codes - low[..., None]


def _q3_k(b: Bytes) -> Floats:
    high = (b[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    codes = _pairs(b[:, 32:96]).astype(np.int8) - np.where(high.reshape(-1, 2, 4, 32) == 0, np.int8(4), np.int8(0))
    top = (b[:, None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    scale = (_nibbles(b[:, 96:104]) | top.reshape(-1, 16) << 4).astype(np.float32) - 32
    return (_half(b[:, 108:110]) * scale)[..., None] * codes.reshape(-1, 16, 16).astype(np.float32)


_UNPACK: dict[GgmlType, Callable[[Bytes], Floats]] = {
    GgmlType.F32: _f32,
    GgmlType.F16: _half,
    GgmlType.BF16: _bf16,
    GgmlType.Q4_0: _q4_0,
    GgmlType.Q4_1: _q4_1,
    GgmlType.Q5_0: _q5_0,
    GgmlType.Q5_1: _q5_1,
    GgmlType.Q8_0: _q8_0,
    GgmlType.Q4_K: _q4_k,
    GgmlType.Q5_K: _q5_k,
    GgmlType.Q6_K: _q6_k,
    GgmlType.Q2_K: _q2_k,
    GgmlType.Q3_K: _q3_k,
    GgmlType.IQ4_NL: _iq4_nl,
}
