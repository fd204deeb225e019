"""Whatever was kept, refused, skipped or released, the draft's cache is what a fresh reading of the text would fill."""

import numpy as np
import pytest
from sweep import sweep
from views import draw_plain_at, outcome

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import TokenTree
from paceline.draft.model.drafter import ModelDrafter
from paceline.testing import TinyModel

VOCAB = 12


def right_guesses(model, view, count):
    tokens = view.tokens.tolist()
    for _ in range(count):
        tokens.append(draw_plain_at(model.logits_after(tokens), view.params, len(tokens)))
    return tokens[len(view.tokens) :]


def cached(drafter, name):
    return drafter.reader.held(name)


def stored(drafter, name):
    """What the draft's memory itself holds, slot by slot."""
    slots = drafter.cache.slots(drafter.reader.handle(name))
    return drafter.cache.store.memory[slots].tolist()


@pytest.mark.parametrize("seed", sweep(range(25), fast=range(5)))
def test_after_any_verdicts_the_state_equals_a_fresh_one(seed):
    """Sequences come, grow by any number of tokens of any value, skip rounds, and go; `TinyModel` reads every cached
    token, so a wrong one shows in the guesses as well."""
    chance = np.random.default_rng(seed)
    model = TinyModel(VOCAB, reach=None, seed=seed, context=1000)
    drafter = ModelDrafter(model, context=1000)
    texts = {}
    for turn in range(60):
        if len(texts) < 2 or (len(texts) < 4 and chance.random() < 0.1):
            shared = next(iter(texts.values()))[: int(chance.integers(40))] if texts and chance.random() < 0.5 else []
            texts[turn] = [*shared, *chance.integers(VOCAB, size=int(chance.integers(1, 50))).tolist()]
        params = SamplingParams(float(chance.choice([0, 0.9])), seed=seed)
        views = [View(name, np.array(text, np.int32), params) for name, text in texts.items()]
        budgets = [Budget(int(nodes), int(depth)) for nodes, depth in chance.integers(0, 6, (len(views), 2))]
        drafts = drafter.propose(views, budgets)
        drafter.cache.check()
        for view, budget, draft in zip(views, budgets, drafts, strict=True):
            count = min(budget.nodes, budget.depth)
            assert draft.tree.tokens.tolist() == [view.tokens[-1], *right_guesses(model, view, count)]
            if count:
                # All but the last guess was read, each at its own position.
                wanted = [*view.tokens.tolist(), *draft.tree.tokens[1:-1].tolist()]
                assert cached(drafter, view.id) == wanted
                assert stored(drafter, view.id) == [[token, i] for i, token in enumerate(wanted)]
            kept = int(chance.integers(draft.drafted + 1))
            bonus = int(chance.integers(VOCAB))
            drafter.observe(view, draft, outcome(draft, kept, bonus))
            texts[view.id] += [*draft.tree.tokens[1 : kept + 1].tolist(), bonus]
        for name in [name for name, text in texts.items() if len(text) > 120 or chance.random() < 0.03]:
            drafter.release(name)
            del texts[name]
            drafter.cache.check()
    for name in texts:
        drafter.release(name)
    drafter.release(10**6)
    drafter.cache.check()
    assert drafter.cache.held() == 0


def test_a_text_that_changed_behind_its_back_is_read_again():
    """Not by counting but by comparing: other tokens than it guessed, more of them and fewer."""
    model = TinyModel(VOCAB, reach=None)
    drafter = ModelDrafter(model, context=200)
    for tokens in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]):
        view = View(0, np.array(tokens, np.int32), SamplingParams())
        (draft,) = drafter.propose([view], [Budget(4, 4)])
        assert draft.tree.tokens[1:].tolist() == right_guesses(model, view, 4), tokens
        drafter.cache.check()


def test_it_reads_two_tokens_after_full_acceptance_else_one():
    model = TinyModel(VOCAB, reach=None)
    drafter = ModelDrafter(model, context=200)
    tokens = [1, 2, 3, 4]
    for kept, forwards in [(3, 3), (0, 3), (2, 3), (3, 3)]:
        before = model.forwards
        view = View(0, np.array(tokens, np.int32), SamplingParams())
        (draft,) = drafter.propose([view], [Budget(3, 3)])
        assert model.forwards - before == forwards
        drafter.observe(view, draft, outcome(draft, kept))
        tokens += [*draft.tree.tokens[1 : kept + 1].tolist(), (int(draft.tree.tokens[min(kept + 1, 3)]) + 1) % VOCAB]


def test_a_long_prompt_is_read_in_pieces():
    model = TinyModel(VOCAB, reach=None, context=1024)
    drafter = ModelDrafter(model, context=1024)
    tokens = np.random.default_rng(0).integers(VOCAB, size=900).astype(np.int32)
    view = View(0, tokens, SamplingParams(0.8, seed=1))
    (draft,) = drafter.propose([view], [Budget(2, 2)])
    assert draft.tree.tokens[1:].tolist() == right_guesses(model, view, 2)
    assert model.forwards == 5  # 256 + 256 + 256, the rest, one guess


def test_confidence_by_depth_lies_in_zero_to_one_and_falls():
    drafter = ModelDrafter(TinyModel(VOCAB), context=200)
    tokens = [1, 2, 3]
    for turn in range(40):
        view = View(0, np.array(tokens, np.int32), SamplingParams())
        (draft,) = drafter.propose([view], [Budget(4, 4)])
        drafter.observe(view, draft, outcome(draft, turn % 3))
    (draft,) = drafter.propose([view], [Budget(4, 4)])
    assert (draft.acceptance_prob >= 0).all()
    assert (draft.acceptance_prob <= 1).all()
    assert draft.acceptance_prob[1] > draft.acceptance_prob[3]
    assert isinstance(draft.tree, TokenTree)


def test_texts_that_together_outgrow_the_drafts_room_are_no_error():
    """Each fits by itself: a sequence that finds no room goes without a guess, and the others go on."""
    model = TinyModel(VOCAB, reach=None, context=128)
    drafter = ModelDrafter(model, context=128)
    texts = np.random.default_rng(0).integers(VOCAB, size=(6, 60)).astype(np.int32)
    views = [View(i, text, SamplingParams()) for i, text in enumerate(texts)]
    drafts = drafter.propose(views, [Budget(3, 3)] * 6)
    drafter.cache.check()
    assert drafts[0].tree.tokens[1:].tolist() == right_guesses(model, views[0], 3)
    for view in views:
        drafter.release(view.id)
    drafter.cache.check()
    assert drafter.cache.held() == 0
