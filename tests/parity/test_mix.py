"""A mix is exact like its members, asks a slow member only when it pays, and lets every member learn."""

import math

import numpy as np
import pytest
from parity_tools import run
from sweep import sweep
from views import view_at

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget, Spent
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.testing import ScriptedDrafter, TinyModel, bush, gappy, half_liar, liar, oracle

VOCAB = 12
GREEDY, SAMPLED = SamplingParams(max_tokens=40), SamplingParams(0.8, seed=3, max_tokens=40)


def scripted(script, answer, name):
    drafter = ScriptedDrafter(script, dict.fromkeys(range(4), answer))
    drafter.sources = (name,)
    return drafter


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "T=0.8"])
@pytest.mark.parametrize("length", sweep((1, 3, 8, 16), fast=(3, 16)))
def test_a_mix_changes_nothing(params, length):
    model = TinyModel(VOCAB, reach=None, sharpness=4)
    prompt = np.random.default_rng(1).integers(4, size=30).tolist()
    (plain,) = run(model, [prompt], params)
    answer = [*prompt, *plain.tokens]
    for members in (
        [NgramDrafter(), ModelDrafter(TinyModel(VOCAB, reach=None, seed=5), context=512)],
        [scripted(oracle, answer, "a"), scripted(liar(VOCAB), answer, "b")],
        [scripted(half_liar(VOCAB, 2), answer, "a"), scripted(gappy(), answer, "b"), NgramDrafter()],
        [scripted(bush(VOCAB, right_for=2), answer, "a"), scripted(bush(VOCAB, right_for=9), answer, "b")],
    ):
        (said,) = run(model, [prompt], params, MixDrafter(members), length=length)
        assert said.key() == plain.key(), [member.sources for member in members]
        drafted = sum(counts["drafted"] for counts in said.metrics.by_source.values())
        assert drafted == said.metrics.drafted_tokens


def test_a_batch_is_as_good_as_each_alone():
    model = TinyModel(VOCAB, reach=None, sharpness=4)
    prompts = [np.random.default_rng(i).integers(4, size=3 + 17 * i).tolist() for i in range(4)]

    def mix():
        return MixDrafter([NgramDrafter(), ModelDrafter(TinyModel(VOCAB, reach=None, seed=5), context=512)])

    together = run(model, prompts, SAMPLED, mix())
    for prompt, said in zip(prompts, together, strict=True):
        (alone,) = run(model, [prompt], SAMPLED)
        assert said.key() == alone.key()


class Slow(Drafter):
    """Says one thing, and counts how often it is asked."""

    sources = ("slow",)

    def __init__(self, tokens):
        self.tokens, self.asked, self.learnt, self.spent = tokens, 0, [], {}

    def propose(self, views, budgets):
        drafts = []
        for view, budget in zip(views, budgets, strict=True):
            count = min(budget.nodes, budget.depth, len(self.tokens))
            self.asked += count > 0
            tree = TokenTree.chain([int(view.tokens[-1]), *self.tokens[:count]])
            drafts.append(Draft(tree, np.full(count + 1, 0.7, np.float32), np.zeros(count + 1, np.int8)))
        self.spent = {"slow": Spent(4, 0.1)}
        return drafts

    def observe(self, view, draft, verified):
        self.learnt.append((draft.drafted, draft.tree.follow(verified.tokens)))


class Copy(Slow):
    """Costs nothing and believes in what it says."""

    sources = ("copy",)

    def __init__(self, tokens, believed, name="copy"):
        super().__init__(tokens)
        self.believed, self.sources = believed, (name,)

    def propose(self, views, budgets):
        drafts = super().propose(views, budgets)
        for draft in drafts:
            draft.acceptance_prob[1:] = self.believed
        self.spent = {}
        return drafts


BUDGET = Budget(8, 8, 0.15 * np.arange(9.0), {"slow": 0.2})


@pytest.mark.parametrize(("believed", "asked"), [(0.97, 0), (0.2, 1)])
def test_a_slow_drafter_is_asked_only_when_others_are_unsure(believed, asked):
    slow = Slow([1, 2, 3, 4])
    mix = MixDrafter([Copy([1, 2, 3, 4, 5, 6, 7, 8], believed), slow])
    mix.propose([view_at(5)], [BUDGET])
    assert slow.asked == asked
    assert mix.spent == ({"slow": Spent(4, 0.1)} if asked else {})


def test_prices_no_choice_earns_do_not_stop_guessing():
    """Copying ran at five times plain speed; now there is nothing to copy, and a good draft is better than none."""
    price = Budget(8, 8, 5 * 0.05 * np.arange(9.0), {"slow": 5 * 0.2}, plain=5.0)
    for known, asked in ((price, 1), (Budget(8, 8, price.price, price.step), 0)):  # untold, it cannot be seen
        slow = Slow([1, 2, 3, 4])
        MixDrafter([Copy([], 0.5), slow]).propose([view_at(5)], [known])
        assert slow.asked == asked
    (draft,) = MixDrafter([Copy([1, 2], 0.7)]).propose([view_at(5)], [Budget(8, 8, price.price, {}, 5.0)])
    assert draft.drafted == 2
    hopeless = Slow([1, 2, 3, 4])
    mix = MixDrafter([Copy([1, 2], 0.01), hopeless])
    (draft,) = mix.propose([view_at(5)], [Budget(8, 8, 5 * 0.5 * np.arange(9.0), {"slow": math.inf}, 5.0)])
    assert not draft.drafted
    assert not hopeless.asked


def test_a_copy_is_no_longer_than_earns_most():
    """One of nine in ten: five guesses make the most of their time; at plain speed's price, eight pay as well."""
    price = 0.3 * np.arange(9.0)
    for plain, drafted in ((1.0, 5), (0.0, 8)):
        (draft,) = MixDrafter([Copy([1] * 8, 0.9)]).propose([view_at(5)], [Budget(8, 8, price, {}, plain)])
        assert draft.drafted == drafted
    slow = Slow([1] * 8)  # what a model says of this round says nothing of the next one
    (draft,) = MixDrafter([slow]).propose([view_at(5)], [Budget(8, 8, 0.05 * np.arange(9.0), {"slow": 0.01}, 1.0)])
    assert draft.drafted == 8


def test_a_drafter_that_is_never_right_is_no_longer_asked():
    slow = Slow([1, 2, 3, 4])
    mix = MixDrafter([slow])
    for _ in range(40):
        (draft,) = mix.propose([view_at(5)], [BUDGET])
        mix.observe(view_at(5), draft, Verified(draft.tree, (), np.array([9], np.int32), np.zeros((1, 10))))
    assert 1 <= slow.asked < 10, slow.asked


def test_members_learn_from_their_pruned_guesses_too():
    one, two = Copy([1, 2, 3], 0.9), Copy([1, 5, 6], 0.01, "other")
    mix = MixDrafter([one, two])
    (draft,) = mix.propose([view_at(5)], [Budget(8, 8, 0.3 * np.arange(9.0))])
    assert draft.tree.tokens.tolist() == [0, 1, 2, 3], "what is unlikely does not pay"
    mix.observe(view_at(5), draft, Verified(draft.tree, (1,), np.array([1, 5], np.int32), np.zeros((4, 10))))
    assert one.learnt == [(3, [1])]
    assert two.learnt == [(3, [1, 2])]


def test_a_sequence_not_using_a_source_leaves_it_to_others():
    """Prices differ within a batch: endless for one sequence, nothing for another."""
    free, slow = Slow([1, 2, 3]), Slow([4, 5])
    free.sources = ("free",)
    mix = MixDrafter([free, slow])
    views = [View(i, np.array([7, 8], np.int32), GREEDY) for i in range(3)]
    price = 0.2 * np.arange(9)
    budgets = [
        Budget(8, 8, price, {"free": np.inf, "slow": 0.01}),
        Budget(8, 8, price, {"slow": np.inf}),
        Budget(2, 2, None, {"free": np.inf}),  # a probe
    ]
    first, second, third = mix.propose(views, budgets)
    assert first.tree.tokens.tolist() == [8, 4, 5]
    assert second.tree.tokens.tolist() == [8, 1, 2, 3]
    assert third.tree.tokens.tolist() == [8, 4, 5]
    assert (free.asked, slow.asked) == (1, 2)
