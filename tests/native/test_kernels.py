"""Every kernel is its numpy twin to within rounding, on every instruction set of this machine."""

import numpy as np
import pytest
from tiny import ISAS, pool_of, quantised, same

from paceline.core.batch import Batch
from paceline.kernels.native import native
from paceline.kernels.plain import activate, rms_norm, rotate, rounded
from paceline.kernels.tape import Tape
from paceline.kernels.tensor import GgmlType

KINDS = ["F32", "F16", "BF16", "W4", "W6", "W8", "W4K", "W6K", "W4S"]
CONVERTED = {"F32": "f32", "F16": "f16", "BF16": "bf16", "W4": "q4", "W6": "q6", "W8": "q8", "W4S": "q4s"}
isas = pytest.mark.parametrize("isa", ISAS)


def batch_of(count, wanted=None):
    """Row t is token t, each at its position in one chain."""
    steps = np.arange(count, dtype=np.int32)
    wanted = np.arange(count) if wanted is None else wanted
    pages = -(-count // 32)
    return Batch(
        steps, steps, steps - 1, np.array([0, count], np.int32), np.asarray(wanted, np.int32),
        np.arange(pages, dtype=np.int32)[None], np.zeros(1, np.int32),
    )  # fmt: skip


class Bench:
    """A tape whose first ops load given rows; `run` replays it on the first `count` of them."""

    def __init__(self, isa, threads=1, store=(1, 1, 32)):
        self.tape, self.shape = Tape(pool_of(threads), isa), store

    def load(self, values):
        rows = self.tape.rows(values.shape[1])
        table = native.EmbedTable(np.ascontiguousarray(values, np.float32).view(np.uint8).reshape(-1), 0, *values.shape)
        self.tape.embed(table, scale=1.0, out=rows)
        return rows

    def run(self, out, count, wanted=None, taps=()):
        batch = batch_of(count, wanted)
        self.tape.run(batch, native.KVStore(*self.shape, len(batch.tables[0])), taps=taps, vocab=1 << 20)
        return self.tape.read(out, len(batch.wanted) if wanted is not None else count).copy()


def rows_of(seed, count, width):
    """Rows with the few large inputs that real activations have, and one row of zeros."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, width)).astype(np.float32)
    x[:, random.integers(width, size=3)] *= 30
    x[count // 2] = 0
    return x


def pack(kind, rows, cols, seed=0):
    w = np.random.default_rng(seed).normal(0, cols**-0.5, (rows, cols)).astype(np.float32)
    w[0] += 0.1  # a row whose minimum matters
    return packed(kind, w)


def packed(kind, w):
    rows, cols = w.shape
    if kind in CONVERTED:
        weight = native.pack(w.view(np.uint8).reshape(-1), 0, rows, cols, CONVERTED[kind], pool_of())
    else:
        source = GgmlType.Q4_K if kind == "W4K" else GgmlType.Q6_K
        raw = np.frombuffer(quantised(w, source)[2], np.uint8)
        weight = native.pack(raw, int(source), rows, cols, "auto", pool_of())
    assert weight.kind == kind
    return weight, weight.unpack_rows(0, rows).astype(np.float64)


def seen(kind, x):
    return (x if kind in ("F32", "F16", "BF16") else rounded(x)).astype(np.float64)


def close(got, want, size, what="", rate=2e-6):
    """Assert that got is want to `rate` of the magnitude of what was summed."""
    apart = np.abs(got - want) / (size + 1e-6)
    assert apart.max() < rate, f"{what}: apart by {apart.max():.2e} of the magnitude, allowed {rate:.0e}"


def widths(kind):
    return (256, 768, 1280) if kind.endswith("K") else (32, 96, 576, 1056, 2208)


@isas
@pytest.mark.parametrize("kind", KINDS)
def test_linear_is_its_twin(isa, kind):
    for cols in (*widths(kind), *((5, 33) if kind in ("F32", "F16", "BF16") else ())):
        for out in (1, 16, 41):
            weight, w = pack(kind, out, cols, seed=cols + out)
            bias = np.random.default_rng(1).standard_normal(out).astype(np.float32)
            x, before = rows_of(cols, 20, cols), rows_of(7, 20, out)
            bench = Bench(isa)
            rows, plain, biased, added = bench.load(x), *(bench.tape.rows(out) for _ in range(2)), bench.load(before)
            bench.tape.program.linear(rows, [(weight, [], plain), (weight, bias.tolist(), biased)])
            bench.tape.program.linear(rows, [(weight, bias.tolist(), added)], True)
            y = seen(kind, x)
            want, size = y @ w.T, np.abs(y) @ np.abs(w.T) + 1
            got = bench.run(plain, 20)
            close(got, want, size, f"{kind} {out}x{cols}")
            close(bench.tape.read(biased, 20), want + bias, size, "bias")
            close(bench.tape.read(added, 20), before + want + bias, size + np.abs(before), "accumulate")
            for count in range(1, 20):
                same(bench.run(plain, count), got[:count], f"{kind} {out}x{cols}, {count} rows of 20")


@isas
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("W")])
def test_sums_of_the_largest_codes_do_not_overflow(isa, kind):
    """Whole groups of greatest or least codes, met by inputs of 127 and -127: no sum may pass its 16 bits."""
    cols, out = 512, 32
    signs = np.random.default_rng(5).choice([-1.0, 1.0], (out, cols)).astype(np.float32)
    signs[:8], signs[8:16], signs[16:20, 1::2], signs[20:24, ::4] = 1, -1, -1, 1
    signs[:, ::32] *= -1  # both ends of the range in each group
    x = np.concatenate([signs, -signs, np.ones((1, cols), np.float32), -np.ones((1, cols), np.float32)])
    weight, w = packed(kind, signs)
    bench = Bench(isa)
    rows, result = bench.load(x), bench.tape.rows(out)
    bench.tape.program.linear(rows, [(weight, [], result)])
    y = seen(kind, x)
    close(bench.run(result, len(x)), y @ w.T, np.abs(y) @ np.abs(w.T) + 1)


@isas
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("kind", KINDS)
def test_gated_is_its_twin(isa, activation, kind):
    cols, out = (512 if kind.endswith("K") else 96), 40
    (gate, g), (up, u) = pack(kind, out, cols, 1), pack(kind, out, cols, 2)
    x = rows_of(3, 19, cols)
    bench = Bench(isa)
    rows, result = bench.load(x), bench.tape.rows(out)
    bench.tape.program.gated(rows, gate, up, activation == "gelu_tanh", result)
    y = seen(kind, x)
    got = bench.run(result, 19)
    size = (1 + np.abs(y) @ np.abs(g.T)) * (1 + np.abs(y) @ np.abs(u.T))
    close(got, activate(y @ g.T, activation) * (y @ u.T), size)
    for count in (1, 2, 7, 8, 9, 16, 17):
        same(bench.run(result, count), got[:count], f"{count} rows of 19")


@isas
def test_mixed_kinds_share_one_gated_op(isa):
    (gate, g), (up, u) = pack("W4K", 20, 256, 1), pack("BF16", 20, 256, 2)
    x = rows_of(3, 5, 256)
    bench = Bench(isa)
    rows, result = bench.load(x), bench.tape.rows(20)
    bench.tape.program.gated(rows, gate, up, False, result)
    want = activate(rounded(x).astype(np.float64) @ g.T, "silu") * (x.astype(np.float64) @ u.T)
    close(bench.run(result, 5), want, 1 + np.abs(want), rate=1e-5)


@isas
@pytest.mark.parametrize("width", [1, 15, 16, 64, 100, 1536])
def test_rms_norm_is_its_twin(isa, width):
    x, before = rows_of(5, 6, width), rows_of(6, 6, width)
    weight = np.random.default_rng(2).uniform(0.5, 2, width).astype(np.float32)
    bench = Bench(isa)
    rows, plain, added = bench.load(x), bench.tape.rows(width), bench.load(before)
    bench.tape.rms_norm(rows, weight, 1e-5, out=plain)
    bench.tape.rms_norm(rows, weight, 1e-5, out=added, accumulate=True)
    want = rms_norm(x.astype(np.float64), weight.astype(np.float64), 1e-5)
    close(bench.run(plain, 6), want, np.abs(want) + 1e-3)
    close(bench.tape.read(added, 6), before + want, np.abs(want) + np.abs(before))


@isas
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary", [32, 16])
def test_rope_and_head_norms_are_their_twins(isa, interleaved, rotary):
    random = np.random.default_rng(8)
    q, k, v = (rows_of(seed, 40, width) for seed, width in ((1, 128), (2, 64), (3, 64)))
    q_norm, k_norm = (random.uniform(0.5, 2, 32).astype(np.float32) for _ in range(2))
    frequencies = (10_000.0 ** -(np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    bench = Bench(isa, store=(1, 2, 32))
    table = bench.tape.rope(frequencies, 1.25)
    loaded = [bench.load(part) for part in (q, k, v)]
    norms = q_norm.tolist(), k_norm.tolist()
    bench.tape.program.rotate_and_store(*loaded, 4, 2, 32, 0, table, interleaved, *norms, 1e-6)
    bench.run(loaded[0], 40)
    for rows, x, norm in ((loaded[0], q, q_norm), (loaded[1], k, k_norm)):
        heads = rms_norm(x.astype(np.float64).reshape(40, -1, 32), norm.astype(np.float64), 1e-6)
        want = rotate(heads, np.arange(40), frequencies, 1.25, interleaved).reshape(40, -1)
        assert np.abs(bench.tape.read(rows, 40) - want).max() < 2e-5


@isas
def test_keys_and_values_are_stored_rounded_once_and_never_infinite(isa):
    k, v = rows_of(2, 35, 64), rows_of(3, 35, 64)
    k[3, 5], v[34, 63] = 1e6, -1e6
    bench = Bench(isa, store=(1, 2, 32))
    q, keys, values = bench.load(k), bench.load(k), bench.load(v)
    bench.tape.program.rotate_and_store(q, keys, values, 2, 2, 32, 0, -1, False, [], [], 1e-6)
    batch, store = batch_of(35), native.KVStore(1, 2, 32, 2)
    bench.tape.run(batch, store, taps=(), vocab=64)
    for t in range(35):
        bits = np.array(store.token(0, t), np.uint16).view(np.float16).reshape(64, 2)
        want = np.stack([k[t], v[t]], 1).clip(-65504, 65504).astype(np.float16)
        np.testing.assert_array_equal(bits, want)


@isas
@pytest.mark.parametrize("width", [1, 16, 50, 8200])
def test_softcap_is_its_twin(isa, width):
    x = rows_of(9, 3, width) * 10
    bench = Bench(isa)
    rows = bench.load(x)
    bench.tape.softcap(rows, 30.0)
    assert np.abs(bench.run(rows, 3) - 30 * np.tanh(x.astype(np.float64) / 30)).max() < 1e-5


@isas
@pytest.mark.parametrize(
    "kind", [GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q4_1, GgmlType.Q8_0, GgmlType.Q4_K]
)
def test_embed_gather_and_tap_copy_the_right_rows(isa, kind):
    values = rows_of(4, 50, 256)
    _, shape, raw = quantised(values, kind)
    table = native.EmbedTable(np.frombuffer(raw, np.uint8), int(kind), *shape)
    bench = Bench(isa)
    rows, last = bench.tape.rows(256), bench.tape.rows(256, wanted=True)
    bench.tape.embed(table, scale=2.0, out=rows)
    bench.tape.tap(rows, 7)
    bench.tape.rms_norm(rows, np.ones(256, np.float32), 1e-5, out=rows)
    bench.tape.gather(rows, out=last)
    want = native.dequantize(np.frombuffer(raw, np.uint8), int(kind), *shape) * np.float32(2)
    wanted = [0, 31, 32, 47, 2, 2]
    got = bench.run(last, 48, wanted, taps=(7,))
    same(bench.tape.read_taps((7,), 48)[7], want[:48], "tap")
    same(got, bench.tape.read(rows, 48)[wanted], "gather")
    assert np.abs(got - rms_norm(want[wanted], 1.0, 1e-5)).max() < 1e-5


@isas
def test_a_quantised_input_is_renewed_when_its_rows_change(isa):
    """The int8 twin of a buffer must follow what an op between two products wrote to it."""
    weight, w = pack("W8", 64, 64)
    x = rows_of(1, 9, 64)
    bench = Bench(isa)
    rows, result = bench.load(x), bench.tape.rows(64)
    bench.tape.program.linear(rows, [(weight, [], rows)], True)
    bench.tape.program.linear(rows, [(weight, [], result)])
    y = bench.run(rows, 9)
    want = x + rounded(x).astype(np.float64) @ w.T
    close(y, want, 1 + np.abs(x) @ np.abs(w.T))
    close(bench.tape.read(result, 9), rounded(y) @ w.T, 1 + np.abs(y) @ np.abs(w.T))


def test_a_twin_that_rounds_every_input_would_be_noticed():
    """The tolerance bites: leaving the outliers in int8, or the minimum out, is far outside."""
    weight, w = pack("W4", 16, 96)
    x = rows_of(1, 9, 96)
    bench = Bench(ISAS[0])
    rows, result = bench.load(x), bench.tape.rows(16)
    bench.tape.program.linear(rows, [(weight, [], result)])
    got, size = bench.run(result, 9), 1 + np.abs(x) @ np.abs(w.T)
    step = np.abs(x.reshape(9, -1, 32)).max(-1, keepdims=True) / 127
    careless = (np.rint(x.reshape(9, -1, 32) / np.maximum(step, 1e-9)) * step).reshape(9, 96)
    for wrong in (careless @ w.T, rounded(x) @ (w + 1e-3).T):
        with pytest.raises(AssertionError, match="apart by"):
            close(got, wrong, size)
