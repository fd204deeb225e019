"""Read packed weights with numpy: an independent reader of the layout in `native/layout.h`.

For tests and the plain kernels; knows neither model files nor how weights were packed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

TILE, GROUP, SUPER = 16, 32, 256


def unpack(data: Bytes, kind: str, rows: int, cols: int) -> Floats:
    """Return the weights that packed bytes stand for.

    Args:
        data: uint8, whole tiles of 16 rows.
        kind: F32, F16, BF16, W4, W4K, W6, W6K, W8 or W4S.

    Returns:
        float32 [rows, cols], padding rows dropped.
    """
    tiles = -(-rows // TILE)
    tile = np.ascontiguousarray(data).reshape(tiles, -1)
    if kind in _FLOATS:
        size = 4 if kind == "F32" else 2
        weights = _FLOATS[kind](tile[:, : cols * TILE * size]).reshape(tiles, cols, TILE).transpose(0, 2, 1)
    else:
        weights = _QUANTISED[kind](tile, cols)
    return np.ascontiguousarray(weights.reshape(tiles * TILE, cols)[:rows])


def _view(data: Bytes, dtype: Any) -> Floats:
    """The numbers in the last axis of bytes, as float32."""
    values: Floats = np.ascontiguousarray(data).view(dtype).astype(np.float32)
    return values


def _bfloat(data: Bytes) -> Floats:
    return (np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _steps(codes: Bytes) -> Bytes:
    """Bytes [tiles, G, 8 steps * 64] to codes [tiles, 16 rows, G, 32 inputs]."""
    tiles, groups = codes.shape[:2]
    return codes.reshape(tiles, groups, 8, TILE, 4).transpose(0, 3, 1, 2, 4).reshape(tiles, TILE, groups, GROUP)


def _nibbles(data: Bytes) -> Bytes:
    """nibbles[256] in the last axis to eight steps of 64 codes."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def _highs(data: Bytes) -> Bytes:
    """highs[128] in the last axis to the top two bits of eight steps of 64 codes, shifted in place."""
    halves = data.reshape(*data.shape[:-1], 2, 1, 64)
    pairs = (halves >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & np.uint8(3)
    return (pairs << np.uint8(4)).reshape(*data.shape[:-1], 512)


def _per_row(values: Floats) -> Floats:
    """[tiles, G, 16 rows] to [tiles, 16 rows, G, 1], to multiply codes."""
    return values.transpose(0, 2, 1)[..., None]


def _w4(tile: Bytes, cols: int) -> Floats:
    group = tile.reshape(len(tile), cols // GROUP, 320)
    scale, low = _view(group[..., 256:288], np.float16), _view(group[..., 288:320], np.float16)
    return _per_row(scale) * _steps(_nibbles(group[..., :256])) + _per_row(low)


def _w6(tile: Bytes, cols: int) -> Floats:
    group = tile.reshape(len(tile), cols // GROUP, 448)
    scale, low = _view(group[..., 384:416], np.float16), _view(group[..., 416:448], np.float16)
    return _per_row(scale) * _steps(_nibbles(group[..., :256]) | _highs(group[..., 256:384])) + _per_row(low)


def _w4k(tile: Bytes, cols: int) -> Floats:
    tiles, supers = len(tile), cols // SUPER
    block = tile.reshape(tiles, supers, 2368)
    d, dmin = _view(block[..., :32], np.float16), _view(block[..., 32:64], np.float16)
    six = block[..., 64:320].reshape(tiles, supers, 8, 2, TILE).astype(np.float32)
    scale = (d[:, :, None] * six[..., 0, :]).reshape(tiles, -1, TILE)
    low = (dmin[:, :, None] * six[..., 1, :]).reshape(tiles, -1, TILE)
    codes = _steps(_nibbles(block[..., 320:].reshape(tiles, -1, 256)))
    return _per_row(scale) * codes - _per_row(low)


def _w6k(tile: Bytes, cols: int) -> Floats:
    tiles, supers = len(tile), cols // SUPER
    block = tile.reshape(tiles, supers, 3392)
    d = _view(block[..., :64], np.float32)
    scale = d[:, :, None] * _view(block[..., 64:320], np.int8).reshape(tiles, supers, TILE, TILE)
    packed = block[..., 320:].reshape(tiles, -1, 384)
    nibbles, highs = packed[..., :256], packed[..., 256:]
    codes = _steps(_nibbles(nibbles) | _highs(highs)).reshape(tiles, TILE, -1, TILE)
    return _per_row(scale.reshape(tiles, -1, TILE)) * (codes.astype(np.float32) - 32)


def _w8(tile: Bytes, cols: int) -> Floats:
    tiles, groups = len(tile), cols // GROUP
    start = -(-groups * 32 // 64) * 64
    scale = _view(tile[:, : groups * 32], np.float16).reshape(tiles, groups, TILE)
    codes = _steps(tile[:, start:].reshape(tiles, groups, 512))
    return _per_row(scale) * (codes.astype(np.float32) - 128)


def _w4s(tile: Bytes, cols: int) -> Floats:
    tiles, groups = len(tile), cols // GROUP
    start = 64 + -(-groups * TILE // 64) * 64
    scale = _view(tile[:, 64 : 64 + groups * TILE], np.int8).reshape(tiles, groups, TILE)
    codes = _steps(_nibbles(tile[:, start:].reshape(tiles, groups, 256)))
    return _per_row(_view(tile[:, :64], np.float32)[:, None] * scale) * (codes.astype(np.float32) - 8)


_FLOATS = {"F32": lambda data: _view(data, np.float32), "F16": lambda data: _view(data, np.float16), "BF16": _bfloat}
_QUANTISED = {"W4": _w4, "W4K": _w4k, "W6": _w6, "W6K": _w6k, "W8": _w8, "W4S": _w4s}
