"""A batch that makes no sense is a ValueError before anything is read by it; the model works on afterwards."""

from dataclasses import replace

import numpy as np
import pytest
from tiny import VOCAB, alone, pool_of, same, text, tiny

from paceline.core.tree import TokenTree
from paceline.kernels.native import native
from paceline.kernels.tensor import GgmlType
from paceline.model.flatten import flatten

BIG = 2**31 - 1


def ints(*values):
    return np.array(values, np.int32)


@pytest.fixture
def good():
    """A model, its cache, and a batch of a chain of 3 behind 40 tokens and a tree of 4."""
    model = tiny("llama", GgmlType.Q4_0)
    cache = model.new_cache(160)
    one, two = cache.open(), cache.open()
    tokens = text(1, 40)
    model.forward(flatten(cache, [one], [TokenTree.chain(tokens)], [1]), cache)
    cache.commit(one, range(40), tokens)
    trees = [TokenTree.chain([1, 2, 3]), TokenTree(ints(4, 5, 6, 7), ints(-1, 0, 0, 1))]
    batch = flatten(cache, [one, two], trees, [3, 4])
    yield model, cache, batch
    want = alone(model, [*tokens, 1, 2, 3])[-3:]
    same(model.forward(batch, cache).logits[:3], want, "the good batch after the bad one")


def with_item(values, index, value):
    changed = values.copy()
    changed[index] = value
    return changed


BAD = {
    "negative token": lambda b: {"tokens": with_item(b.tokens, 1, -1)},
    "least token": lambda b: {"tokens": with_item(b.tokens, 6, -BIG - 1)},
    "token past the vocabulary": lambda b: {"tokens": with_item(b.tokens, 1, VOCAB)},
    "root with a parent": lambda b: {"parents": with_item(b.parents, 0, 0)},
    "node without a parent": lambda b: {"parents": with_item(b.parents, 1, -1)},
    "own parent": lambda b: {"parents": with_item(b.parents, 1, 1)},
    "parent after its child": lambda b: {"parents": with_item(b.parents, 4, 2)},
    "huge parent": lambda b: {"parents": with_item(b.parents, 4, BIG)},
    "negative parent": lambda b: {"parents": with_item(b.parents, 4, -5)},
    "negative position": lambda b: {"positions": with_item(b.positions, 0, -1)},
    "position off by one": lambda b: {"positions": b.positions + np.int32(1)},
    "position of another depth": lambda b: {"positions": with_item(b.positions, 5, 2)},
    "huge position": lambda b: {"positions": with_item(b.positions, 6, BIG)},
    "page past the cache": lambda b: {"tables": with_item(b.tables, (0, 1), 5)},
    "huge page": lambda b: {"tables": with_item(b.tables, (0, 0), BIG)},
    "negative page": lambda b: {"tables": with_item(b.tables, (1, 0), -1)},
    "no pages": lambda b: {"tables": b.tables[:, :0].copy()},
    "too few pages": lambda b: {"tables": b.tables[:, :1].copy()},
    "a table too few": lambda b: {"tables": b.tables[:1].copy()},
    "negative length": lambda b: {"lengths": with_item(b.lengths, 1, -1)},
    "length past the pages": lambda b: {"lengths": with_item(b.lengths, 0, 1000)},
    "huge length": lambda b: {"lengths": with_item(b.lengths, 0, BIG)},
    "length of other positions": lambda b: {"lengths": with_item(b.lengths, 0, 39)},
    "wanted past the rows": lambda b: {"wanted": with_item(b.wanted, 0, 7)},
    "huge wanted": lambda b: {"wanted": with_item(b.wanted, 0, BIG)},
    "negative wanted": lambda b: {"wanted": with_item(b.wanted, 0, -1)},
    "starts not from zero": lambda b: {"starts": ints(1, 3, 7)},
    "starts short of the rows": lambda b: {"starts": ints(0, 3, 6)},
    "starts past the rows": lambda b: {"starts": ints(0, 3, BIG)},
    "starts that overshoot and come back": lambda b: {"starts": ints(0, 20, 7)},
    "starts far outside that come back": lambda b: {"starts": ints(0, BIG, 7), "lengths": ints(0, 0)},
    "starts below zero": lambda b: {"starts": ints(0, -BIG, 7)},
    "a sequence without rows": lambda b: {"starts": ints(0, 7, 7)},
    "starts missing": lambda b: {"starts": ints(0, 7)},
    "positions missing": lambda b: {"positions": b.positions[:3].copy()},
    "parents missing": lambda b: {"parents": b.parents[:3].copy()},
    "lengths missing": lambda b: {"lengths": b.lengths[:1].copy()},
    "no rows": lambda b: {"tokens": ints(), "positions": ints(), "parents": ints(), "starts": ints(0, 0, 0)},
    "no sequences": lambda b: {
        "tokens": ints(), "positions": ints(), "parents": ints(), "starts": ints(0), "wanted": ints(),
        "tables": np.zeros((0, 1), np.int32), "lengths": ints(),
    },
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_batch_is_refused(good, what):
    model, cache, batch = good
    with pytest.raises(ValueError, match=r"\w+"):
        model.forward(replace(batch, **BAD[what](batch)), cache)


@pytest.mark.parametrize("name", ["tokens", "positions", "parents", "starts", "wanted", "tables", "lengths"])
def test_arrays_of_other_shapes_are_refused(good, name):
    model, cache, batch = good
    values = getattr(batch, name)
    for wrong in (values[None], values[0], None, "1, 2"):
        with pytest.raises((TypeError, ValueError)):
            model.forward(replace(batch, **{name: wrong}), cache)


def test_rows_claimed_by_starts_but_absent_are_not_read(good):
    """The arrays lie at the front of longer ones that would pass every check but that of `starts`."""
    model, cache, _ = good
    long = flatten(cache, [cache.open()], [TokenTree.chain(text(2, 64))], [1])
    short = replace(
        long, tokens=long.tokens[:7], positions=long.positions[:7], parents=long.parents[:7], wanted=ints(0),
        starts=ints(0, 64, 7), lengths=ints(0, 0), tables=np.repeat(long.tables, 2, 0),
    )  # fmt: skip
    with pytest.raises(ValueError, match="starts"):
        model.forward(short, cache)


def test_no_wanted_rows_and_repeated_wanted_rows_are_fine(good):
    model, cache, batch = good
    assert model.forward(replace(batch, wanted=ints()), cache).logits.shape == (0, VOCAB)
    logits = model.forward(replace(batch, wanted=ints(*[2] * 50)), cache).logits
    same(logits, np.repeat(logits[:1], 50, 0))


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "wide", "smollm3"])
def test_a_cache_of_another_model_is_refused(name):
    other = tiny("llama").new_cache(64)
    batch = flatten(other, [other.open()], [TokenTree.chain([1])], [1])
    with pytest.raises(ValueError, match="cache"):
        tiny(name).forward(batch, other)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.copy_page(0, 2),
        lambda s: s.copy_page(-1, 0),
        lambda s: s.copy_tokens(np.array([0]), np.array([64])),
        lambda s: s.copy_tokens(np.array([-1]), np.array([0])),
        lambda s: s.copy_tokens(np.array([0, 1]), np.array([0])),
        lambda s: s.token(1, 0),
        lambda s: s.token(0, 64),
        lambda s: s.token(0, -1),
    ],
)
def test_a_store_refuses_slots_it_does_not_have(call):
    with pytest.raises(ValueError, match=r"outside|differ"):
        call(native.KVStore(1, 1, 32, 2))


def test_a_tape_refuses_ops_that_do_not_fit():
    program = native.Program(pool_of())
    x, narrow, wanted = program.buffer(64), program.buffer(32), program.buffer(64, True)
    weight = native.pack(np.zeros(64 * 64 * 4, np.uint8), 0, 64, 64, "q8", pool_of())
    heads = [2, 1, 32, 0]
    for call in (
        lambda: program.buffer(0),
        lambda: program.linear(x, []),
        lambda: program.linear(narrow, [(weight, [], x)]),
        lambda: program.linear(x, [(weight, [], narrow)]),
        lambda: program.linear(x, [(weight, [1.0], x)]),
        lambda: program.linear(x, [(weight, [], wanted)]),
        lambda: program.gated(narrow, weight, weight, False, x),
        lambda: program.rms_norm(x, [1.0], 1e-5, x),
        lambda: program.rms_norm(x, [1.0] * 64, 1e-5, wanted),
        lambda: program.rotate_and_store(x, narrow, narrow, 2, 1, 32, 0, 3, False, [], [], 1e-5),
        lambda: program.rotate_and_store(x, x, narrow, *heads, -1, False, [], [], 1e-5),
        lambda: program.attention(narrow, x, 2, 1, 32, 0, 0, 1.0, 0.0),
        lambda: program.attention(x, narrow, 2, 1, 32, 0, 0, 1.0, 0.0),
        lambda: program.attention(x, x, 4, 1, 16, 0, 0, 1.0, 0.0),
        lambda: native.Program(pool_of(), "mmx"),
    ):
        with pytest.raises(ValueError, match=r"\w+"):
            call()
