"""The native loop drafts what the step-by-step one drafts, to the bit, with whole heads and cut-down ones."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from tiny import VOCAB, text, tiny

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import TokenTree, Verified
from paceline.draft.model import steps
from paceline.draft.model.chain import BINS, DEPTHS, EDGES, RANKS, Confidence, Guesses, bin_of
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.model.reduced_head import Head
from paceline.draft.model.steps import probability
from paceline.kernels.native import native
from paceline.model.flatten import flatten


def some_outputs(seed, count=120):
    return np.random.default_rng(seed).permutation(VOCAB)[:count].astype(np.int32)


def random_budget(chance):
    depth = int(chance.integers(0, 7))
    nodes = depth + int(chance.integers(0, 5)) if chance.random() < 0.8 else int(chance.integers(0, 4))
    if chance.random() < 0.3:
        return Budget(nodes, depth)
    price = np.concatenate([[0.0], np.cumsum(chance.random(nodes) * chance.choice([0.02, 0.1, 0.4]))])
    return Budget(nodes, depth, price, {"model": float(chance.choice([0.0, 0.05, 0.3]))})


def random_params(chance, seed):
    return SamplingParams(
        float(chance.choice([0, 0.7, 1.5])),
        top_k=int(chance.choice([0, 3, 40])),
        top_p=float(chance.choice([1.0, 0.8])),
        min_p=float(chance.choice([0.0, 0.05])),
        seed=seed,
    )


def same(a, b):
    assert a.tree.tokens.tolist() == b.tree.tokens.tolist()
    assert a.tree.parents.tolist() == b.tree.parents.tolist()
    assert a.acceptance_prob.tolist() == b.acceptance_prob.tolist()


def play(seed, one, other, *, rounds=14, floor=None):
    """Play two drafters through the same rounds of a few sequences; every draft must be the same."""
    chance = np.random.default_rng(seed)
    texts = {i: text(seed + i, int(chance.integers(1, 60))) for i in range(3)}
    params = {i: random_params(chance, seed) for i in texts}
    siblings = guessed = 0
    for _ in range(rounds):
        views = [View(i, np.array(tokens, np.int32), params[i]) for i, tokens in texts.items()]
        budgets = [replace(random_budget(chance), floor=floor) for _ in views]
        for view, a, b in zip(views, one.propose(views, budgets), other.propose(views, budgets), strict=True):
            same(a, b)
            guessed += a.drafted
            siblings += a.drafted - max(a.tree.depths())
            tokens = [int(chance.integers(VOCAB))]
            if a.drafted:
                mains = [drafter._guesses[view.id].tokens for drafter in (one, other)]
                assert mains[0] == mains[1]
                for drafter in (one, other):
                    drafter.cache.check()
                    cached = drafter.reader.held(view.id)
                    assert cached == [*view.tokens.tolist(), *mains[0]][: len(cached)]
                tokens = [*mains[0][: int(chance.integers(len(mains[0]) + 1))], *tokens]
                for drafter, draft in ((one, a), (other, b)):
                    said = Verified(draft.tree, (), np.array(tokens, np.int32), np.zeros((0, VOCAB), np.float32))
                    drafter.observe(view, draft, said)
            texts[view.id] += tokens
    assert guessed
    for drafter in (one, other):
        for name in texts:
            drafter.release(name)
        drafter.cache.check()
        assert drafter.cache.held() == 0
    return siblings


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("outputs", [None, 120])
def test_native_and_step_by_step_drafts_are_the_same(seed, outputs):
    ids = None if outputs is None else some_outputs(seed, outputs)
    model = tiny(("llama", "qwen2", "gemma3")[seed % 3])
    made = [ModelDrafter(model, context=256, outputs=ids, native=native) for native in (True, False)]
    play(seed, *made)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_follow_the_text_are_drawn_by_their_tokens(seed):
    """A head so small that most tokens read are lacking: its rows change hands every round, upwards and downwards."""
    made = [ModelDrafter(tiny("llama"), context=256, native=native) for native in (True, False)]
    for drafter in made:
        reader = drafter.reader
        reader.head = Head(reader.model, some_outputs(seed, 40), spare=30)
        reader.model = reader.head.model
    head = made[0].reader.head
    made[0]._loop = head.loop
    before = head.ids.copy()
    play(200 + seed, *made)
    assert (head.ids != before).sum() > 20


def test_both_draft_runners_up_where_they_pay():
    made = [ModelDrafter(tiny("llama"), context=256, native=native) for native in (True, False)]
    assert sum(play(100 + seed, *made) for seed in range(3)) > 5


@pytest.mark.parametrize("bug", ["", "row noise", "position", "crop"])
def test_a_planted_bug_shows(bug, monkeypatch):
    """Noise keyed by row and not by token; one position off; a cache that keeps refused guesses; or no bug at all."""
    ids = some_outputs(0)
    fast, plain = (ModelDrafter(tiny("llama"), context=256, outputs=ids, native=native) for native in (True, False))
    if bug == "row noise":

        def keyed_by_row(logits, view, path=()):
            return int(ids[steps_draw(logits[ids], view, path)])

        steps_draw = steps.draw
        monkeypatch.setattr(steps, "draw", keyed_by_row)
    elif bug == "position":
        steps_draw = steps.draw
        monkeypatch.setattr(steps, "draw", lambda logits, view, path=(): steps_draw(logits, view, [0, *path]))
    elif bug == "crop":
        monkeypatch.setattr(fast.cache, "crop", lambda sequence, length: None)
    with pytest.raises((AssertionError, ValueError)) if bug else nullcontext():
        for seed in range(4):
            play(seed, fast, plain)


def test_a_reduced_head_has_the_whole_heads_logits():
    """Also for rows that were replaced, in every packing."""
    for quant in ("f32", "bf16", "q8", "q4", "q4s"):
        model = tiny("wide", quant=quant)
        head = Head(model, some_outputs(1), spare=16)
        head.absorb(np.arange(VOCAB, dtype=np.int32)[::-7])
        caches = [model.new_cache(64), head.model.new_cache(64)]
        rows = []
        for one, cache in zip((model, head.model), caches, strict=True):
            batch = flatten(cache, [cache.open()], [TokenTree.chain(text(3, 9))], [2])
            rows.append(one.forward(batch, cache).logits.copy())
        assert np.array_equal(rows[0][:, head.ids], rows[1]), quant
        assert len(set(head.ids.tolist())) == len(head.ids)


def test_rows_follow_the_text():
    head = Head(tiny("llama"), some_outputs(2), spare=8)
    lacking = np.setdiff1d(np.arange(VOCAB), head.ids)[:20].astype(np.int32)
    assert head.absorb(lacking) == 8, "the latest of too many"
    assert set(lacking[-8:].tolist()) <= set(head.ids.tolist())
    assert head.absorb(lacking[-8:]) == 0
    assert np.flatnonzero(np.isfinite(head.whole(np.zeros(len(head.ids), np.float32)))).tolist() == sorted(head.ids)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.3])
def test_confidence_is_the_softmax_probability(temperature):
    logits = np.random.default_rng(0).normal(0, 4, 1000).astype(np.float32)
    scale = temperature or 1.0
    weights = np.exp((logits.astype(np.float64) - logits.max()) / scale)
    for token in (0, 5, int(logits.argmax())):
        found = probability(logits, float(logits[token]), SamplingParams(temperature))
        assert abs(found - weights[token] / weights.sum()) < 1e-6  # depths are float32


def test_a_chain_goes_on_only_while_that_pays():
    rates = Confidence().rates()
    flat = np.zeros(9)
    assert rates.pays(0, 1.0, BINS, flat, 0.0, 8)
    assert rates.pays(0, 1.0, BINS, flat, 0.69, 8), "a first guess is right 0.7 of the time"
    assert not rates.pays(0, 1.0, BINS, flat, 0.71, 8)
    assert not rates.pays(2, 0.1, 0, flat, 0.3, 8)
    cliff = np.array([0, 0.9, 0.9, 0.9, 0.9])
    assert not rates.pays(0, 1.0, BINS, cliff, 0.0, 1), "one node does not pay its price"
    assert rates.pays(0, 1.0, BINS, cliff, 0.0, 4), "four do"


def test_rates_follow_what_is_seen():
    confidence = Confidence()
    for turn in range(200):
        right = turn % 10 < 3
        confidence.observe(Guesses([5], [0.99], [[6]]), [5 if right else 6])
    rates = confidence.rates()
    bin = bin_of(0.99)
    assert bin == len(EDGES)
    assert abs(rates.kept[0, bin] - 0.3) < 0.1
    assert abs(rates.beside[0, bin] - 0.7) < 0.1
    assert abs(rates.ahead[0, BINS] - 0.3) < 0.1
    assert rates.kept.shape == (DEPTHS, BINS)
    assert rates.beside.shape == (RANKS, BINS)
    assert abs(rates.kept[1, bin] - 0.3) < 0.1, "a depth never seen is thought to be like the others"


def test_a_once_bad_depth_recovers_to_the_others_estimate():
    """Chains stop before a depth believed to be bad, so no guess shows that it has become good."""
    confidence = Confidence()
    for _ in range(30):
        confidence.observe(Guesses([5, 5, 5], [0.99] * 3, [[], [], []]), [5, 5, 6])
    assert confidence.rates().kept[2, -1] < 0.3 < 0.6 < confidence.rates().kept[0, -1]
    for _ in range(60):
        confidence.observe(Guesses([5, 5], [0.99] * 2, [[], []]), [5, 5, 5])
    rates = confidence.rates()
    assert rates.kept[2, -1] > 0.6, rates.kept[:3, -1]
    assert rates.ahead[2, -2] > 0.6, rates.ahead[:3, -2]


def test_a_hard_text_does_not_stop_guesses_behind_sure_ones():
    """A chain of one guess shows none that follows it: after a hard text an easy one went on with one a round."""
    confidence, sure = Confidence(), bin_of(0.99)
    for turn in range(60):  # half of the first guesses are right, and a third of those that follow them
        guesses = Guesses([5, 5], [0.99 if turn % 2 else 0.3, 0.9], [[], []])
        confidence.observe(guesses, [5 if turn % 2 else 6, 5 if turn % 6 == 1 else 6])
    assert confidence.rates().ahead[1, sure] < 0.4
    for _ in range(40):
        confidence.observe(Guesses([5], [0.99], [[]]), [5, 6])
    rates = confidence.rates()
    assert rates.ahead[1, sure] > 0.6, rates.ahead[:3]
    assert rates.pays(1, 0.99, sure, 0.15 * np.arange(9), 0.4, 8), "the second is made, and found right"


def test_bad_calls_of_the_native_loop_are_refused():
    model = tiny("llama")
    with pytest.raises(ValueError, match="rows"):
        native.DraftLoop(model._tape.program, model._logits, VOCAB, np.arange(3, dtype=np.int32))
    with pytest.raises(ValueError, match="no such row"):
        model.loop().assign(0, 1)
    ids = np.arange(VOCAB, dtype=np.int32)[::-1].copy()
    for wrong in (ids[0], np.int32(-1), np.int32(VOCAB)):
        with pytest.raises(ValueError, match="one token" if wrong == ids[0] else "no token"):
            model.loop(np.append(ids[:-1], wrong))
    loop = model.loop(ids)
    loop.assign(3, int(ids[3]))
    for row, token, said in ((3, int(ids[4]), "another row"), (VOCAB, 1, "no such"), (0, VOCAB, "no such")):
        with pytest.raises(ValueError, match=said):
            loop.assign(row, token)
