"""Under a floor a draft model stops where it is unsure by its own word, in native code as step by step."""

from dataclasses import replace

import numpy as np
import pytest
from test_native_drafting import play, some_outputs
from tiny import text, tiny

from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget, Floor
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.model.steps import entropy
from paceline.service.llm import LLM
from paceline.testing import TinyModel

VOCAB = 16


def sureness(logits, temperature, guess, *, by_entropy):
    """By the book: softmax, then the guess's probability or the entropy of all."""
    scaled = np.float64(logits) / (temperature or 1.0)
    distribution = np.exp(scaled - scaled.max())
    distribution /= distribution.sum()
    return 1 - np.sqrt(-0.2 * (distribution * np.log(distribution)).sum()) if by_entropy else distribution[guess]


def moody(seen):
    """A distribution that is sometimes sharp and sometimes flat."""
    chance = np.random.default_rng(seen.tolist())
    return chance.uniform(0.3, 5) * chance.standard_normal(VOCAB)


@pytest.mark.parametrize("by_entropy", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_chain_ends_before_its_first_unsure_guess(temperature, by_entropy):
    model, lengths = TinyModel(VOCAB, distribution=moody), set()
    for seed in range(12):
        start = np.random.default_rng(seed).integers(VOCAB, size=9).astype(np.int32)
        view = View(0, start, SamplingParams(temperature, seed=seed))
        free = ModelDrafter(model, context=128).propose([view], [Budget(8, 8)])[0].tree.tokens.tolist()
        said = [start.tolist() + free[1 : i + 1] for i in range(8)]
        sure = [
            sureness(model.logits_after(np.array(seen)), temperature, guess, by_entropy=by_entropy)
            for seen, guess in zip(said, free[1:], strict=True)
        ]
        for floor in (0.01, *map(float, np.quantile(sure, (0.2, 0.5, 0.8)))):
            wanted = next((i for i, value in enumerate(sure) if value < floor), 8)
            drafter = ModelDrafter(model, context=128)
            price = floor * np.arange(9)  # for look-ups: a draft model has its own word
            (draft,) = drafter.propose([view], [Budget(8, 8, price, floor=Floor(floor, by_entropy))])
            assert draft.tree.tokens.tolist() == free[: wanted + 1], (sure, floor)
            assert drafter.spent["model"].steps == min(wanted + 1, 8), "no step after the unsure one"
            lengths.add(wanted)
    assert len(lengths) > 4


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("floor", [*map(Floor, (0.0, 0.01, 0.02, 0.04)), *(Floor(x, True) for x in (-0.06, 0.0))])
def test_the_native_loop_stops_where_the_plain_one_does(floor, cut):
    """These models are flat: a likely token has a hundredth, and the entropy is near that of 300 alike."""
    outputs = some_outputs(3) if cut else None
    pair = [
        ModelDrafter(tiny("llama"), context=256, outputs=outputs, native=native, name="model")
        for native in (True, False)
    ]
    siblings = play(5, *pair, floor=floor)
    assert siblings == 0, "a floor asks for chains"


@pytest.mark.parametrize("draws", ["chain", "tree", "greedy_tree"])
def test_a_guess_drawn_from_its_own_distribution_stays_last(draws):
    """Dropping it for what it turned out to be would change the distribution."""
    drafter = ModelDrafter(TinyModel(VOCAB, seed=3), context=128, draws=draws)
    view = View(0, np.array([1, 2, 3], np.int32), SamplingParams(1.0))
    (draft,) = drafter.propose([view], [Budget(8, 4, floor=Floor(1.0))])
    assert max(draft.tree.depths()) == 1
    assert drafter.spent["model"].steps == 1


def test_entropy_is_that_of_the_distribution_without_filters():
    logits = np.array([0.0, np.log(2.0), -np.inf, np.log(5.0)], np.float32)
    distribution = np.array([1, 2, 5]) / 8
    assert entropy(logits, SamplingParams(1.0, top_k=1)) == pytest.approx(-(distribution * np.log(distribution)).sum())
    assert entropy(logits, SamplingParams()) == entropy(logits, SamplingParams(1.0))
    assert entropy(np.array([0.0, -np.inf], np.float32), SamplingParams()) == 0.0
    assert entropy(logits, SamplingParams(0.5)) < entropy(logits, SamplingParams(2.0))


@pytest.mark.parametrize("control", ["confidence", "entropy"])
def test_both_controls_draft_through_an_llm_without_changing_tokens(talker, control):
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    plain = LLM(talker, draft="off", context=256).generate("the cat", params)
    llm = LLM(talker, draft=str(talker), control=control, context=256, draft_quant="auto", draft_head=0)
    reply = llm.generate("the cat", params)
    assert reply.token_ids == plain.token_ids
    assert reply.metrics.accepted_tokens > 0
    assert ("by entropy" in reply.control_reason) == (control == "entropy")


class Never(FixedController):
    """Asks for guesses of which no draft can be sure."""

    def budgets(self, views, load):
        return [Budget(4, 4, floor=Floor(1.1))] * len(views)


def test_the_engine_hands_the_floor_on(talker):
    llm = LLM(talker, draft=str(talker), control="fixed", draft_tokens=4, context=256)
    with llm.engine.playing(replace(llm.engine.parts, controller=Never(4))):
        assert llm.generate("the cat", SamplingParams(max_tokens=9, ignore_eos=True)).metrics.drafted_tokens == 0


def test_a_text_goes_on_after_a_guess_was_dropped():
    model = tiny("llama")
    drafter = ModelDrafter(model, context=256)
    tokens = text(2, 20)
    for _ in range(4):
        view = View(0, np.array(tokens, np.int32), SamplingParams())
        (draft,) = drafter.propose([view], [Budget(4, 4, floor=Floor(0.0041))])
        drafter.cache.check()
        cached = drafter.cache.tokens(drafter.reader.handle(0))
        assert cached == [*tokens, *draft.tree.tokens[1:].tolist()][: len(cached)]
        tokens += [*draft.tree.tokens[1:3].tolist(), 7]
