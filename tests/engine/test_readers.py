"""Whatever was kept, refused, skipped or released: the draft's reading of a text is what a fresh one would be."""

import dataclasses

import numpy as np
import pytest
from pairs import VERSE, loaded, overlapping, permuted, setting_of, singers, target_of
from sweep import sweep
from views import outcome

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.base import NoDrafter, unread_by
from paceline.draft.compose.staged import StagedDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.vocab.pairing import drafter_for
from paceline.draft.vocab.retokenise import Retokenised, RetokenisingDrafter
from paceline.draft.vocab.token_map import Speller, map_tokens, overlap
from paceline.testing import ByteTokenizer, TinyModel


def slem():
    target, draft = singers()
    random = TinyModel(draft.model.spec.vocab, reach=None, seed=4, context=1024)
    return target, lambda: drafter_for(setting_of(target), dataclasses.replace(draft, model=random))


def tli():
    target = target_of()
    return target, lambda: drafter_for(setting_of(target), overlapping())


def staged():
    model = TinyModel(16, reach=None, seed=6)
    return target_of(), lambda: StagedDrafter(model, context=512)


def reader_of(drafter):
    return drafter.reader if hasattr(drafter, "reader") else drafter.voices[0].reader


def schedule(make, target, seed, spoil=lambda drafter: None):
    """Play random rounds; compare guesses and cache with those of a drafter that sees the text for the first time."""
    chance = np.random.default_rng(seed)
    drafter, vocab, texts, guessed = make(), target.model.spec.vocab, {}, 0
    for turn in range(25):
        if len(texts) < 3:
            texts[turn] = chance.integers(vocab, size=int(chance.integers(1, 70))).tolist()
        params = SamplingParams(float(chance.choice([0, 0.9])), seed=seed)
        views = [View(name, np.array(text, np.int32), params) for name, text in texts.items()]
        budgets = [Budget(int(n), int(n)) for n in chance.integers(0, 6, len(views))]
        unread = unread_by(views, drafter)[drafter.sources[0]]
        drafts = drafter.propose(views, budgets)
        spoil(drafter)
        left = unread_by(views, drafter)[drafter.sources[0]]
        assert all(after <= 1 for after, budget in zip(left, budgets, strict=True) if budget.nodes), (unread, left)
        assert all(after == n for after, n, budget in zip(left, unread, budgets, strict=True) if not budget.nodes)
        reader_of(drafter).cache.check()
        fresh = make()
        again = fresh.propose(views, budgets)
        for view, budget, draft, wanted in zip(views, budgets, drafts, again, strict=True):
            assert draft.tree.tokens.tolist() == wanted.tree.tokens.tolist()
            guessed += draft.drafted
            if budget.nodes:
                assert reader_of(drafter).held(view.id) == reader_of(fresh).held(view.id)
            kept = int(chance.integers(draft.drafted + 1))
            bonus = int(chance.integers(vocab))
            drafter.observe(view, draft, outcome(draft, kept, bonus, vocab))
            texts[view.id] += [*draft.tree.tokens[1 : kept + 1].tolist(), bonus]
        for name in [name for name, text in texts.items() if len(text) > 200 or chance.random() < 0.05]:
            drafter.release(name)
            del texts[name]
    for name in texts:
        drafter.release(name)
    reader_of(drafter).cache.check()
    assert reader_of(drafter).cache.held() == 0
    return guessed


def model():
    draft = TinyModel(16, reach=None, seed=6)
    return target_of(), lambda: ModelDrafter(draft, context=512)


@pytest.mark.parametrize("kind", [model, tli, slem, staged], ids=["model", "tli", "slem", "staged"])
@pytest.mark.parametrize("length", [300, 40])
def test_what_was_read_first_is_said_once(kind, length):
    target, make = kind()
    drafter = make()
    name = drafter.sources[0]
    text = np.random.default_rng(3).integers(target.model.spec.vocab, size=length).astype(np.int32)
    unread = unread_by([View(1, text, SamplingParams())], drafter)[name][0]
    for turn in range(3):
        view = View(1, text, SamplingParams())
        (draft,) = drafter.propose([view], [Budget(3, 3)])
        spent = drafter.spent[name]
        assert spent.steps >= 1
        assert spent.read == (unread - 1 if turn == 0 else 0)
        drafter.observe(view, draft, outcome(draft, 0, 1, target.model.spec.vocab))
        text = np.append(text, np.int32(1))


def test_asking_takes_no_page_and_hides_no_common_beginning():
    drafter = model()[1]()
    text = np.random.default_rng(3).integers(16, size=200).astype(np.int32)
    views = [View(name, text, SamplingParams()) for name in (1, 2)]
    assert unread_by(views, drafter) == {"model": [200, 200]}
    assert drafter.cache.held() == 0
    for view, read in zip(views, (199, 0), strict=True):
        (draft,) = drafter.propose([view], [Budget(4, 4)])
        assert drafter.spent["model"].read == pytest.approx(read, abs=31), "all but the last page"
        drafter.observe(view, draft, outcome(draft, 0, 1, 16))
        drafter.release(view.id)
    later = View(3, text, SamplingParams())
    assert unread_by([later], drafter)["model"][0] <= 32
    drafter.release(3)
    drafter.cache.check()


def test_an_outgrown_draft_has_half_a_context_unread():
    drafter = ModelDrafter(TinyModel(16, reach=None, seed=6), context=64)
    text = np.zeros(100, np.int32)
    assert unread_by([View(1, text, SamplingParams())], drafter) == {"model": [32]}
    drafter.propose([View(1, text[:60], SamplingParams())], [Budget(2, 2)])
    assert unread_by([View(1, text[:61], SamplingParams())], drafter)["model"][0] <= 2
    assert unread_by([View(1, text[:64], SamplingParams())], drafter) == {"model": [32]}


@pytest.mark.parametrize("seed", sweep(range(4), fast=range(2)))
@pytest.mark.parametrize("kind", [tli, slem, staged], ids=["tli", "slem", "staged"])
def test_after_any_verdicts_the_state_equals_a_fresh_one(kind, seed):
    target, make = kind()
    assert schedule(make, target, seed) > 50


@pytest.mark.parametrize("kind", [tli, slem, staged], ids=["tli", "slem", "staged"])
def test_guesses_left_in_the_cache_after_a_refusal_show(kind, monkeypatch):
    target, make = kind()

    def trusting(self, text, tokens, ahead, **settings):
        known = self._texts.get(text)
        if known is not None:
            known.fixed = len(tokens)
        return read(self, text, tokens, ahead, **settings)

    from paceline.draft.model.state import TextState

    read = TextState.read
    monkeypatch.setattr(TextState, "read", trusting)
    assert any(fails(make, target, seed) for seed in range(8))


def fails(make, target, seed):
    try:
        schedule(make, target, seed)
    except AssertionError:
        return True
    return False


def test_a_recut_last_word_is_read_anew_from_there():
    """A few letters at a time: three of them are one token of the draft's as soon as the third is there."""
    target, make = slem()
    letters = [target.tokenizer.pieces.index(bytes([byte])) for byte in VERSE]
    drafter = make()
    for end in range(1, len(letters), 4):
        view = View(0, np.array(letters[:end], np.int32), SamplingParams())
        fresh = make()
        for one in (drafter, fresh):
            one.propose([view], [Budget(2, 2)])
        read = len(fresh._texts[0].ids()) - 1
        assert drafter.reader.held(0)[:read] == fresh.reader.held(0)[:read]


# ---- staged


@pytest.mark.parametrize("draws", ["shared", "chain"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_staged_draft_guesses_what_the_model_alone_would(temperature, draws):
    """Token for token, and with fewer forwards where the text repeats itself."""
    spins = TinyModel(16, distribution=lambda seen: 9 * np.eye(16, dtype=np.float32)[(int(seen[-1]) + 1) % 5], reach=1)
    for model, repeats in ((TinyModel(16, reach=2, sharpness=4), False), (spins, True)):
        params = SamplingParams(temperature, seed=2)
        staged = StagedDrafter(model, context=512, draws=draws)
        tokens = [0, 1, 2, 3, 4] * 3
        for turn in range(6):
            view = View(0, np.array([*tokens, 0, 1, 2][: 14 + turn], np.int32), params)
            plain = StagedDrafter(model, context=512, draws=draws, inner=NoDrafter())
            before = model.forwards
            (ours,) = staged.propose([view], [Budget(8, 8)])
            forwards = model.forwards - before
            (theirs,) = plain.propose([view], [Budget(8, 8)])
            assert ours.tree.tokens.tolist() == theirs.tree.tokens.tolist()
            assert all(
                np.array_equal(ours.distributions[node], distribution)
                for node, distribution in theirs.distributions.items()
            )
            (alone,) = ModelDrafter(model, context=512, draws=draws).propose([view], [Budget(8, 8)])
            assert ours.tree.tokens.tolist() == alone.tree.tokens.tolist()
            if repeats:
                assert forwards <= 2, forwards


class Trusting(NgramDrafter):
    """Reads on by counting: a caller that takes a text back must say so."""

    def __init__(self):
        super().__init__()
        self.read, self.guessed = {}, 0

    def propose(self, views, budgets):
        for view in views:
            read = self.read.setdefault(view.id, [])
            read += view.tokens[len(read) :].tolist()
            assert read == view.tokens.tolist()
        drafts = super().propose(views, budgets)
        self.guessed += sum(draft.drafted for draft in drafts)
        return drafts

    def observe(self, view, draft, verified):
        super().observe(view, draft, verified)
        self.read[view.id] += verified.tokens.tolist()

    def release(self, sequence_id):
        super().release(sequence_id)
        self.read.pop(sequence_id, None)


@pytest.mark.parametrize("seed", range(4))
def test_the_inner_look_up_reads_no_withdrawn_token(seed):
    """And learns of every block what the draft model said of it."""
    model, inners = TinyModel(16, reach=2, sharpness=2, seed=6), []

    def make():
        inners.append(Trusting())
        return StagedDrafter(model, context=512, inner=inners[-1])

    schedule(make, target_of(), seed)
    assert sum(inner.guessed for inner in inners) > 50
    assert inners[0]._acceptance.rates().tolist() != NgramDrafter()._acceptance.rates().tolist()
    assert not inners[0].read


@pytest.mark.parametrize("inner", [NgramDrafter, lambda: SuffixDrafter(is_chain=True)], ids=["ngram", "suffix"])
def test_any_chain_will_do_for_the_inner_look_up(inner):
    model = TinyModel(16, reach=2, sharpness=2, seed=6)
    assert schedule(lambda: StagedDrafter(model, context=512, inner=inner()), target_of(), 0) > 50


# ---- maps


def test_tokens_pair_by_bytes_and_specials_by_role():
    target = ByteTokenizer([b"a", b" b", b"<end>", b"<x>", b"zz"], eos_ids=[2], special=[2, 3])
    draft = ByteTokenizer([b"<stop>", b" b", b"q", b"a", b"<x>"], eos_ids=[0], special=[0])
    words = map_tokens(target, draft, vocab=7)
    assert dict(zip(words.target.tolist(), words.draft.tolist(), strict=True)) == {0: 3, 1: 1, 2: 0}
    assert words.partners.tolist() == [3, 1, 0, -1, -1, -1, -1]
    assert words.overlap == 2 / 3
    assert overlap(target, draft) == pytest.approx(66.67, abs=0.01)
    assert words.spell(0) == [3]
    assert words.spell(3) == [], "a control token the draft has as plain text only"
    assert words.spell(6) == [], "padding"


def test_a_byte_fallback_yields_to_the_token_of_its_text():
    class Fallback(ByteTokenizer):
        def token_text(self, token):
            return "<0x61>" if token == 0 else super().token_text(token)

    target, draft = Fallback([b"a", b"b", b"a"]), ByteTokenizer([b"b", b"a"])
    words = map_tokens(target, draft)
    assert dict(zip(words.target.tolist(), words.draft.tolist(), strict=True)) == {2: 1, 1: 0}
    assert words.spell(0) == [1], "the fallback byte still reads as its text"


def test_a_speller_takes_the_longest_token():
    speller = Speller(ByteTokenizer([b"a", b"b", b"ab", b"abb"]))
    assert speller.spell(b"aabbab") == [0, 3, 2]
    assert speller.spell(b"a?b") == [0, 1]


def test_a_text_is_retold_the_same_however_it_came():
    """In one piece or token by token, and cut inside characters too."""
    text = ("The quick brown fox, 안녕하세요 세계! " * 8 + "x" * 900 + " \U0001f9d1\u200d\U0001f680 end").encode()
    target, draft = ByteTokenizer(), ByteTokenizer([*(bytes([i]) for i in range(256)), b"the", b"own", b" fo"])
    growing = Retokenised(target, draft)
    for end in [1, 2, 3, 50, 51, 90, 200, 201, 202, 333, 400, 900, 1200, len(text) - 5, len(text)]:
        growing.follow(np.frombuffer(text[:end], np.uint8).astype(np.int32))
        once = Retokenised(target, draft)
        once.follow(np.frombuffer(text[:end], np.uint8).astype(np.int32))
        assert growing.ids().tolist() == once.ids().tolist()
        told = b"".join(draft.token_bytes(token) for token in growing.ids())
        assert told + growing.partial == text[:end]


def test_a_guess_that_begins_inside_a_character_ends_it():
    target = loaded("big", TinyModel(256), [bytes([i]) for i in range(256)])
    pieces = [bytes([i]) for i in range(128)] + ["é".encode(), "ü".encode()]
    draft = loaded("small", TinyModel(130, distribution=lambda seen: 9 * np.eye(130, dtype=np.float32)[128]), pieces)
    drafter = RetokenisingDrafter(target, draft, slots=1, name="slem")
    tokens = np.array([*b"caf", "é".encode()[0]], np.int32)
    (made,) = drafter.propose([View(0, tokens, SamplingParams())], [Budget(3, 3)])
    assert made.tree.tokens[1:].tolist() == [*"éé".encode()[1:]][:3]
    (made,) = drafter.propose([View(0, np.array([*b"caf", 0xE2], np.int32), SamplingParams())], [Budget(3, 3)])
    assert made.drafted == 0, "the draft writes another character than the text has begun"


def test_a_permuted_twin_speaks_the_targets_own_logits():
    target = target_of()
    drafter = drafter_for(setting_of(target), permuted(target))
    view = View(0, np.array([3, 1, 4, 1, 5], np.int32), SamplingParams())
    assert drafter.voices[0].begin(view, 1)
    said = drafter.voices[0].logits([view], [[]])[0]
    assert np.array_equal(said, target.model.logits_after(view.tokens))
