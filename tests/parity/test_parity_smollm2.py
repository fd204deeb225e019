"""The same promise on a real model and its real kernels: SmolLM2-135M, where it is on this machine."""

from dataclasses import replace

import numpy as np
import pytest
from parity_tools import run

from paceline.core.request import SamplingParams
from paceline.draft.lookup.corpus import Corpus
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.lookup.predicted import PredictedDrafter
from paceline.draft.lookup.recycle import RecycleDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.formats.catalog import models_folder
from paceline.lab.lookahead import LookaheadDrafter
from paceline.testing import ScriptedDrafter, TinyModel, bush, gappy, half_liar, liar, oracle

FILE = models_folder() / "smollm2-135m.gguf"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE} is not there; `paceline pull smollm2-135m`")

# fmt: off
PROMPTS = [
    "Repeat after me: one two three four. one two three", "The capital of France is", "def add(a, b):\n    return",
    "Once upon a time", "Q: What is 2 + 2?\nA:", "The quick brown fox jumps over the lazy dog. The quick brown",
    "import numpy as np\n\nx = np.zeros(", "안녕하세요", "1, 2, 3, 4, 5, 6,", "Dear Sir,", "<html>\n<head>\n<title>",
    "To be, or not to be", "a b c d e f g a b c d e f g a b c", "My favourite food is", "SELECT name FROM users WHERE",
    "In 1492,", "for i in range(10):\n    print(i)\nfor i in range(10):", "Hello", "The sum of the first n numbers is",
    "{\"name\": \"Ann\", \"age\": 3}\n{\"name\": \"Bob\",",
]
# fmt: on
TEMPERATURES = pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "T=0.8"])


@pytest.fixture(scope="module")
def target(loaded):
    return loaded(draft="off", context=1024)


@pytest.fixture(scope="module")
def requantised(loaded):
    return loaded(draft="off", context=1024, quant="q4").engine.parts.model


def stranger(vocab):
    """A tiny model of random logits over the target's vocabulary."""

    def distribution(seen):
        logits = np.zeros(vocab, np.float32)
        logits[np.random.default_rng(int(seen.sum())).integers(vocab, size=50)] = 8
        return logits

    return TinyModel(vocab, reach=2, context=1024, distribution=distribution)


WITHOUT_MODEL = ("suffix", "suffix:corpus", "recycle", "predicted", "lookahead")


def drafter_of(name, target, requantised, answers):
    vocab = target.engine.parts.model.spec.vocab
    return {
        "ngram": NgramDrafter,
        "suffix": SuffixDrafter,
        "suffix:corpus": lambda: SuffixDrafter(Corpus.build(PROMPTS, target.tokenizer)),
        "recycle": lambda: RecycleDrafter(vocab),
        "predicted": PredictedDrafter,
        "lookahead": LookaheadDrafter,
        "model": lambda: ModelDrafter(requantised, context=1024),
        "stranger": lambda: ModelDrafter(stranger(vocab), context=1024),
        "oracle": lambda: ScriptedDrafter(oracle, answers),
        "liar": lambda: ScriptedDrafter(liar(vocab), answers),
        "gappy": lambda: ScriptedDrafter(gappy(), answers),
        "half-liar": lambda: ScriptedDrafter(half_liar(vocab, 2), answers),
        "bush": lambda: ScriptedDrafter(bush(vocab, right_for=3), answers),
    }[name]()


_PLAIN = {}


def plain_of(target, temperature, prompts, count):
    """Ids, settings and plain replies, each prompt alone; remembered, for every drafter has to say the same."""
    key = temperature, len(prompts), count
    if key not in _PLAIN:
        ids = [target.encode(prompt) for prompt in prompts]
        params = [SamplingParams(temperature, seed=i, max_tokens=count) for i in range(len(prompts))]
        model, settings = target.engine.parts.model, {"tokenizer": target.tokenizer, "context": 1024, "check": False}
        plain = [run(model, [p], one, **settings)[0] for p, one in zip(ids, params, strict=True)]
        _PLAIN[key] = ids, params, plain
    return _PLAIN[key]


def compare(target, requantised, name, temperature, lengths, prompts, count):
    """Each prompt plain and alone, then all of them drafted for and side by side."""
    model, settings = target.engine.parts.model, {"tokenizer": target.tokenizer, "context": 1024, "check": False}
    prompts, params, plain = plain_of(target, temperature, prompts, count)
    answers = {i: [*p, *said.tokens] for i, (p, said) in enumerate(zip(prompts, plain, strict=True))}
    accepted = 0
    for length in lengths:
        drafter = drafter_of(name, target, requantised, answers)
        # One in three tokens of what is expected is wrong.
        expected = [[t if i % 3 else 1000 for i, t in enumerate(one.tokens)] for one in plain]
        said = run(model, prompts, params, drafter, length=length, slots=4, predictions=expected, **settings)
        for i, (one, other) in enumerate(zip(said, plain, strict=True)):
            assert one.key() == other.key(), (name, temperature, length, i)
            assert "\ufffd" not in "".join(one.deltas[:-1])
        accepted += sum(one.metrics.accepted_tokens for one in said)
    return accepted


@TEMPERATURES
@pytest.mark.parametrize("name", ["ngram", "model", "stranger", "oracle", "half-liar", "bush"])
def test_speculation_changes_no_token(target, requantised, name, temperature):
    accepted = compare(target, requantised, name, temperature, [4], PROMPTS[:3], 8)
    assert accepted == 0 if name == "stranger" else accepted > 0 or name == "ngram"


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_drafters_without_a_model_change_no_token(target, requantised, name):
    """Greedy as well in the long run below."""
    compare(target, requantised, name, 0.8, [8], PROMPTS[:3], 8)


@pytest.mark.slow
@TEMPERATURES
@pytest.mark.parametrize("name", ["ngram", "model", "stranger", "oracle", "half-liar", "bush", *WITHOUT_MODEL])
def test_speculation_changes_no_token_of_twenty_prompts_at_any_length(target, requantised, name, temperature):
    compare(target, requantised, name, temperature, range(1, 17), PROMPTS, 24)


# ---- penalties that other programs ignored under speculation

HELLO = "Repeat the word 'hello': hello"
PENALTIES = [{}, {"frequency_penalty": -2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 1.3}]


@pytest.fixture(scope="module")
def penalised(target):
    """Prompt, settings and what plain decoding says: no two the same."""
    params = [SamplingParams(max_tokens=9, logprobs=2, ignore_eos=True, **one) for one in PENALTIES]
    prompts = [target.encode(HELLO)] * len(params)
    plain = run(target.engine.parts.model, prompts, params, tokenizer=target.tokenizer, context=1024, check=False)
    assert len({tuple(said.tokens) for said in plain}) == len(params)
    return prompts, params, plain


@pytest.mark.parametrize(
    "name",
    [
        "ngram",
        "model",
        "oracle",
        "bush",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("liar", "half-liar", "gappy")),
    ],
)
def test_penalties_hold_with_every_drafter(target, requantised, penalised, name):
    prompts, params, plain = penalised
    answers = {i: [*prompts[i], *said.tokens] for i, said in enumerate(plain)}
    drafter = drafter_of(name, target, requantised, answers)
    said = run(
        target.engine.parts.model, prompts, params, drafter, tokenizer=target.tokenizer, context=1024, check=False
    )
    for one, other in zip(said, plain, strict=True):
        assert one.key() == other.key()
        assert one.logprobs == other.logprobs
        if name == "oracle":
            assert one.metrics.rounds <= 3


def test_bad_words_are_not_written(target):
    params = SamplingParams(max_tokens=6)
    free = target.generate("The capital of France is", params).text
    assert "Paris" in free
    assert "Paris" not in target.generate("The capital of France is", replace(params, bad_words=("Paris",))).text
