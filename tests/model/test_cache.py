"""The cache against a plain model of it: whatever happened, a sequence's slots hold what a fresh rebuild would."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from tiny import feed, random_tree, root_path, text, tiny

from paceline.core.tree import TokenTree
from paceline.errors import ContextOverflow
from paceline.kernels.tensor import GgmlType
from paceline.model import cache as home
from paceline.model.cache import PAGE, PagedCache
from paceline.model.flatten import flatten

PAGES = 9


class RecordingStore:
    """Keeps, for each slot, all the tokens its keys and values came from."""

    def __init__(self, pages):
        self.pages = pages
        self.slots = [None] * (pages * PAGE)

    def copy_tokens(self, source, to):
        for a, b in zip(source.tolist(), to.tolist(), strict=True):
            self.slots[b] = self.slots[a]

    def copy_page(self, source, to):
        self.slots[to * PAGE : (to + 1) * PAGE] = self.slots[source * PAGE : (source + 1) * PAGE]


def write(cache, store, batch):
    """Stand in for a forward: each row's slot gets the row's committed tokens, ancestors and own token."""
    for i, length in enumerate(batch.lengths.tolist()):
        start, stop = batch.starts[i : i + 2].tolist()
        tokens, parents = batch.tokens[start:stop].tolist(), batch.parents[start:stop].tolist()
        seen = [store.slots[place] for place in places(batch, i, range(length))]
        assert all(len(what) == at + 1 for at, what in enumerate(seen)), "a committed slot is of another position"
        paths = []
        for node, slot in enumerate(places(batch, i, range(length, length + stop - start))):
            above = paths[parents[node]] if node else (seen[-1] if seen else ())
            paths.append((*above, tokens[node]))
            assert batch.positions[start + node] == len(paths[-1]) - 1
            store.slots[slot] = paths[-1]


def places(batch, i, positions):
    return [int(batch.tables[i, position // PAGE]) * PAGE + position % PAGE for position in positions]


# Texts that share beginnings of many lengths: what two of them have in common is found again.
def text_of(kind, length):
    switch = (kind % 3) * 24
    return [int(at >= switch) * (1 + kind // 3) for at in range(length)]


class CacheMachine(RuleBasedStateMachine):
    """Open, extend by trees, commit, fork, cut, release, in any order, with too little room."""

    sequences = Bundle("sequences")

    def __init__(self):
        super().__init__()
        self.store = RecordingStore(PAGES)
        self.cache = PagedCache(self.store)
        self.texts = {}
        self.past = [[0]]  # what was ever in the cache

    @rule(target=sequences, at=st.integers(0, 50))
    def open_again(self, at):
        """Ask for a text that was there before, however it went on."""
        tokens = [*self.past[-1 - at % len(self.past)], 9]
        sequence = self.cache.open(tokens)
        self.texts[sequence] = tokens[: self.cache.length(sequence)]
        return sequence

    @rule(target=sequences, kind=st.integers(0, 8), length=st.integers(0, 110))
    def open(self, kind, length):
        tokens = text_of(kind, length)
        sequence = self.cache.open(tokens)
        found = self.cache.length(sequence)
        assert found % PAGE == 0
        assert found < max(length, 1), "the last token must be forwarded for its logits"
        self.texts[sequence] = tokens[:found]
        return sequence

    @rule(sequence=sequences, kind=st.integers(0, 8), to=st.integers(1, 110))
    def prefill(self, sequence, kind, to):
        """Go on as one of the texts, so that full pages of equal content arise."""
        have = len(self.texts[sequence])
        self.round([sequence], [TokenTree.chain((text_of(kind, to)[have:] or [kind])[:70])], seed=None)

    @rule(
        ones=st.lists(sequences, min_size=1, max_size=3, unique=True),
        nodes=st.integers(1, 40),
        seed=st.integers(0, 999),
    )
    def draft(self, ones, nodes, seed):
        random = np.random.default_rng(seed)
        trees = [random_tree(random, int(random.integers(1, nodes + 1)), int(random.integers(3)), 50) for _ in ones]
        self.round(ones, trees, seed)

    def round(self, ones, trees, seed):
        before = [(self.cache.tokens(one), self.cache.slots(one)) for one in ones]
        try:
            batch = flatten(self.cache, ones, trees, [0] * len(ones))
        except ContextOverflow:
            assert [tokens for tokens, _ in before] == [self.cache.tokens(one) for one in ones]
            return
        write(self.cache, self.store, batch)
        for one, tree in zip(ones, trees, strict=True):
            path = list(range(len(tree)))
            if seed is not None:
                node = int(np.random.default_rng(seed).integers(-1, len(tree)))
                path = root_path(tree, node) if node >= 0 else []  # nothing kept: the request was cancelled
            kept = tree.tokens[path].tolist()
            self.cache.commit(one, path, kept)
            self.texts[one] = self.texts[one] + kept
            if len(self.texts[one]) >= PAGE:
                self.past.append(self.texts[one])

    @rule(target=sequences, sequence=sequences)
    def fork(self, sequence):
        fork = self.cache.fork(sequence)
        self.texts[fork] = list(self.texts[sequence])
        return fork

    @rule(sequence=sequences, share=st.floats(0, 1))
    def crop(self, sequence, share):
        length = int(len(self.texts[sequence]) * share)
        self.cache.crop(sequence, length)
        self.texts[sequence] = self.texts[sequence][:length]

    @rule(sequence=consumes(sequences))
    def release(self, sequence):
        self.cache.release(sequence)
        del self.texts[sequence]

    @invariant()
    def every_slot_holds_its_beginning_of_the_text(self):
        self.cache.check()
        for sequence, tokens in self.texts.items():
            assert self.cache.tokens(sequence) == tokens
            assert self.cache.length(sequence) == len(tokens)
            assert self.cache.tail(sequence, len(tokens) // 2) == tokens[len(tokens) // 2 :]
            for at, slot in enumerate(self.cache.slots(sequence)):
                held = self.store.slots[slot]
                assert held == tuple(tokens[: at + 1]), f"position {at} of {len(tokens)} holds {held}"

    @invariant()
    def a_page_two_sequences_write_to_is_not_shared(self):
        assert self.cache.held() <= PAGES * PAGE
        if not self.texts:
            assert self.cache.held() == 0

    def teardown(self):
        for sequence in list(self.texts):
            self.cache.release(sequence)
        self.cache.check()
        assert self.cache.held() == 0


def explore(examples, phases=tuple(Phase)):
    quick = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(CacheMachine, settings=quick)


def test_any_schedule_leaves_what_a_rebuild_would():
    explore(25)


@pytest.mark.slow
def test_any_long_schedule_leaves_what_a_rebuild_would():
    explore(examples=1500)


# ---- the machine notices planted bugs


def keep_first(cache, sequence, nodes, tokens, real=PagedCache.commit):
    real(cache, sequence, range(len(nodes)), tokens)


def keep_next(cache, sequence, nodes, tokens, real=PagedCache.commit):
    room = len(cache._entries[sequence].pages) * PAGE - cache.length(sequence)
    shifted = [node + 1 for node in nodes]
    real(cache, sequence, shifted if shifted and shifted[-1] < room else nodes, tokens)


def move_backwards(cache, sequence, nodes, tokens, real=PagedCache.commit):
    store, copy = cache.store, cache.store.copy_tokens
    store.copy_tokens = lambda source, to: copy(source[::-1], to[::-1])
    try:
        real(cache, sequence, nodes, tokens)
    finally:
        del store.copy_tokens


def extend_in_place(cache, sequence, count, real=PagedCache.extend):
    copy, cache.store.copy_page = cache.store.copy_page, lambda source, to: None
    try:
        real(cache, sequence, count)
    finally:
        cache.store.copy_page = copy


def never_unfile(cache, page):
    pass


def free_twice(cache, sequence, real=PagedCache.release):
    pages = list(cache._entries[sequence].pages)
    real(cache, sequence)
    cache._free.extend(page for page in pages[:1] if not cache._count[page] and page in cache._free)


def no_trim(cache, entry):
    keep = -(-len(entry.tokens) // PAGE)
    while len(entry.pages) > keep:
        entry.pages.pop()


PLANTED = {
    "commit keeps the first nodes": ("commit", keep_first),
    "commit keeps the nodes after": ("commit", keep_next),
    "commit moves from the end": ("commit", move_backwards),
    "a shared page is not copied": ("extend", extend_in_place),
    "a page cut and written stays filed": ("_unindex", never_unfile),
    "a page is freed twice": ("release", free_twice),
    "pages leak when a branch is refused": ("_trim", no_trim),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_bugs_are_noticed(what, monkeypatch):
    name, bug = PLANTED[what]
    monkeypatch.setattr(PagedCache, name, bug)
    with pytest.raises((AssertionError, KeyError), match=r"."):
        explore(400, [Phase.generate])  # found, but not made small


def test_pages_filed_without_what_came_before_are_noticed(monkeypatch):
    monkeypatch.setattr(home, "_content_key", lambda before, tokens: np.asarray(tokens, np.int32).tobytes())
    with pytest.raises(AssertionError, match=r"holds|position"):
        explore(400, [Phase.generate])


# ---- named cases


def filled(pages=PAGES):
    store = RecordingStore(pages)
    return PagedCache(store), store


def grow(cache, store, sequence, tokens):
    write(cache, store, flatten(cache, [sequence], [TokenTree.chain(tokens)], [0]))
    cache.commit(sequence, range(len(tokens)), tokens)


def test_the_last_token_is_never_taken_from_the_cache():
    cache, store = filled()
    tokens = text(1, 64)
    grow(cache, store, cache.open(), tokens)
    assert [cache.length(cache.open(tokens[:n])) for n in (31, 32, 33, 63, 64)] == [0, 0, 32, 32, 32]
    assert cache.length(cache.open([*tokens, 1])) == 64
    assert cache.length(cache.open([tokens[0] + 1, *tokens[1:], 1])) == 0
    cache.check()


def test_released_pages_are_found_until_evicted_oldest_first():
    cache, store = filled(4)
    one, two = text(1, 64), text(2, 33)
    for tokens in (one, two):
        sequence = cache.open()
        grow(cache, store, sequence, tokens)
        cache.release(sequence)
    assert cache.held() == 0
    third = cache.open()
    grow(cache, store, third, text(3, 60))
    cache.check()
    found = [cache.length(cache.open([*tokens, 0])) for tokens in (one, two)]
    assert found == [0, 32], "the oldest page goes first; a later page without the one before it is not found"


def test_out_of_room_says_how_much_and_changes_nothing():
    cache, store = filled(2)
    sequence = cache.open()
    grow(cache, store, sequence, text(1, 40))
    with pytest.raises(ContextOverflow, match="room for 64 tokens, 64 are held, and a sequence asked for `25` more"):
        cache.extend(sequence, 25)
    cache.check()
    fork = cache.fork(sequence)
    with pytest.raises(ContextOverflow, match="asked for `1` more"):
        cache.extend(fork, 1)
    cache.release(sequence)
    cache.extend(fork, 24)
    cache.check()


def test_check_notices_what_is_wrong():
    cache, store = filled()
    sequence = cache.open()
    grow(cache, store, sequence, text(1, 70))
    cache.check()

    def broken(change):
        cache, store = filled()
        sequence = cache.open()
        grow(cache, store, sequence, text(1, 70))
        change(cache, cache._entries[sequence])
        with pytest.raises(AssertionError, match=r"."):
            cache.check()

    broken(lambda cache, entry: entry.pages.pop())
    broken(lambda cache, entry: entry.pages.append(entry.pages[0]))
    broken(lambda cache, entry: cache._free.pop())
    broken(lambda cache, entry: cache._free.append(cache._free[0]))
    broken(lambda cache, entry: cache._free.append(entry.pages[0]))
    broken(lambda cache, entry: entry.tokens.__setitem__(3, entry.tokens[3] + 1))
    broken(lambda cache, entry: cache._count.__setitem__(0, cache._count[0] + 1))
    broken(lambda cache, entry: cache._by_key.pop(entry.keys[0]))
    broken(lambda cache, entry: cache._idle.__setitem__(cache._free.pop(), None))


# ---- the native store


@pytest.mark.parametrize("name", ["llama", "gemma3", "smollm3"])
def test_native_slots_after_a_commit_equal_a_rebuild_bitwise(name):
    model, random = tiny(name, GgmlType.Q4_0), np.random.default_rng(5)
    cache = model.new_cache(256)
    sequence, tokens = cache.open(), text(1, 29)
    feed(model, cache, sequence, tokens)
    for _ in range(6):
        tree = random_tree(random, 12, int(random.integers(300)))
        model.forward(flatten(cache, [sequence], [tree], [0]), cache)
        path = root_path(tree, int(random.integers(12)))
        kept = tree.tokens[path].tolist()
        cache.commit(sequence, path, kept)
        tokens += kept
        rebuilt = model.new_cache(256)
        again = rebuilt.open()
        feed(model, rebuilt, again, tokens)
        assert bits(model, cache, sequence) == bits(model, rebuilt, again)
    fork = cache.fork(sequence)
    feed(model, cache, sequence, [1, 2, 3])
    assert bits(model, cache, fork) == bits(model, rebuilt, again), "a fork sees what its source wrote later"
    assert Counter(cache.slots(fork)) != Counter(cache.slots(sequence)[: len(tokens)])


def bits(model, cache, sequence):
    return [[cache.store.token(layer, slot) for slot in cache.slots(sequence)] for layer in range(model.spec.layers)]


def test_pages_are_found_by_their_own_salt_only():
    cache = PagedCache(RecordingStore(16))
    text = list(range(70))
    for salt in (b"", b"one", b"two"):
        assert cache.find(text, salt) == 0
        sequence = cache.open(text, salt)
        cache.extend(sequence, 70)
        cache.commit(sequence, range(70), text)
        other = cache.fork(sequence)
        cache.release(sequence)
        cache.release(other)
        cache.check()
        assert cache.find(text, salt) == 64
    assert cache.length(cache.open(text, b"two")) == 64
    cache.check()
