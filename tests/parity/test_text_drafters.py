"""Drafters that need no model change nothing but the time: chains and trees, alone and in a batch.

Their state after any schedule of rounds is that of a drafter that sees the text for the first time.
"""

import numpy as np
import pytest
from parity_tools import engine_of, run
from sweep import sweep
from test_parity import BOTH, VOCAB, prompts_of

from paceline.core.request import SamplingParams
from paceline.core.round import Budget
from paceline.draft.lookup.corpus import Corpus
from paceline.draft.lookup.predicted import PredictedDrafter
from paceline.draft.lookup.recycle import RecycleDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.engine.sequence import Request
from paceline.lab.lookahead import LookaheadDrafter
from paceline.testing import ByteTokenizer, TinyModel

LETTERS = ByteTokenizer.letters(VOCAB)
MAKERS = {
    "suffix": SuffixDrafter,
    "suffix and corpus": lambda is_chain=False: SuffixDrafter(Corpus(LETTERS), is_chain=is_chain),
    "recycle": lambda is_chain=False: RecycleDrafter(VOCAB, is_chain=is_chain),
    "predicted": PredictedDrafter,
    "lookahead": LookaheadDrafter,
}
NAMES = pytest.mark.parametrize("name", MAKERS)


class Tree:
    """Asks for `nodes` nodes of at most `depth` each round, at a price if there is one."""

    reason = ""

    def __init__(self, nodes, depth, price=None):
        self.budget = Budget(nodes, depth, price)

    def budgets(self, views, load):
        return [self.budget] * len(views)

    def observe(self, sequence_id, round):
        pass


def play(model, prompts, params, drafter, controller, predictions=None):
    """Reply side by side and return what was said, drafted and kept."""
    engine = engine_of(model, drafter, context=512)
    engine.parts = type(engine.parts)(
        **{f: getattr(engine.parts, f) for f in engine.parts.__slots__} | {"controller": controller}
    )
    for i, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        engine.add(Request(i, prompt, one, predictions and predictions[i]))
    said, drafted, accepted, widest = [[] for _ in prompts], 0, 0, 0
    for event in engine.run():
        said[event.request] += event.tokens
        drafted += sum(event.round.drafted)
        accepted += sum(event.round.accepted)
        widest = max(widest, max(event.round.drafted, default=0))
    assert engine.cache.held() == 0
    return said, drafted, accepted, widest


@BOTH
@NAMES
@pytest.mark.parametrize("length", sweep((1, 2, 7), fast=(2,)))
def test_guesses_change_nothing(name, params, length):
    """Alone and in a batch, as chains and trees of every size; `reach` 1 repeats itself, `None` never does."""
    for reach, seed in ((1, 1), (None, 2)):
        model = TinyModel(VOCAB, reach=reach, seed=seed, sharpness=4)
        prompts = prompts_of(3, 17, 60, seed=seed, vocab=4)
        each = [SamplingParams(params.temperature, seed=s, max_tokens=m) for s, m in ((1, 30), (2, 5), (9, 24))]
        plain = [run(model, [p], one)[0].tokens for p, one in zip(prompts, each, strict=True)]
        predictions = [[*p[:9], 1, 2, *p[12:]] for p in plain]
        for is_chain in (False, True):
            drafter, total = MAKERS[name](is_chain=is_chain), 0
            (said, _, accepted, widest) = play(model, prompts, each, drafter, Tree(length, length), predictions)
            assert said == plain, (reach, is_chain)
            assert not is_chain or widest <= 1
            total += accepted
            for price in (None, 0.2 * np.arange(25)):
                said, _, accepted, widest = play(model, prompts, each, drafter, Tree(24, 5, price), predictions)
                assert said == plain, (reach, is_chain, price)
                total += accepted
            if reach is None:
                alone = [
                    play(model, [p], [one], MAKERS[name](is_chain=is_chain), Tree(8, 4), [expected])[0][0]
                    for p, one, expected in zip(prompts, each, predictions, strict=True)
                ]
                assert alone == plain
            if params.is_greedy and reach == 1:
                assert total > 10, "greedy over pairs soon repeats itself"
