"""The native suffix automaton counts what looking everywhere counts, and grows the tree its plain twin grows."""

from time import perf_counter

import numpy as np
import pytest

from paceline.draft.lookup.suffix_plain import CONTEXT, KINDS, PlainAutomaton, kind_of
from paceline.kernels.native import native

MOST_BYTES = 280  # a token's, whatever the text


def text_of(chance, vocab, length):
    """Random, long pieces of one text again and again, or a few tokens over and over."""
    kind = chance.random()
    if kind < 0.2:
        base = chance.integers(vocab, size=50)
        starts = [int(start) for start in chance.integers(25, size=length // 10 + 1)]
        return np.concatenate([base[start : start + int(chance.integers(20, 50))] for start in starts])[:length].astype(
            np.int32
        )
    if kind < 0.35:  # one token with many successors
        text = chance.integers(1, 30, size=length).astype(np.int32)
        text[::2] = 0
        return text
    if kind < 0.6:
        return chance.integers(vocab, size=length).astype(np.int32)
    return np.tile(chance.integers(vocab, size=int(chance.integers(1, 6))), length + 1)[:length].astype(np.int32)


def both_of(chance, vocab, *, texts=1, longest=120):
    """An automaton and its twin that have read the same."""
    one, other = native.Automaton(), PlainAutomaton()
    for i in range(texts):
        text = text_of(chance, vocab, int(chance.integers(longest)))
        if texts > 1:
            text = np.append(text, np.int32(-1))
        for part in np.split(text, sorted(chance.integers(len(text) + 1, size=i))):
            one.extend(part)
            other.extend(part)
    return one, other


@pytest.mark.parametrize("seed", range(40))
def test_native_and_plain_are_equal(seed):
    chance = np.random.default_rng(seed)
    vocab = int(chance.integers(1, 7) if seed % 3 else chance.integers(20, 60))
    own, plain = both_of(chance, vocab)
    shared = [both_of(chance, vocab, texts=3, longest=40) for _ in range(int(chance.integers(3)))]
    for automaton, twin in [(own, plain), *shared]:
        for _ in range(12):
            if not len(twin):
                break
            start = int(chance.integers(len(twin)))
            some = np.array(twin.tokens[start : start + int(chance.integers(1, CONTEXT + 2))], np.int32)
            assert automaton.count(some) == twin.count(some), some
    rates = chance.random(KINDS)
    for chain in (False, True):
        nodes, depth = int(chance.integers(20)), int(chance.integers(8))
        got = own.grow([a for a, _ in shared], rates, nodes=nodes, depth=depth, chain=chain)
        wanted = plain.grow([p for _, p in shared], rates, nodes=nodes, depth=depth, chain=chain)
        for ours, twins in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, twins)


def test_counts_stay_right_as_a_text_grows():
    """After every token, every context of the text's end: clones are made all the time with three tokens."""
    chance = np.random.default_rng(5)
    one, other = native.Automaton(), PlainAutomaton()
    for token in chance.integers(3, size=150):
        one.extend(np.array([token], np.int32))
        other.extend([token])
        for n in range(1, min(len(other), 9)):
            assert one.count(np.array(other.tokens[-n:], np.int32)) == other.count(other.tokens[-n:])


@pytest.mark.parametrize("seed", range(10))
def test_following_a_text_is_reading_it_anew(seed):
    """Grown in any steps, cut back, or replaced by another."""
    chance = np.random.default_rng(seed)
    grown, rates, text = native.Automaton(), chance.random(KINDS), text_of(chance, 5, 90)
    for _ in range(12):
        what = chance.random()
        if what < 0.7:
            text = np.append(text, text_of(chance, 5, int(chance.integers(6))))
        elif what < 0.85:
            text = text[: int(chance.integers(len(text) + 1))]
        else:
            text = text_of(chance, 5, int(chance.integers(120)))
        text = text.astype(np.int32)
        grown.follow(text)
        fresh = native.Automaton()
        fresh.follow(text)
        assert len(grown) == len(fresh) == len(text)
        for ours, wanted in zip(
            grown.grow([], rates, nodes=9, depth=4, chain=False),
            fresh.grow([], rates, nodes=9, depth=4, chain=False),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, wanted)


def test_the_tree_is_best_first_and_within_bounds():
    chance = np.random.default_rng(1)
    automaton = native.Automaton()
    automaton.follow(text_of(np.random.default_rng(3), 4, 400))
    for nodes, depth in ((0, 5), (5, 0), (7, 3), (64, 64)):
        (tokens, parents, kinds), (rates, values) = automaton.grow(
            [], chance.random(KINDS), nodes=nodes, depth=depth, chain=False
        )
        assert len(tokens) <= nodes + 1
        assert (parents < np.arange(len(tokens))).all()
        assert (np.diff(values) <= 0).all()
        np.testing.assert_allclose(values[1:], values[parents[1:]] * rates[1:], rtol=1e-6)
        assert len({(p, t) for p, t in zip(parents.tolist(), tokens.tolist(), strict=True)}) == len(tokens)
        assert (kinds[1:] >= 0).all()
        assert (kinds < KINDS).all()


def test_a_kind_is_length_and_share():
    assert kind_of(1, 1, 1, is_shared=False) == 0
    assert kind_of(40, 20, 20, is_shared=True) == KINDS - 1
    kinds = {kind_of(n, c, 20, is_shared=s) for n in (1, 2, 3, 4, 5, 7, 10, 16) for c in (1, 2, 5, 10, 15, 19)
             for s in (False, True)}  # fmt: skip
    assert len(kinds) == 2 * 8 * 6


@pytest.mark.parametrize("text", ["one token", "two tokens", "all different", "copies"])
def test_memory_and_time_are_bounded(text):
    """50 000 tokens in about 20 ms, a round in about 10 us; ten times that is allowed here."""
    chance = np.random.default_rng(0)
    tokens = {
        "one token": lambda: np.zeros(50_400),
        "two tokens": lambda: chance.integers(2, size=50_400),
        "all different": lambda: np.arange(50_400),
        "copies": lambda: np.tile(chance.integers(1000, size=5040), 10),
    }[text]().astype(np.int32)
    automaton, rates, seconds = native.Automaton(), chance.random(KINDS), []
    started = perf_counter()
    automaton.follow(tokens[:50_000])
    assert perf_counter() - started < 0.3
    assert automaton.nbytes <= MOST_BYTES * 50_000
    for end in range(50_000, 50_400, 4):
        started = perf_counter()
        automaton.follow(tokens[:end])
        automaton.grow([automaton], rates, nodes=8, depth=8, chain=False)
        seconds.append(perf_counter() - started)
    assert np.median(seconds) < 500e-6, np.median(seconds)


def test_wrong_calls_are_refused():
    automaton = native.Automaton()
    with pytest.raises(ValueError, match="one for each kind"):
        automaton.grow([], np.zeros(3), nodes=1, depth=1, chain=False)
    with pytest.raises(ValueError, match="more tokens"):
        automaton.count(np.zeros(CONTEXT + 2, np.int32))
    (tokens, _, _), _ = automaton.grow([], np.zeros(KINDS), nodes=4, depth=4, chain=False)
    assert tokens.tolist() == [-1], "nothing was read"


def test_the_most_frequent_successor_wins_latest_of_equals():
    often = [0, 1, 0, 2, 0, 1, 0, 2]
    text = np.array([*often, *(t for x in range(10, 30) for t in (0, x)), 0], np.int32)
    automaton = native.Automaton()
    automaton.follow(text)
    (tokens, _, _), _ = automaton.grow([], np.ones(KINDS), nodes=40, depth=1, chain=False)
    assert tokens[1:].tolist() == [*range(29, 21, -1), 2]
