"""Penalties that other programs ignored under speculation, on a tiny model; on a real one, test_parity_smollm2.py."""

import pytest
from parity_tools import run
from sweep import sweep

from paceline.core.request import SamplingParams
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.errors import UsageError
from paceline.testing import ScriptedDrafter, TinyModel, bush, gappy, half_liar, liar, oracle

SETTINGS = [
    {},
    {"frequency_penalty": -2.0},
    {"frequency_penalty": 2.0},
    {"repetition_penalty": 1.3},
]


@pytest.mark.parametrize("length", sweep((1, 4, 16), fast=(4,)))
def test_penalties_hold_on_a_tiny_model(length):
    vocab, prompt = 16, [3, 1, 4, 1, 5]
    model = TinyModel(vocab, reach=2, seed=2)
    params = [SamplingParams(max_tokens=40, **one) for one in SETTINGS]
    plain = [run(model, [prompt], one)[0] for one in params]
    assert len({tuple(said.tokens) for said in plain}) == 4
    answers = {i: [*prompt, *said.tokens] for i, said in enumerate(plain)}
    for drafter in (
        NgramDrafter(),
        ModelDrafter(TinyModel(vocab, reach=2, seed=2, sharpness=1.0), context=512),
        *(
            ScriptedDrafter(script, answers)
            for script in (oracle, liar(vocab), half_liar(vocab, 2), gappy(), bush(vocab, right_for=3))
        ),
    ):
        said = run(model, [prompt] * 4, params, drafter, length=length)
        assert [one.key() for one in said] == [one.key() for one in plain]


def test_a_repetition_penalty_of_0_is_refused_by_name():
    with pytest.raises(UsageError, match=r"repetition_penalty must be from 0\.01 to 100; 1 is off, got `0`"):
        run(TinyModel(16), [[1, 2]], SamplingParams(repetition_penalty=0))
