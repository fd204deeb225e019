"""Attention over pages and trees is a float64 softmax over the right keys, on every instruction set."""

import itertools

import numpy as np
import pytest
from tiny import ISAS, pool_of, random_tree, root_path, same

from paceline.core.tree import TokenTree
from paceline.kernels.native import native
from paceline.kernels.ops import PAGE
from paceline.kernels.tape import Tape
from paceline.model.cache import PagedCache
from paceline.model.flatten import flatten

isas = pytest.mark.parametrize("isa", ISAS)
TOKENS = 400


class Heads:
    """One attention whose token t has the t-th query, key and value of a table."""

    def __init__(self, isa, *, heads=2, kv_heads=1, dim=32, window=0, softcap=0.0, threads=1, seed=0):
        random = np.random.default_rng(seed)
        self.dim, self.kv_heads, self.group = dim, kv_heads, heads // kv_heads
        self.window, self.softcap, self.scale = window, softcap, dim**-0.5
        self.q = random.standard_normal((TOKENS, heads * dim)).astype(np.float32) * 2
        self.k, self.v = (random.standard_normal((TOKENS, kv_heads * dim)).astype(np.float32) for _ in range(2))
        self.tape = Tape(pool_of(threads), isa)
        q, k, v = (self._load(part) for part in (self.q, self.k, self.v))
        self.out = self.tape.rows(heads * dim)
        self.tape.program.rotate_and_store(q, k, v, heads, kv_heads, dim, 0, -1, False, [], [], 1e-6)
        self.tape.program.attention(q, self.out, heads, kv_heads, dim, 0, window, self.scale, softcap)

    def _load(self, values):
        rows = self.tape.rows(values.shape[1])
        table = native.EmbedTable(values.view(np.uint8).reshape(-1), 0, *values.shape)
        self.tape.embed(table, scale=1.0, out=rows)
        return rows

    def new_cache(self, tokens):
        return PagedCache(native.KVStore(1, self.kv_heads, self.dim, -(-tokens // 32) + 2))

    def forward(self, cache, sequences, trees):
        batch = flatten(cache, sequences, trees, [0] * len(trees))
        self.tape.run(batch, cache.store, taps=(), vocab=TOKENS)
        return self.tape.read(self.out, len(batch.tokens)).copy()

    def feed(self, cache, sequence, tokens):
        out = self.forward(cache, [sequence], [TokenTree.chain(tokens)])
        cache.commit(sequence, range(len(tokens)), tokens)
        return out

    def twin(self, tokens):
        """What the last of `tokens` attends to, in float64 with keys and values as the cache rounds them."""
        shown = tokens[-self.window :] if self.window else tokens
        keys, values = (
            part[shown].astype(np.float16).astype(np.float64).reshape(len(shown), self.kv_heads, self.dim)
            for part in (self.k, self.v)
        )
        q = self.q[tokens[-1]].astype(np.float64).reshape(self.kv_heads, self.group, self.dim)
        scores = np.einsum("hgd,khd->hgk", q, keys) * self.scale
        if self.softcap:
            scores = self.softcap * np.tanh(scores / self.softcap)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hgk,khd->hgd", weights / weights.sum(-1, keepdims=True), values).reshape(-1)


def tokens_of(seed, count):
    return [int(token) for token in np.random.default_rng(seed).integers(0, TOKENS, count)]


def check_chain(heads, length, chunk):
    cache, tokens = heads.new_cache(length), tokens_of(length, length)
    sequence = cache.open()
    for start in range(0, length, chunk):
        out = heads.feed(cache, sequence, tokens[start : start + chunk])
        for i in {0, len(out) // 2, len(out) - 1}:
            apart = np.abs(out[i] - heads.twin(tokens[: start + i + 1])).max()
            assert apart < 1e-5, f"token {start + i} of {length} in chunks of {chunk} is apart by {apart:.1e}"


def check_tree(heads, length, nodes, seed):
    """Every node sees the committed tokens, its ancestors and itself: nothing of its siblings."""
    random = np.random.default_rng(seed)
    cache, tokens = heads.new_cache(length + nodes), tokens_of(seed, length)
    sequence = cache.open()
    if tokens:
        heads.feed(cache, sequence, tokens)
    tree = random_tree(random, nodes, int(random.integers(TOKENS)), TOKENS)
    out = heads.forward(cache, [sequence], [tree])
    for node in range(nodes):
        branch = [int(tree.tokens[i]) for i in root_path(tree, node)]
        apart = np.abs(out[node] - heads.twin(tokens + branch)).max()
        assert apart < 1e-5, f"node {node} of {nodes} behind {length} tokens is apart by {apart:.1e}"


@isas
@pytest.mark.parametrize("window", [0, 1, 5, 16, 33])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
def test_chains_of_every_length_around_page_borders(isa, window, softcap):
    heads = Heads(isa, heads=3, window=window, softcap=softcap)
    for length, chunk in itertools.product((1, 31, 32, 33, 65, 130), (1, 32, 200)):
        if chunk > 1 or length < 70:
            check_chain(heads, length, chunk)


@isas
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_groups_of_heads(isa, group, kv_heads):
    heads = Heads(isa, heads=group * kv_heads, kv_heads=kv_heads, seed=group)
    check_chain(heads, 70, 45)
    check_tree(heads, 40, 9, seed=group)


@isas
@pytest.mark.parametrize("dim", [32, 64, 96, 128, 256])
def test_head_sizes(isa, dim):
    heads = Heads(isa, heads=4, kv_heads=2, dim=dim, seed=dim)
    check_chain(heads, 50, 21)
    check_tree(heads, 33, 7, seed=dim)


@isas
@pytest.mark.parametrize("window", [0, 1, 5, 16, 33])
def test_random_trees(isa, window):
    heads = Heads(isa, heads=4, kv_heads=2, window=window, seed=3)
    for seed, length in enumerate((0, 1, 20, 31, 32, 33, 63, 100)):
        check_tree(heads, length, 2 + seed * 5, seed)


@isas
def test_scores_far_apart_stay_finite(isa):
    heads = Heads(isa, seed=5)
    heads.scale = 40.0
    heads.tape.program.attention(0, heads.out, 2, 1, 32, 0, 0, 40.0, 0.0)
    cache, tokens = heads.new_cache(64), tokens_of(4, 40)
    out = heads.feed(cache, cache.open(), tokens)
    assert np.isfinite(out).all()
    assert np.abs(out[-1] - heads.twin(tokens)).max() < 1e-3


@isas
def test_a_row_is_the_same_bits_in_every_company(isa):
    """Chunks, batch mates, trees and threads move which queries share a block of keys, and no bit of the result."""
    for group, window in ((1, 0), (3, 0), (4, 16), (7, 33)):
        settings = {"heads": 2 * group, "kv_heads": 2, "window": window}
        heads, threaded = Heads(isa, **settings), Heads(isa, **settings, threads=3)
        tokens = tokens_of(group, 90)
        cache = heads.new_cache(600)
        lone = cache.open()
        want = np.concatenate([heads.feed(cache, lone, [token]) for token in tokens])
        for chunk in (2, 7, 16, 17, 33, 90):
            other = cache.open()
            got = [heads.feed(cache, other, tokens[start : start + chunk]) for start in range(0, 90, chunk)]
            same(np.concatenate(got), want, f"chunks of {chunk}, groups of {group}, window {window}")
            cache.release(other)
        mates = [cache.open() for _ in range(3)]
        trees = [TokenTree.chain(tokens[:n]) for n in (90, 31, 64)]
        got = heads.forward(cache, mates, trees)
        same(got, np.concatenate([want, want[:31], want[:64]]), "in company")
        branchy = TokenTree(
            np.array([*tokens[:40], 5, 6, *tokens[40:90]], np.int32),
            np.array([*range(-1, 39), 38, 40, 39, *range(42, 91)], np.int32),
        )
        got = heads.forward(cache, [cache.open()], [branchy])
        same(np.delete(got, [40, 41], 0), want, "beside a refused branch")
        own = threaded.new_cache(128)
        same(threaded.feed(own, own.open(), tokens), want, "three threads")


def test_python_and_kernels_agree_on_a_pages_length():
    assert native.PAGE == PAGE


def test_checks_notice_off_by_one_windows_and_visible_siblings(monkeypatch):
    heads = Heads(ISAS[0], window=16)
    heads.window = 17
    with pytest.raises(AssertionError, match="apart by"):
        check_chain(heads, 40, 40)
    with pytest.raises(AssertionError, match="apart by"):
        check_tree(heads, 40, 9, seed=1)
    heads = Heads(ISAS[0])
    monkeypatch.setattr("test_attention.root_path", lambda tree, node: range(node + 1))
    with pytest.raises(AssertionError, match="apart by"):
        check_tree(heads, 40, 9, seed=1)
