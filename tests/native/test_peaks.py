"""What a forward says of its logits' blocks is what is in them, and a draw that believes it is the draw that looks."""

import numpy as np
import pytest
from tiny import ISAS, pool_of, tiny
from views import draw_at, view_at

from paceline.core.batch import Logits
from paceline.core.request import SamplingParams
from paceline.core.tree import TokenTree
from paceline.errors import NumericalError
from paceline.kernels.native import native
from paceline.kernels.ops import Linear
from paceline.kernels.tape import Tape
from paceline.kernels.tensor import GgmlType
from paceline.model.cache import PagedCache
from paceline.model.flatten import flatten
from paceline.sample.coupled import draw

BLOCK, WIDTH = 64, 32
F32 = int(GgmlType.F32)


def head(weight, threads, isa=""):
    """Return a function from tokens to what one linear layer over their embeddings makes of them."""
    vocab, pool = len(weight), pool_of(threads)
    data = np.ascontiguousarray(weight).view(np.uint8).reshape(-1)
    tape = Tape(pool, isa)
    x, last = tape.rows(WIDTH), tape.rows(WIDTH, wanted=True)
    logits = tape.rows(vocab, wanted=True)
    table = np.random.default_rng(7).standard_normal((vocab, WIDTH), np.float32)
    tape.embed(native.EmbedTable(table.view(np.uint8).reshape(-1), F32, vocab, WIDTH), scale=1.0, out=x)
    tape.gather(x, out=last)
    tape.keep_peaks(logits)
    tape.linear(last, [(Linear(native.pack(data, F32, vocab, WIDTH, "auto", pool)), logits)])
    cache = PagedCache(native.KVStore(1, 1, 32, 16))

    def forward(tokens):
        tree = TokenTree.chain(np.asarray(tokens, np.int32))
        tape.run(flatten(cache, [cache.open()], [tree], [len(tree)]), cache.store, taps=(), vocab=vocab)
        return Logits.of(tape.read(logits, len(tree)), tape.read_peaks(logits, len(tree)))

    return forward


def keys_of(rows):
    """Return the order of floats as whole numbers, NaN above all."""
    bits = (rows + np.float32(0)).view(np.int32)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return np.where(np.isnan(rows), 2**31 - 1, keys).astype(np.int64)


def peaks_of(rows):
    keys = keys_of(np.asarray(rows))
    padded = np.full((len(keys), -(-keys.shape[1] // BLOCK) * BLOCK), -(2**31))
    padded[:, : keys.shape[1]] = keys
    return padded.reshape(len(keys), -1, BLOCK).max(2)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 300, 1000, 5000, 20_016])
def test_a_forward_knows_the_largest_of_each_block(vocab, threads, isa):
    weight = np.random.default_rng(vocab).standard_normal((vocab, WIDTH), np.float32)
    forward = head(weight, threads, isa)
    for count in (1, 7, 20, 3):
        logits = forward(np.random.default_rng(count).integers(0, vocab, count))
        assert np.array_equal(logits.peaks, peaks_of(logits)), count


@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(temperature=0.8), SamplingParams(temperature=1.5, top_p=0.9, min_p=0.001)],
    ids=["greedy", "T=0.8", "filters"],
)
def test_a_draw_that_knows_them_is_the_draw_that_looks(params):
    weight = np.random.default_rng(3).standard_normal((5000, WIDTH), np.float32) * 0.7
    logits = head(weight, 2)(np.arange(40))
    for position, row in enumerate(np.array(logits)):
        known = draw(logits[position], view_at(position, params), peaks=logits.peaks[position])
        assert known == draw_at(row, params, position)


def test_the_best_few_are_found_with_them_as_without():
    logits = head(np.random.default_rng(3).standard_normal((5003, WIDTH), np.float32), 2)(np.arange(9))
    rows = np.array([6, 0, 8], np.int32)
    assert np.array_equal(native.top(logits, rows, 8, logits.peaks), native.top(logits, rows, 8))
    with pytest.raises(ValueError, match="one peak for each block"):
        native.top(logits, rows, 8, logits.peaks[:, 1:].copy())


def test_an_adjusted_row_is_looked_at_again():
    logits = head(np.random.default_rng(5).standard_normal((300, WIDTH), np.float32), 1)([4])
    best = int(logits[0].argmax())
    params = SamplingParams(logit_bias={best: -100.0})
    assert draw(logits[0], view_at(1, params), peaks=logits.peaks[0]) == int(np.argsort(-logits[0])[1])


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_peaks_tell_of_rows_that_are_no_distribution(bad):
    weight = np.random.default_rng(5).standard_normal((300, WIDTH), np.float32)
    weight[200] = bad
    logits = head(weight, 1)([4])
    with pytest.raises(NumericalError, match="must be"):
        draw(logits[0], view_at(1, SamplingParams()), peaks=logits.peaks[0])


def test_peaks_of_another_row_are_refused():
    row = np.zeros(300, np.float32)
    with pytest.raises(ValueError, match="another row"):
        native.draw(row, 0.0, 0, 1.0, 1.0, 0.0, 0, 0, np.full(5, 7, np.int32))
    with pytest.raises(ValueError, match="one peak for each block"):
        native.draw(row, 0.0, 0, 1.0, 1.0, 0.0, 0, 0, np.full(4, 7, np.int32))


def test_parts_keep_their_peaks_and_other_views_have_none():
    logits = head(np.random.default_rng(5).standard_normal((300, WIDTH), np.float32), 1)([4, 5, 6, 7])
    part = logits.part(slice(1, 3))
    assert np.array_equal(part, logits[1:3])
    assert np.array_equal(part.peaks, logits.peaks[1:3])
    assert logits[1:3].peaks is None
    assert logits.copy().peaks is None


def test_models_keep_peaks_only_of_logits_drawn_from():
    model = tiny("qwen2", GgmlType.Q8_0)
    cache = model.new_cache(32)
    batch = flatten(cache, [cache.open()], [TokenTree.chain(np.arange(5, dtype=np.int32))], [5])
    logits = model.forward(batch, cache).logits
    assert np.array_equal(logits.peaks, peaks_of(logits))
    few = model.with_outputs(np.arange(100, dtype=np.int32))
    assert few.forward(batch, cache).logits.peaks is None
