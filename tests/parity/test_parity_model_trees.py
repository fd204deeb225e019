"""Model drafts with cut-down heads, prices, runners-up and draws of their own: the output is plain decoding's."""

import numpy as np
import pytest
from parity_tools import run
from tiny import VOCAB, text, tiny

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.engine import Engine
from paceline.testing import TinyModel

PROMPTS = [text(1, 3), text(2, 17), text(3, 40)]
PARAMS = [SamplingParams(max_tokens=24), SamplingParams(0.9, top_p=0.95, seed=5, max_tokens=24)]


class Priced:
    """A controller that asks for another budget each round, with prices."""

    reason = ""

    def __init__(self, seed):
        self.chance = np.random.default_rng(seed)

    def budgets(self, views, load):
        return [self.budget() for _ in views]

    def budget(self):
        nodes, depth = int(self.chance.integers(0, 9)), int(self.chance.integers(0, 6))
        price = np.concatenate([[0.0], np.cumsum(np.full(nodes, self.chance.choice([0.0, 0.01, 0.2])))])
        return Budget(nodes, depth, price, {"model": 0.02})

    def observe(self, sequence_id, round):
        pass


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "seeded"])
@pytest.mark.parametrize("outputs", [None, 100])
def test_prices_trees_and_cut_heads_change_no_token(params, outputs, monkeypatch):
    target = tiny("llama")
    plain = run(target, PROMPTS, params)
    made = Engine.__init__

    def with_prices(self, model, tokenizer, drafter, controller, verifier, **settings):
        made(self, model, tokenizer, drafter, Priced(3), verifier, **settings)

    monkeypatch.setattr(Engine, "__init__", with_prices)
    ids = None if outputs is None else np.random.default_rng(0).permutation(VOCAB)[:outputs].astype(np.int32)
    drafter = ModelDrafter(tiny("llama", quant="q4"), context=512, outputs=ids)
    said = run(target, PROMPTS, params, drafter)
    assert [one.key() for one in said] == [one.key() for one in plain]
    assert sum(one.metrics.accepted_tokens for one in said) > 0


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "seeded"])
def test_a_draft_of_broken_numbers_guesses_nothing(params):
    target = TinyModel(12)
    broken = TinyModel(12, distribution=lambda seen: np.full(12, np.nan))
    prompts = [[1, 2, 3], [4, 5]]
    plain = run(target, prompts, params)
    said = run(target, prompts, params, ModelDrafter(broken, context=512))
    assert [one.key() for one in said] == [one.key() for one in plain]
    assert sum(one.metrics.drafted_tokens for one in said) == 0


def drafts_of(draws, seeds, budget, length=3):
    model = TinyModel(6, reach=2, sharpness=1.0)
    tokens = np.arange(length, dtype=np.int32) % 6
    drafter = ModelDrafter(model, context=128, draws=draws)
    views = [View(seed, tokens, SamplingParams(0.8, seed=seed)) for seed in seeds]
    return [drafter.propose([view], [budget])[0] for view in views]


@pytest.mark.parametrize("draws", ["chain", "tree", "greedy_tree"])
def test_guesses_drawn_for_weighing_keep_their_distributions(draws):
    drafts = drafts_of(draws, range(6), Budget(6, 2))
    for draft in drafts:
        children = draft.tree.children(0)
        assert len(children) == (1 if draws == "chain" else 3)
        distribution = draft.distributions[0]
        assert abs(distribution.sum() - 1) < 1e-12
        tokens = draft.tree.tokens[children].tolist()
        assert len(set(tokens)) == len(tokens), "without replacement"
        if draws == "greedy_tree":
            assert (distribution[tokens[:2]] == 0).all(), "the distribution of the drawn one is that of the rest"
            assert distribution[tokens[2]] > 0
            assert draft.drawn[children].tolist() == [False, False, True]
        else:
            assert draft.drawn[children].all()
        assert len(draft.distributions) == 2


def test_drawn_siblings_follow_the_drafts_distribution_without_replacement():
    """600 seeds; each frequency within 5 standard deviations: a false alarm in one of 10^5 runs."""
    count = 600
    model = TinyModel(6, reach=2, sharpness=1.0)
    drafter = ModelDrafter(model, context=64, draws="tree")
    tokens, pairs, distribution = np.array([0, 1, 2], np.int32), np.zeros((6, 6)), None
    for seed in range(count):
        view = View(0, tokens, SamplingParams(0.8, seed=seed))
        (draft,) = drafter.propose([view], [Budget(2, 1)])
        pairs[tuple(draft.tree.tokens[1:])] += 1
        distribution = draft.distributions[0]
    expected = distribution[:, None] * distribution[None] / (1 - distribution[:, None])
    np.fill_diagonal(expected, 0)
    deviation = np.sqrt(count * expected * (1 - expected)) + 1e-9
    assert (np.abs(pairs - count * expected) / np.maximum(deviation, 1)).max() < 5


def test_no_round_draws_with_the_noise_of_another():
    """The same position, drafted after one more token, is drawn anew."""
    same = 0
    for seed in range(60):
        uniform = TinyModel(6, distribution=lambda seen: np.zeros(6))
        drafter = ModelDrafter(uniform, context=64, draws="chain")
        params = SamplingParams(1.0, seed=seed)
        first, second = (
            drafter.propose([View(0, np.zeros(n, np.int32), params)], [Budget(3, 3)])[0].tree.tokens for n in (3, 4)
        )
        same += int(first[2] == second[1])  # both stand at position 4
    assert same < 30, f"{same} of 60 agree; chance gives 10"
