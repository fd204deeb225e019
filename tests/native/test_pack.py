"""Packed weights stand for the numbers in the file, whatever the shape, thread count and reader."""

import numpy as np
import pytest

from paceline import _native
from paceline.kernels.unpack import unpack

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 0, 1, 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, BF16 = 10, 11, 12, 13, 14, 20, 30
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def half(blocks, at):
    return blocks[..., at : at + 2].copy().view(np.float16).astype(np.float32)


def nibbles(data):
    return np.concatenate([data & 15, data >> 4], -1)


def fifth(data):
    return np.unpackbits(data, axis=-1, bitorder="little") << 4


def six_bits(q):
    """The 8 scales and 8 minima of Q4_K and Q5_K."""
    low, mid, high = q[..., :4], q[..., 4:8], q[..., 8:]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], -1)
    return scale, np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], -1)


def chunks(data, parts, bits):
    """Each run of 32 bytes holds `parts` groups of 32 codes, one above the other."""
    runs = data.reshape(*data.shape[:-1], -1, 1, 32)
    shifts = (np.arange(parts, dtype=np.uint8) * bits)[:, None]
    return ((runs >> shifts) & (2**bits - 1)).reshape(*data.shape[:-1], -1)


def q6(b):
    low = b[..., :128].reshape(*b.shape[:-1], 2, 64)
    u = np.concatenate([low & 15, low >> 4], -1).reshape(*b.shape[:-1], 256) | chunks(b[..., 128:192], 4, 2) << 4
    scale = half(b, 208) * b[..., 192:208].view(np.int8).astype(np.float32)
    return np.repeat(scale, 16, -1) * (u.astype(np.float32) - 32)


def q3(b):
    low = b[..., 96:104]
    top = np.concatenate([b[..., 104:108] >> s & 3 for s in (0, 2, 4, 6)], -1) << 4
    scale = half(b, 108) * ((np.concatenate([low & 15, low >> 4], -1) | top).astype(np.float32) - 32)
    u = chunks(b[..., 32:96], 4, 2) + 4 * chunks(b[..., :32], 8, 1)
    return np.repeat(scale, 16, -1) * (u.astype(np.float32) - 4)


def q2(b):
    scale, low = half(b, 80) * (b[..., :16] & 15), half(b, 82) * (b[..., :16] >> 4)
    return np.repeat(scale, 16, -1) * chunks(b[..., 16:80], 4, 2) - np.repeat(low, 16, -1)


def affine_k(b, codes):
    scale, low = six_bits(b[..., 4:16])
    return np.repeat(half(b, 0) * scale, 32, -1) * codes - np.repeat(half(b, 2) * low, 32, -1)


def q5k(b):
    return affine_k(b, chunks(b[..., 48:], 2, 4) | chunks(b[..., 16:48], 8, 1) << 4)


# type: inputs and bytes of a block, offsets of its f16 numbers, what they stand for (written apart from native/formats.h)
FORMATS = {
    F32: (1, 4, [], lambda b: b.copy().view(np.float32)),
    F16: (1, 2, [0], lambda b: half(b, 0)),
    BF16: (1, 2, [], lambda b: (b.copy().view(np.uint16).astype(np.uint32) << 16).view(np.float32)),
    Q4_0: (32, 18, [0], lambda b: half(b, 0) * (nibbles(b[..., 2:]).astype(np.float32) - 8)),
    Q4_1: (32, 20, [0, 2], lambda b: half(b, 0) * nibbles(b[..., 4:]) + half(b, 2)),
    Q5_0: (32, 22, [0], lambda b: half(b, 0) * ((nibbles(b[..., 6:]) | fifth(b[..., 2:6])).astype(np.float32) - 16)),
    Q5_1: (32, 24, [0, 2], lambda b: half(b, 0) * (nibbles(b[..., 8:]) | fifth(b[..., 4:8])) + half(b, 2)),
    Q8_0: (32, 34, [0], lambda b: half(b, 0) * b[..., 2:].view(np.int8)),
    IQ4_NL: (32, 18, [0], lambda b: half(b, 0) * LEVELS[nibbles(b[..., 2:])]),
    Q2_K: (256, 84, [80, 82], q2),
    Q3_K: (256, 110, [108], q3),
    Q4_K: (256, 144, [0, 2], lambda b: affine_k(b, chunks(b[..., 16:], 2, 4))),
    Q5_K: (256, 176, [0, 2], q5k),
    Q6_K: (256, 210, [208], q6),
}
EXACT = {
    F32: "F32", F16: "F16", BF16: "BF16", Q4_0: "W4", Q4_1: "W4", Q5_0: "W6", Q5_1: "W6", Q8_0: "W8", IQ4_NL: "W8",
    Q3_K: "W6K", Q4_K: "W4K", Q6_K: "W6K",
}  # fmt: skip
QUANTISED = [kind for kind in FORMATS if FORMATS[kind][0] > 1]


def blocks(kind, rows, cols, seed=0):
    """Random bytes of a tensor, its f16 numbers of a weight's size and either sign."""
    inputs, size, halves, _ = FORMATS[kind]
    rng = np.random.default_rng([seed, kind, rows, cols])
    out = rng.integers(0, 256, (rows, cols // inputs, size), np.uint8)
    for at in halves:
        out[..., at : at + 2] = rng.normal(0, 0.01, (rows, cols // inputs, 1)).astype(np.float16).view(np.uint8)
    if kind == F32:
        out[:] = rng.normal(0, 0.05, (rows, cols, 1)).astype(np.float32).view(np.uint8)
    if kind == BF16:
        out[:] = rng.normal(0, 0.05, (rows, cols, 1)).astype(np.float32).view(np.uint8)[..., 2:]
    return out


def expected(kind, data):
    values = np.asarray(FORMATS[kind][3](data), np.float32)
    return values.reshape(len(data), -1)


def pack(kind, data, to="auto", threads=2):
    cols = data.shape[1] * FORMATS[kind][0]
    return _native.pack(data.reshape(-1), kind, len(data), cols, to, _native.Pool(threads))


def read_both(weight):
    """What the native reader says, after the numpy reader agreed to the bit."""
    native = weight.unpack_rows(0, weight.rows)
    np.testing.assert_array_equal(unpack(weight.data, weight.kind, weight.rows, weight.cols), native)
    return native


def weights(rows, cols, seed=0):
    return np.random.default_rng(seed).normal(0, 0.05, (rows, cols)).astype(np.float32)


def pack_floats(w, to):
    return _native.pack(w.view(np.uint8).reshape(-1), F32, *w.shape, to, _native.Pool(2))


@pytest.mark.parametrize("rows", [1, 16, 37])
@pytest.mark.parametrize("kind", EXACT)
def test_exact_kinds_keep_every_weight(kind, rows):
    inputs = FORMATS[kind][0]
    for cols in (inputs, 3 * inputs) if inputs > 1 else (1, 33, 300):
        data = blocks(kind, rows, cols)
        weight = pack(kind, data)
        assert (weight.kind, weight.rows, weight.cols) == (EXACT[kind], rows, cols)
        np.testing.assert_array_equal(read_both(weight), expected(kind, data))


@pytest.mark.parametrize("kind", FORMATS)
def test_dequantize_and_embedding_table_give_the_rows_of_the_file(kind):
    data = blocks(kind, 21, 512)
    raw, want = data.reshape(-1), expected(kind, data)
    np.testing.assert_array_equal(_native.dequantize(raw, kind, 21, 512), want)
    table = _native.EmbedTable(raw, kind, 21, 512)
    assert (table.rows, table.cols, table.nbytes) == (21, 512, raw.nbytes)
    ids = np.array([20, 0, 7, 7], np.int32)
    np.testing.assert_array_equal(table.lookup(ids), want[ids])
    if kind in EXACT:
        np.testing.assert_array_equal(_native.EmbedTable.from_weight(pack(kind, data)).lookup(ids), want[ids])


def test_five_bit_k_blocks_lose_only_their_scales_rounding():
    data = blocks(Q5_K, 37, 512)
    weight = pack(Q5_K, data)
    assert weight.kind == "W6"
    scale, low = six_bits(data[..., 4:16])
    bound = (31 * np.abs(half(data, 0)) * scale + np.abs(half(data, 2)) * low) * 2.0**-11 + 32 * 2.0**-25
    error = np.abs(read_both(weight) - expected(Q5_K, data)).reshape(37, 16, 32).max(-1)
    assert np.all(error <= bound.reshape(37, 16)), (error / bound.reshape(37, 16)).max()


def test_two_bit_k_blocks_are_fitted_closely():
    data = blocks(Q2_K, 32, 512)
    weight, want = pack(Q2_K, data), expected(Q2_K, data)
    assert weight.kind == "W6"
    groups = want.reshape(-1, 32)
    step = (groups.max(1) - groups.min(1)) / 63
    error = np.abs(read_both(weight) - want).reshape(-1, 32).max(1)
    assert np.all(error <= step + 1e-4), (error / step).max()


@pytest.mark.parametrize(
    ("to", "kind", "most"), [("q4", "W4", 0.075), ("q4s", "W4S", 0.085), ("q6", "W6", 0.018), ("q8", "W8", 0.0055)]
)
def test_requantised_weights_stay_close(to, kind, most):
    w = weights(50, 1056)
    weight = pack_floats(w, to)
    assert weight.kind == kind
    error = np.sqrt(np.mean((read_both(weight) - w) ** 2) / np.mean(w**2))
    assert error <= most, error


def test_four_bit_fit_beats_the_plain_range():
    w = weights(64, 1024)
    groups = w.reshape(-1, 32)
    low, step = groups.min(1, keepdims=True), np.ptp(groups, axis=1, keepdims=True) / 15
    plain = np.mean((np.round((groups - low) / step) * step + low - groups) ** 2)
    fitted = np.mean((read_both(pack_floats(w, "q4")) - w) ** 2)
    assert fitted <= 0.87 * plain, (fitted, plain)


def test_whole_scales_are_kept_at_little_over_four_bits():
    """Codes from -8 to 7, scales of either sign that are 127ths of their row's largest: nothing is lost."""
    rng = np.random.default_rng(3)
    codes, sc = rng.integers(-8, 8, (37, 28, 32)), rng.integers(-127, 128, (37, 28, 1))
    codes[..., 0], sc[:, 0] = -8, 127
    grid = (codes * sc * 2.0**-12).reshape(37, 896).astype(np.float32)
    weight = pack_floats(grid, "q4s")
    np.testing.assert_array_equal(read_both(weight), grid)
    assert weight.nbytes == 3 * (64 + 28 * 16 + 28 * 256)
    assert 8 * weight.nbytes / (48 * 896) < 4.3


def test_rows_of_every_kind_can_be_gathered_and_replaced():
    w = weights(40, 256)
    for to in ("q4", "q4s", "q6", "q8", "f32", "bf16"):
        weight = pack_floats(w, to)
        some = weight.gather(np.array([39, 3, 17], np.int32))
        some.copy_row(1, weight, 20)
        np.testing.assert_array_equal(read_both(some), read_both(weight)[[39, 20, 17]])


@pytest.mark.parametrize("to", ["q4", "q6", "q8"])
def test_weights_already_on_a_grid_are_kept(to):
    rng = np.random.default_rng(3)
    top = {"q4": 15, "q6": 63, "q8": 127}[to]
    u = rng.integers(-top if to == "q8" else 0, top + 1, (20, 4, 32)).astype(np.float32)
    u[..., 0], u[..., 1] = top, u.min() if to == "q8" else 0
    grid = (u * 2.0**-8 + (0 if to == "q8" else -0.25)).reshape(20, 128).astype(np.float32)
    np.testing.assert_allclose(read_both(pack_floats(grid, to)), grid, rtol=0, atol=2.0**-20)


@pytest.mark.parametrize("to", ["q4", "q4s", "q6", "q8"])
@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 1e-12, 60000.0])
def test_a_constant_group_is_kept(to, value):
    w = np.full((3, 64), value, np.float32)
    np.testing.assert_allclose(read_both(pack_floats(w, to)), w, rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("to", ["q4", "q4s", "q6", "q8", "f16", "bf16"])
def test_outlandish_floats_pack_without_harm(to):
    w = weights(16, 64)
    w[0, 0], w[1, 1], w[2, 2], w[3, 3], w[4, 4] = np.nan, np.inf, -np.inf, 3e38, 1e-42
    clean = np.ones(16, bool)
    clean[:5] = False
    np.testing.assert_array_equal(
        read_both(pack_floats(w, to))[clean], read_both(pack_floats(weights(16, 64), to))[clean]
    )


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize(
    ("to", "most"), [("q4", 0.1), ("q4s", 0.11), ("q8", 0.0065), ("bf16", 0.0025), ("f16", 3e-4), ("f32", 0)]
)
def test_every_type_converts_to_every_kind(kind, to, most):
    data = blocks(kind, 19, 512)
    want = expected(kind, data)
    error = np.sqrt(np.mean((read_both(pack(kind, data, to)) - want) ** 2) / np.mean(want**2))
    assert error <= most, error


def test_a_source_of_the_asked_precision_is_kept_exactly():
    for kind, to in [(Q4_0, "q4"), (Q4_1, "q4"), (Q4_K, "q4"), (Q6_K, "q6"), (Q5_1, "q6"), (Q8_0, "q8")]:
        data = blocks(kind, 5, 256)
        np.testing.assert_array_equal(read_both(pack(kind, data, to)), expected(kind, data))


def test_halves_and_bfloats_round_to_nearest_even_everywhere():
    every = np.arange(2**16, dtype=np.uint16)
    raw = every.view(np.uint8)
    half_values = every.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(_native.dequantize(raw, F16, 1, 2**16)[0], half_values)
    assert np.array_equal(np.signbit(_native.dequantize(raw, F16, 1, 2**16)[0]), np.signbit(half_values))
    rng = np.random.default_rng(0)
    floats = rng.integers(0, 2**32, 60000, dtype=np.uint32).view(np.float32)
    finite = half_values[np.isfinite(half_values)]
    ties = (finite[:-1] + finite[1:]) / 2
    for w in (floats[np.isfinite(floats)], finite, ties):
        w = np.ascontiguousarray(w, np.float32)[None]
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(read_both(pack_floats(w, "f16")), w.astype(np.float16).astype(np.float32))
        bits = w.view(np.uint32).astype(np.uint64)
        near = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
        np.testing.assert_array_equal(read_both(pack_floats(w, "bf16")), near)


@pytest.mark.parametrize(("kind", "packed"), [(Q4_K, "W4K"), (Q4_1, "W4"), (Q5_0, "W4S"), (Q8_0, "W4S"), (Q6_K, "W4S")])
def test_four_bit_weights_are_not_rounded_again_for_drafts(kind, packed):
    data = blocks(kind, 32, 256)
    weight = pack(kind, data, "q4s")
    assert weight.kind == packed
    if packed != "W4S":
        np.testing.assert_array_equal(weight.data, pack(kind, data).data)


def test_the_bytes_do_not_depend_on_threads():
    for kind, to in [(Q4_K, "auto"), (Q6_K, "auto"), (Q8_0, "auto"), (Q5_0, "q4"), (Q5_0, "q4s")]:
        data = blocks(kind, 200, 256)
        one = pack(kind, data, to, threads=1)
        for threads in (2, 3):
            np.testing.assert_array_equal(pack(kind, data, to, threads=threads).data, one.data)


@pytest.mark.parametrize("kind", FORMATS)
def test_padding_rows_are_zero(kind):
    weight = pack(kind, blocks(kind, 5, 256))
    assert not unpack(weight.data, weight.kind, 16, 256)[5:].any()


def test_packed_bytes_are_read_only_and_outlive_their_weight():
    data = pack(Q4_K, blocks(Q4_K, 16, 256)).data
    assert not data.flags.writeable
    assert (data.nbytes, data.ctypes.data % 64) == (2368, 0)
    assert data.sum() > 0


def test_a_read_only_mapped_file_can_be_packed(tmp_path):
    data = blocks(Q4_1, 16, 64)
    path = tmp_path / "weights"
    path.write_bytes(data.tobytes())
    mapped = np.memmap(path, np.uint8, "r")
    weight = _native.pack(mapped, Q4_1, 16, 64, "auto", _native.Pool(1))
    np.testing.assert_array_equal(read_both(weight), expected(Q4_1, data))


@pytest.mark.parametrize(
    ("nbytes", "kind", "rows", "cols", "to", "said"),
    [
        (143, Q4_K, 1, 256, "auto", "144 bytes a row, got 143"),
        (288, Q4_K, 1, 256, "auto", "got 288"),
        (0, Q4_K, 0, 256, "auto", "rows and cols"),
        (144, Q4_K, 2**40, 256, "auto", "rows and cols"),
        (144, Q4_K, -1, 256, "auto", "rows and cols"),
        (0, F32, 2**30, 2**30, "auto", "got 0"),
        (72, Q4_K, 1, 128, "auto", "multiple of the block"),
        (160, F32, 1, 40, "q4", "multiple of 32"),
        (144, 15, 1, 256, "auto", "type 15 is not supported"),
        (144, -1, 1, 256, "auto", "type -1 is not supported"),
        (144, Q4_K, 1, 256, "q3", "got `q3`"),
    ],
)
def test_what_does_not_fit_is_refused(nbytes, kind, rows, cols, to, said):
    with pytest.raises(ValueError, match=said):
        _native.pack(np.zeros(nbytes, np.uint8), kind, rows, cols, to, _native.Pool(1))


def test_rows_and_ids_out_of_range_are_refused():
    data = blocks(Q8_0, 4, 32)
    weight, table = pack(Q8_0, data), _native.EmbedTable(data.reshape(-1), Q8_0, 4, 32)
    for begin, end in [(0, 5), (-1, 2), (3, 2)]:
        with pytest.raises(IndexError):
            weight.unpack_rows(begin, end)
    assert weight.unpack_rows(2, 2).shape == (0, 32)
    for token in (-1, 4):
        with pytest.raises(IndexError, match=f"got {token}"):
            table.lookup(np.array([0, token], np.int32))
    assert table.lookup(np.array([], np.int32)).shape == (0, 32)
