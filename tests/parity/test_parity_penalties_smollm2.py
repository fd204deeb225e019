"""C03: penalties that others ignored under speculation, on a real model and on a tiny one.

"Repeat the word 'hello': hello" at temperature 0 with frequency_penalty -2 and +2, and repetition_penalty 1.3.
"""

from dataclasses import replace

import pytest
from parity_tools import run
from test_parity_smollm2 import FILE, drafter_of, requantised, target  # noqa: F401  (fixtures)

from paceline.draft.model import ModelDrafter
from paceline.draft.ngram import NgramDrafter
from paceline.errors import UsageError
from paceline.testing import ScriptedDrafter, TinyModel, bush, gappy, half_liar, liar, oracle
from paceline.types import SamplingParams

PROMPT = "Repeat the word 'hello': hello"
SETTINGS = [
    {},
    {"frequency_penalty": -2.0},
    {"frequency_penalty": 2.0},
    {"repetition_penalty": 1.3},
]
HERE = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not there; `paceline pull smollm2-135m`")


def all_differ(outputs):
    return len({tuple(output) for output in outputs}) == len(outputs)


@HERE
def test_penalties_hold_on_smollm2(target, requantised):  # noqa: F811
    settings = {"tokenizer": target.tokenizer, "context": 1024, "check": False}
    model, prompt = target.engine.parts.model, target.encode(PROMPT)
    params = [SamplingParams(max_tokens=9, logprobs=2, ignore_eos=True, **one) for one in SETTINGS]
    plain = run(model, [prompt] * 4, params, **settings)
    assert all_differ([said.tokens for said in plain])
    answers = {i: [*prompt, *said.tokens] for i, said in enumerate(plain)}
    for name in ("ngram", "model", "oracle", "half-liar", "bush", "liar", "gappy"):
        script = {"liar": liar(model.spec.vocab), "gappy": gappy()}.get(name)
        drafter = ScriptedDrafter(script, answers) if script else drafter_of(name, target, requantised, answers)
        said = run(model, [prompt] * 4, params, drafter, length=4, **settings)
        for one, other in zip(said, plain, strict=True):
            assert one.key() == other.key(), name
            assert one.logprobs == other.logprobs, name
            if name == "oracle":
                assert one.tally.rounds <= 3


@HERE
def test_bad_words_are_not_written_by_smollm2(target):  # noqa: F811
    params = SamplingParams(max_tokens=8)
    free = target.generate(PROMPT, params).text
    word = next(part for part in free.split() if part.strip("'.,\"").isalpha()).strip("'.,\"")
    text = target.generate(PROMPT, replace(params, bad_words=(word,))).text
    assert word in free
    assert word not in text.split(), (word, text)


@pytest.mark.parametrize("length", [1, 4, 16])
def test_penalties_hold_on_a_tiny_model(length):
    vocab, prompt = 16, [3, 1, 4, 1, 5]
    model = TinyModel(vocab, reach=2, seed=2)
    params = [SamplingParams(max_tokens=40, **one) for one in SETTINGS]
    plain = [run(model, [prompt], one)[0] for one in params]
    assert all_differ([said.tokens for said in plain])
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
