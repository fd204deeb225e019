import numpy as np
import pytest
from gguf_writer import packed

from paceline import _native
from paceline.errors import UnsupportedModel
from paceline.kernels.dequantize import dequantize
from paceline.kernels.tensor import SUPPORTED, GgmlType, Tensor


def half(value):
    return np.array([value], np.float16).tobytes()


def unpack(kind, raw, shape):
    return dequantize(Tensor("t", shape, kind, np.frombuffer(raw, np.uint8)))


def test_q4_0_low_nibbles_are_the_first_sixteen():
    raw = half(0.5) + bytes(range(0x10, 0x20))  # low nibble j, high nibble 1
    np.testing.assert_array_equal(
        unpack(GgmlType.Q4_0, raw, (1, 32))[0], [0.5 * (j - 8) for j in range(16)] + [-3.5] * 16
    )


def test_q4_1_has_a_scale_and_a_least_value():
    raw = half(0.25) + half(-2.0) + bytes(j << 4 | 3 for j in range(16))
    np.testing.assert_array_equal(unpack(GgmlType.Q4_1, raw, (32,)), [-1.25] * 16 + [0.25 * j - 2 for j in range(16)])


def test_q5_0_takes_element_js_fifth_bit_from_bit_j():
    raw = half(2.0) + (1 << 0 | 1 << 5 | 1 << 31).to_bytes(4, "little") + bytes([0x21] * 16)
    expected = [2.0 * (1 - 16)] * 16 + [2.0 * (2 - 16)] * 16
    for j in (0, 5, 31):
        expected[j] += 32
    np.testing.assert_array_equal(unpack(GgmlType.Q5_0, raw, (1, 32))[0], expected)


def test_q5_1_has_scale_least_value_and_fifth_bits():
    raw = half(2.0) + half(1.0) + (1 << 17).to_bytes(4, "little") + bytes([0x43] * 16)
    expected = [7.0] * 16 + [9.0] * 16
    expected[17] += 32
    np.testing.assert_array_equal(unpack(GgmlType.Q5_1, raw, (1, 32))[0], expected)


def test_q8_0_codes_are_signed():
    raw = half(0.5) + np.arange(-16, 16, dtype=np.int8).tobytes()
    np.testing.assert_array_equal(unpack(GgmlType.Q8_0, raw, (1, 32))[0], 0.5 * np.arange(-16, 16))


def scale_and_least(j, q):
    """Follow ggml's get_scale_min_k4, one number at a time."""
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6 << 4), (q[j + 4] >> 4) | (q[j] >> 6 << 4)


@pytest.mark.parametrize("five", [False, True])
def test_q4_k_and_q5_k_equal_their_definitions_loop(five):
    body = np.random.default_rng(1).integers(0, 256, 172 if five else 140, dtype=np.uint8).tobytes()
    scales, high, codes = body[:12], body[12:44], body[44:] if five else body[12:]
    d, dmin, expected = 0.03125, 0.125, []
    for group in range(8):
        scale, least = scale_and_least(group, scales)
        for i in range(32):
            code = codes[group // 2 * 32 + i] >> (4 * (group % 2)) & 15
            code += 16 * (high[i] >> group & 1) if five else 0
            expected.append(d * scale * code - dmin * least)
    kind = GgmlType.Q5_K if five else GgmlType.Q4_K
    np.testing.assert_array_equal(unpack(kind, half(d) + half(dmin) + body, (1, 256))[0], expected)


def test_q6_k_equals_a_loop_over_its_definition():
    body = np.random.default_rng(2).integers(0, 256, 208, dtype=np.uint8).tobytes()
    low, high, scales = body[:128], body[128:192], np.frombuffer(body[192:], np.int8).astype(int)
    d, expected = 0.0625, [0.0] * 256
    for part in range(2):
        for i in range(32):
            for quarter in range(4):
                four = low[64 * part + i + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
                two = high[32 * part + i] >> (2 * quarter) & 3
                scale = scales[8 * part + i // 16 + 2 * quarter]
                expected[128 * part + 32 * quarter + i] = d * scale * ((four | two << 4) - 32)
    np.testing.assert_array_equal(unpack(GgmlType.Q6_K, body + half(d), (1, 256))[0], expected)


@pytest.mark.parametrize("kind", [GgmlType.F32, GgmlType.F16, GgmlType.BF16])
def test_floats_come_back(kind):
    values = np.array([[0.0, -1.5], [65504.0 if kind != GgmlType.BF16 else 3.0e38, 2.0**-14]], np.float32)
    tolerance = 2.0**-8 if kind == GgmlType.BF16 else 0
    np.testing.assert_allclose(unpack(kind, packed(values, kind)[2], (2, 2)), values, rtol=tolerance)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_rows_are_cut_out_exactly(kind, monkeypatch):
    raw = np.random.default_rng(3).integers(0, 60, 5 * 256 // kind.block * kind.block_bytes, dtype=np.uint8)
    tensor = Tensor("t", (5, 256), kind, raw)
    whole = dequantize(tensor)
    np.testing.assert_array_equal(dequantize(tensor, slice(1, 4)), whole[1:4])
    monkeypatch.setattr("paceline.kernels.dequantize._CHUNK_NUMBERS", 512)
    np.testing.assert_array_equal(dequantize(tensor), whole)


def test_other_formats_are_refused_by_name():
    with pytest.raises(UnsupportedModel, match=r"`t`.*`IQ1_S`"):
        unpack(GgmlType.IQ1_S, bytes(50), (1, 256))


@pytest.mark.parametrize("kind", SUPPORTED)
def test_the_native_reader_agrees_exactly(kind):
    blocks = np.random.default_rng(kind).integers(0, 256, (24, kind.block_bytes), np.uint8)
    where = {GgmlType.Q2_K: (80, 84), GgmlType.Q3_K: (108, 110), GgmlType.Q6_K: (208, 210)}.get(kind, (0, 4))
    if kind.block == 1:  # numbers, not patterns: a NaN's bits may change on the way
        blocks = np.zeros_like(blocks)
    else:  # finite scales
        blocks[:, where[0] : where[1]] = np.frombuffer(np.float16([0.01, 0.02]).tobytes(), np.uint8)[
            : where[1] - where[0]
        ]
    cols = kind.block * 4
    ours = dequantize(Tensor("t", (6, cols), kind, blocks.reshape(-1)))
    native = _native.dequantize(blocks.reshape(-1), int(kind), 6, cols)
    np.testing.assert_array_equal(ours, native)  # a zero may differ in sign
