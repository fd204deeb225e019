"""Row independence: a token's logits are the same bits on every path, on every instruction set of this machine.

What every path must equal is `alone`: the tokens forwarded one by one in a cache of their own.
"""

from dataclasses import replace

import numpy as np
import pytest
from sweep import sweep
from tiny import ISAS, VOCAB, alone, feed, pool_of, random_tree, root_path, same, text, tiny

from paceline.core.tree import TokenTree
from paceline.formats.catalog import models_folder
from paceline.formats.files import open_model
from paceline.kernels.tensor import GgmlType
from paceline.model.cache import PagedCache
from paceline.model.flatten import flatten
from paceline.model.native import NativeModel

# Every weight kind once, by the file's type or as what it is packed, every family once; gemma3 and mistral have
# windows of 8 and 16.
MODELS = [
    ("llama", GgmlType.Q4_0),
    ("qwen2", GgmlType.Q8_0),
    ("qwen3", GgmlType.BF16),
    ("gemma3", GgmlType.Q4_1),
    ("mistral", GgmlType.F16),
    ("smollm3", GgmlType.F32),
    ("llama", GgmlType.Q5_0),
    ("wide", GgmlType.Q4_K),
    ("wide", GgmlType.Q6_K),
    ("qwen2", "q4s"),
]
FILE = models_folder() / "smollm2-135m.gguf"
REAL = pytest.param("smollm2", None, marks=pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not there"))
_REAL = {}


def model_of(name, kind, isa, threads=1):
    if isinstance(kind, str):
        return tiny(name, isa=isa, threads=threads, quant=kind)
    if kind is not None:
        return tiny(name, kind, isa, threads=threads)
    if (isa, threads) not in _REAL:
        file = open_model(FILE)
        _REAL[isa, threads] = NativeModel(file, pool_of(threads), isa=isa)
        file.close()
    return _REAL[isa, threads]


WIDE = [isa for isa in ISAS if isa != "portable"]  # this machine's own first

models = pytest.mark.parametrize(("name", "kind"), MODELS, ids=lambda value: getattr(value, "name", value))
isas = pytest.mark.parametrize("isa", ISAS)


@pytest.fixture
def model(name, kind, isa):
    return model_of(name, kind, isa)


_ALONE = {}


def known(model, length=75):
    """A text and `alone` of it, remembered: what comes later changes nothing."""
    if id(model) not in _ALONE:
        tokens = text(1, 75 if model.spec.vocab == VOCAB else 53, model.spec.vocab)
        _ALONE[id(model)] = tokens, alone(model, tokens)
    tokens, logits = _ALONE[id(model)]
    return tokens[:length], logits[:length]


# ---- the paths; each returns nothing and raises on the first differing bit


def check_counts(model, counts, prefix=35):
    tokens, want = known(model, prefix + max(counts))
    cache = model.new_cache(4096)
    before = cache.open()
    feed(model, cache, before, tokens[:prefix])
    for count in counts:
        sequence = cache.fork(before)
        got = feed(model, cache, sequence, tokens[prefix : prefix + count])
        same(got, want[prefix : prefix + count], f"{count} rows in one call")


def check_chunks(model, chunks, length=70):
    tokens, want = known(model, length)
    for chunk in chunks:
        cache = model.new_cache(length)
        same(feed(model, cache, cache.open(), tokens, chunk=chunk), want, f"chunks of {chunk}")


def check_mates(model, lengths):
    """Sequences of all ages extended in one call, by chains of all lengths."""
    random = np.random.default_rng(3)
    tokens, want = [known(model, n)[0] for n in lengths], known(model)[1]
    cache = model.new_cache(32 * sum(n // 32 + 1 for n in lengths))
    sequences, done = [cache.open() for _ in lengths], [0] * len(lengths)
    while any(a < len(b) for a, b in zip(done, tokens, strict=True)):
        live = [i for i in range(len(lengths)) if done[i] < len(tokens[i])]
        random.shuffle(live)
        parts = [tokens[i][done[i] : done[i] + int(random.integers(1, 24))] for i in live]
        counts = [len(part) for part in parts]
        batch = flatten(cache, [sequences[i] for i in live], [TokenTree.chain(part) for part in parts], counts)
        rows = np.split(model.forward(batch, cache).logits.copy(), np.cumsum(counts)[:-1])
        for i, part, got in zip(live, parts, rows, strict=True):
            same(got, want[done[i] : done[i] + len(part)], f"sequence {i} of {len(live)} from token {done[i]}")
            cache.commit(sequences[i], range(len(part)), part)
            done[i] += len(part)


def check_trees(model, prefixes, nodes, seed=0):
    """Several random trees in one call: every node against its branch as a chain; then a branch is kept."""
    random = np.random.default_rng(seed)
    vocab = model.spec.vocab
    cache = model.new_cache(32 * sum(n // 32 + 3 for n in prefixes))
    tokens = [text(1, n, vocab) for n in prefixes]
    sequences = [cache.open() for _ in prefixes]
    for sequence, committed in zip(sequences, tokens, strict=True):
        if committed:
            feed(model, cache, sequence, committed)
    for _ in range(2):  # the second round writes over the first one's refused branches
        trees = [random_tree(random, nodes, int(random.integers(vocab)), vocab) for _ in prefixes]
        batch = flatten(cache, sequences, trees, [nodes] * len(trees))
        logits = model.forward(batch, cache).logits.reshape(len(trees), nodes, -1).copy()
        for i, (sequence, tree) in enumerate(zip(sequences, trees, strict=True)):
            check_branches(model, tokens[i], tree, logits[i])
            path = root_path(tree, int(random.integers(nodes)))
            kept = [int(tree.tokens[node]) for node in path]
            cache.commit(sequence, path, kept)
            tokens[i] = [*tokens[i], *kept]
            cache.check()
    for sequence, committed in zip(sequences, tokens, strict=True):
        got = feed(model, cache, sequence, [7])
        lone = model.new_cache(512)
        same(got[-1:], feed(model, lone, lone.open(), [*committed, 7])[-1:], "after refused branches")


def check_branches(model, committed, tree, logits):
    """Compare each node with its branch forwarded as a chain behind freshly computed tokens."""
    lone = model.new_cache(4096)
    before = lone.open()
    if committed:
        feed(model, lone, before, committed)
    leaves = set(range(len(tree))) - set(tree.parents.tolist())
    for leaf in leaves:
        path = root_path(tree, leaf)
        sequence = lone.fork(before)
        got = feed(model, lone, sequence, [int(tree.tokens[node]) for node in path], chunk=leaf % 3 + 1)
        same(logits[path], got, f"branch {path} of {tree.parents.tolist()} behind {len(committed)}")
        lone.release(sequence)


def check_reuse(model, length=75):
    """Pages found by their content, forks, and pages others have filled before."""
    tokens, want = known(model, length)
    cache = model.new_cache(5 * 32)
    first = cache.open(tokens)
    feed(model, cache, first, tokens)
    hit = cache.open(tokens)
    assert cache.length(hit) == 64
    same(feed(model, cache, hit, tokens[64:]), want[64:], "behind pages found by content")
    cache.release(hit)
    fork = cache.fork(first)
    cache.crop(fork, 40)
    feed(model, cache, first, [3, 1, 4])
    same(feed(model, cache, fork, tokens[40:], chunk=9), want[40:], "after a fork cut back to 40")
    cache.release(fork)
    cache.release(first)
    other = cache.open()
    feed(model, cache, other, text(9, 150, model.spec.vocab))
    cache.release(other)
    again = cache.open(tokens)
    assert cache.length(again) == 0, "the pages were to be taken"
    same(feed(model, cache, again, tokens, chunk=50), want, "in pages another text has filled")
    cache.check()


# ---- the proofs


@isas
@models
def test_from_one_to_twenty_rows_in_one_call(model):
    check_counts(model, range(1, 21))


@isas
@models
def test_prefill_in_chunks_and_across_windows(model):
    check_chunks(model, (7, 32, 33, 64, 70))


@isas
@models
def test_batch_mates_of_other_lengths(model):
    check_mates(model, (70, 1, 33, 64, 20, 5))


@isas
@models
def test_every_tree_node_equals_its_branch_as_a_chain(model):
    check_trees(model, (0, 1, 31, 40), 13)


@isas
@models
def test_pages_found_forked_cut_and_used_before(model):
    check_reuse(model)


@isas
@models
@pytest.mark.parametrize("threads", sweep((2, 3), fast=(2,)))
def test_threads(name, kind, isa, threads):
    tokens, want = known(model_of(name, kind, isa), 24)
    threaded = model_of(name, kind, isa, threads)
    for chunk in (3, 24):
        cache = threaded.new_cache(128)
        same(feed(threaded, cache, cache.open(), tokens, chunk=chunk), want, f"{threads} threads, chunks of {chunk}")


@isas
@models
def test_taps_are_the_same_bits_too(model):
    tokens = text(1, 36)
    cache, layer = model.new_cache(256), model.spec.layers - 1
    one, many = cache.open(), cache.open()
    batch = flatten(cache, [one, many], [TokenTree.chain(tokens)] * 2, [1, 1])
    want = model.forward(batch, cache, taps=(0, layer)).taps
    together = {key: rows[36:].copy() for key, rows in want.items()}
    cache.release(many)
    many = cache.open()
    for i, token in enumerate(tokens):
        batch = flatten(cache, [many], [TokenTree.chain([token])], [1])
        taps = model.forward(batch, cache, taps=(0, layer)).taps
        assert taps.keys() == {0, layer}
        for key, rows in taps.items():
            same(rows, together[key][i : i + 1], f"token {i}, layer {key}")
        cache.commit(many, [0], [token])


@pytest.mark.parametrize(("name", "kind"), [REAL])
@pytest.mark.parametrize("isa", sweep(WIDE, fast=WIDE[:1]))
def test_a_real_model_keeps_all_of_it(model, isa):
    check_counts(model, (1, 2, 3, 8, 20), prefix=33)
    check_chunks(model, (17,), length=53)
    check_mates(model, (53, 20))
    check_trees(model, (31,), 7)
    tokens, want = known(model, 53)
    threaded = model_of("smollm2", None, isa, 2)
    cache = threaded.new_cache(64)
    same(feed(threaded, cache, cache.open(), tokens, chunk=19), want, "2 threads")


@pytest.mark.parametrize(("name", "kind"), [REAL])
@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa not in WIDE[:1]])
def test_a_real_model_on_the_other_kernels(model):
    tokens, cache = text(1, 5, model.spec.vocab), model.new_cache(32)
    same(feed(model, cache, cache.open(), tokens), alone(model, tokens), "5 rows in one call")


# ---- the proofs bite


def test_a_commit_that_keeps_the_first_rows_is_noticed(monkeypatch):
    model = model_of("llama", GgmlType.Q4_0, ISAS[0])
    commit = PagedCache.commit
    monkeypatch.setattr(PagedCache, "commit", lambda cache, i, nodes, ids: commit(cache, i, range(len(nodes)), ids))
    with pytest.raises(AssertionError, match="differ"):
        check_trees(model, (31, 40), 13)


def test_pages_found_by_their_last_tokens_only_are_noticed(monkeypatch):
    """Two texts that share their second page, not their first, must not share its keys and values."""
    model = model_of("llama", GgmlType.Q4_0, ISAS[0])

    def check():
        cache, shared = model.new_cache(256), text(5, 33)
        one, two = [*text(6, 32), *shared], [*text(7, 32), *shared]
        for tokens in (one, two, two):
            sequence = cache.open(tokens)
            rest = tokens[cache.length(sequence) :]
            same(feed(model, cache, sequence, rest), alone(model, tokens)[-len(rest) :], "a shared second page")
            cache.release(sequence)

    check()
    key = "paceline.model.cache._content_key"
    monkeypatch.setattr(key, lambda before, tokens: np.asarray(tokens, np.int32).tobytes())
    with pytest.raises(AssertionError, match="differ"):
        check()


def test_a_row_that_sees_its_sibling_is_noticed(monkeypatch):
    model = model_of("llama", GgmlType.Q4_0, ISAS[0])
    real = model.forward

    def wrong(batch, cache, **options):
        node = int(np.argmax(batch.parents != np.arange(-1, len(batch.parents) - 1)))
        tokens = batch.tokens.copy()
        tokens[node - 1] ^= 1
        return real(replace(batch, tokens=tokens), cache, **options)

    monkeypatch.setattr(model, "forward", wrong)
    with pytest.raises(AssertionError, match="differ"):
        check_trees(model, (33,), 9)


def test_one_bit_is_noticed():
    model = model_of("llama", GgmlType.Q4_0, ISAS[0])
    logits = alone(model, [1, 2, 3])
    moved = logits.copy()
    moved[2, VOCAB - 1] = np.nextafter(moved[2, VOCAB - 1], np.float32(9))
    with pytest.raises(AssertionError, match="1 of 900 numbers differ"):
        same(moved, logits)
