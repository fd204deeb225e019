"""Speculation changes nothing but the time: token for token, for every drafter, in batches, at every end.

On `TinyModel`, whose logits depend on every token in its cache; the cache is recounted after every round.
"""

import logging

import numpy as np
import pytest
from parity_tools import LENGTHS, engine_of, plain_tokens, run
from sweep import sweep

from paceline.core.request import SamplingParams
from paceline.draft.base import NoDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.sequence import Request
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush, gappy, half_liar, liar, oracle

VOCAB = 16
GREEDY, SAMPLED = SamplingParams(max_tokens=40), SamplingParams(0.8, seed=3, max_tokens=40)
BOTH = pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "T=0.8"])
SCRIPTS = {
    "oracle": lambda: oracle,
    "liar": lambda: liar(VOCAB),
    "half-liar 1": lambda: half_liar(VOCAB, 1),
    "half-liar 2": lambda: half_liar(VOCAB, 2),
    "half-liar 5": lambda: half_liar(VOCAB, 5),
    "gappy": gappy,
    "gappy half-liar": lambda: gappy(half_liar(VOCAB, 1)),
    "bush with the right path": lambda: bush(VOCAB, right_for=16),
    "bush right for one": lambda: bush(VOCAB, right_for=1),
    "bush without": lambda: bush(VOCAB, right_for=0),
}


def prompts_of(*lengths, seed=0, vocab=VOCAB):
    chance = np.random.default_rng(seed)
    return [chance.integers(vocab, size=length).tolist() for length in lengths]


@BOTH
@pytest.mark.parametrize("length", sweep((1, 2, 3, 4, 8, 16), fast=(3,)))
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripted_drafters_change_nothing(name, length, params):
    model = TinyModel(VOCAB, reach=None)
    (prompt,) = prompts_of(29)
    answer = plain_tokens(model, prompt, params)
    (plain,) = run(model, [prompt], params)
    drafter = ScriptedDrafter(SCRIPTS[name](), {0: answer})
    (said,) = run(model, [prompt], params, drafter, length=length)
    assert said.key() == plain.key()
    assert drafter.released == [0]
    assert said.metrics.rounds <= len(plain.tokens)
    if name == "oracle":
        assert said.metrics.rounds == 1 + -(-39 // (length + 1)), "after the prompt's, rounds commit all and the bonus"
    if name in ("liar", "bush without"):
        assert said.metrics.accepted_tokens == 0
        assert said.metrics.rounds == 40
    if name == "bush with the right path":
        assert said.metrics.acceptance_rate > 0.5


@BOTH
@pytest.mark.parametrize("reach", [1, 2, None])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("seed", sweep(range(3), fast=(0,)))
def test_ngram_drafts_change_nothing(seed, length, reach, params):
    model = TinyModel(VOCAB, reach=reach, seed=seed, sharpness=4)
    (prompt,) = prompts_of(20, seed=seed, vocab=4)
    (plain,) = run(model, [prompt], params)
    (said,) = run(model, [prompt], params, NgramDrafter(), length=length)
    assert said.key() == plain.key()
    if reach == 1 and params is GREEDY and length >= 4:
        assert said.metrics.acceptance_length > 2, "greedy over pairs soon repeats itself"


@BOTH
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("draft", ["itself", "a blunter copy", "a stranger"])
def test_model_drafts_change_nothing(draft, length, params):
    model = TinyModel(VOCAB, reach=4, seed=1)
    others = {
        "itself": TinyModel(VOCAB, reach=4, seed=1),
        "a blunter copy": TinyModel(VOCAB, reach=4, seed=1, sharpness=0.7),
        "a stranger": TinyModel(VOCAB, reach=None, seed=9),
    }
    (prompt,) = prompts_of(33)
    (plain,) = run(model, [prompt], params)
    (said,) = run(model, [prompt], params, ModelDrafter(others[draft], context=512), length=length)
    assert said.key() == plain.key()
    if draft == "itself":
        assert said.metrics.acceptance_rate == 1
        assert said.metrics.rounds == 1 + -(-39 // (length + 1))


# ---- batches


@BOTH
@pytest.mark.parametrize("name", ["ngram", "model", "oracle", "half-liar", "gappy", "bush"])
def test_a_batch_says_what_each_says_alone(name, params):
    """Prompts of 3, 17, 60 and 200 tokens together; one ends early, the others do not notice."""
    model = TinyModel(VOCAB, reach=None, seed=2, context=1024)
    prompts = prompts_of(3, 17, 60, 200)
    each = [SamplingParams(params.temperature, seed=s, max_tokens=m) for s, m in ((1, 40), (2, 5), (1, 33), (9, 40))]
    alone = [run(model, [p], one, context=1024)[0] for p, one in zip(prompts, each, strict=True)]
    answers = {i: [*p, *said.tokens] for i, (p, said) in enumerate(zip(prompts, alone, strict=True))}
    drafter = {
        "ngram": NgramDrafter,
        "model": lambda: ModelDrafter(TinyModel(VOCAB, reach=3, context=1024), context=1024),
        "oracle": lambda: ScriptedDrafter(oracle, answers),
        "half-liar": lambda: ScriptedDrafter(half_liar(VOCAB, 2), answers),
        "gappy": lambda: ScriptedDrafter(gappy(), answers),
        "bush": lambda: ScriptedDrafter(bush(VOCAB, right_for=2), answers),
    }[name]()
    together = run(model, prompts, each, drafter, context=1024)
    assert [said.key() for said in together] == [said.key() for said in alone]


def test_a_queue_longer_than_the_slots_says_the_same():
    model = TinyModel(VOCAB, reach=None)
    prompts = prompts_of(*range(1, 12))
    alone = [run(model, [prompt], SAMPLED)[0].key() for prompt in prompts]
    for slots in (1, 2, 3, 11):
        said = run(model, prompts, SAMPLED, NgramDrafter(), slots=slots, context=1024)
        assert [one.key() for one in said] == alone, slots


def test_a_prefix_found_in_the_cache_changes_nothing():
    model = TinyModel(VOCAB, reach=None)
    (prompt,) = prompts_of(150)
    plain = run(model, [prompt], SAMPLED)[0]
    engine = engine_of(model, NgramDrafter())
    for turn in range(3):
        engine.add(Request(turn, prompt, SAMPLED))
        before = model.forwards
        said = [token for event in engine.run() for token in event.tokens]
        assert said == plain.tokens
        assert model.forwards - before <= 41
    assert engine.cache.held() == 0


# ---- the end token


@BOTH
@pytest.mark.parametrize("length", LENGTHS)
def test_an_end_token_ends_the_text_anywhere_in_a_block(length, params):
    """The drafter knows how the text would go on, and drafts past the end."""
    vocab = 64
    model = TinyModel(vocab, reach=None, seed=5)
    (prompt,) = prompts_of(7, vocab=vocab)
    answer = plain_tokens(model, prompt, params)
    output, tried = answer[len(prompt) :], 0
    for place, token in enumerate(output[: 2 * length + 3]):
        if token in output[:place]:
            continue
        tried += 1
        tokenizer = ByteTokenizer([bytes([33 + i]) for i in range(vocab)], eos_ids=[token], special=[token])
        (said,) = run(model, [prompt], params, ScriptedDrafter(oracle, {0: answer}), length=length, tokenizer=tokenizer)
        assert said.tokens == output[: place + 1]
        assert said.finish_reason == "stop"
        assert said.text == tokenizer.decode(output[:place])
        ignoring = SamplingParams(params.temperature, seed=params.seed, max_tokens=40, ignore_eos=True)
        (said,) = run(
            model, [prompt], ignoring, ScriptedDrafter(oracle, {0: answer}), length=length, tokenizer=tokenizer
        )
        assert (said.tokens, said.finish_reason) == (output, "length")
    assert tried >= 3


# ---- how long


@pytest.mark.parametrize("count", sweep((1, 2, 3, 5, 7, 31, 32, 33), fast=(1, 2, 5, 32)))
@pytest.mark.parametrize("length", LENGTHS)
def test_never_more_tokens_than_asked(count, length):
    model = TinyModel(VOCAB, reach=1, seed=1)
    prompt = [1, 2, 3, 4] * 8
    answer = plain_tokens(model, prompt, SamplingParams(max_tokens=64))
    for drafter in (NgramDrafter(), ScriptedDrafter(oracle, {0: answer})):
        (said,) = run(model, [prompt], SamplingParams(max_tokens=count), drafter, length=length)
        assert said.tokens == answer[len(prompt) :][:count]
        assert said.finish_reason == "length"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["oracle", "bush with the right path", "half-liar 1"])
def test_the_context_is_used_exactly_to_its_last_token(name, length):
    model = TinyModel(VOCAB, reach=None, context=64)
    (prompt,) = prompts_of(20)
    params = SamplingParams(max_tokens=1000)
    answer = plain_tokens(model, prompt, params, context=64)
    assert len(answer) == 64
    drafter = ScriptedDrafter(SCRIPTS[name](), {0: answer})
    (said,) = run(model, [prompt], params, drafter, length=length, context=64)
    assert (said.tokens, said.finish_reason) == (answer[20:], "length")


# ---- a draft model that reads less than the target


@BOTH
def test_text_that_outgrows_the_draft_is_drafted_from_its_end(params, caplog):
    model = TinyModel(VOCAB, reach=4, context=1024, seed=1)
    draft = TinyModel(VOCAB, reach=4, context=128, seed=1)
    (prompt,) = prompts_of(100)
    long = SamplingParams(params.temperature, seed=params.seed, max_tokens=300)
    (plain,) = run(model, [prompt], long, context=1024)
    drafter = ModelDrafter(draft, context=1024)
    with caplog.at_level(logging.WARNING):
        (said,) = run(model, [prompt], long, drafter, context=1024)
    assert said.key() == plain.key()
    assert len(caplog.records) == 1, [record.getMessage() for record in caplog.records]
    assert said.metrics.acceptance_length > 4, "its last four tokens tell this model everything"


def test_a_prompt_longer_than_the_draft_reads_is_answered(caplog):
    model = TinyModel(VOCAB, reach=4, context=1024)
    (prompt,) = prompts_of(200)
    (plain,) = run(model, [prompt], SAMPLED, context=1024)
    (said,) = run(model, [prompt], SAMPLED, ModelDrafter(TinyModel(VOCAB, context=128), context=1024), context=1024)
    assert said.key() == plain.key()
    assert len(caplog.records) == 1


# ---- a sliding window


@BOTH
@pytest.mark.parametrize("prompt_length", sweep((5, 40), fast=(5,)))
@pytest.mark.parametrize("length", LENGTHS)
def test_refused_drafts_across_a_window_change_no_text(length, prompt_length, params):
    model = TinyModel(VOCAB, reach=16)
    (prompt,) = prompts_of(prompt_length)
    long = SamplingParams(params.temperature, seed=params.seed, max_tokens=100)
    answer = plain_tokens(model, prompt, long)
    for script in (half_liar(VOCAB, 1), bush(VOCAB, right_for=2)):
        (said,) = run(model, [prompt], long, ScriptedDrafter(script, {0: answer}), length=length)
        assert said.tokens == answer[prompt_length:]


# ---- stop strings, cancelling, work


@pytest.mark.parametrize("length", sweep((1, 2, 3, 4, 8, 16), fast=(1, 4)))
def test_a_stop_string_ends_the_text_wherever_it_falls(length):
    """Stop strings of three tokens at every place, so that they span blocks as well."""
    model = TinyModel(VOCAB, reach=None)
    (prompt,) = prompts_of(9)
    answer = plain_tokens(model, prompt, SAMPLED)
    text = ByteTokenizer.letters(VOCAB).decode(answer[9:])
    for place in range(24):
        stop = text[place : place + 3]
        params = SamplingParams(0.8, seed=3, max_tokens=40, stop=(stop, "zz"))
        for drafter in (ScriptedDrafter(oracle, {0: answer}), NoDrafter()):
            (said,) = run(model, [prompt], params, drafter, length=length)
            assert said.text == text[: text.index(stop)]
            assert said.finish_reason == "stop"
            assert said.tokens == answer[9 : 9 + text.index(stop) + 3]


@pytest.mark.parametrize("name", ["ngram", "model", "oracle"])
@pytest.mark.parametrize("after", sweep((0, 1, 2, 4), fast=(1, 4)))
def test_a_cancelled_request_leaves_nothing_behind_and_others_alone(name, after):
    model = TinyModel(VOCAB, reach=None, context=1024)
    prompts = prompts_of(40, 300, 12)  # the second is still being read when it is cancelled
    alone = [run(model, [prompt], SAMPLED, context=1024)[0].tokens for prompt in prompts]
    answers = {i: [*prompt, *tokens] for i, (prompt, tokens) in enumerate(zip(prompts, alone, strict=True))}
    drafter = {
        "ngram": NgramDrafter,
        "model": lambda: ModelDrafter(TinyModel(VOCAB, reach=3, context=1024), context=1024),
        "oracle": lambda: ScriptedDrafter(oracle, answers),
    }[name]()
    for cancelled in range(3):
        engine = engine_of(model, drafter, context=1024)
        for i, prompt in enumerate(prompts):
            engine.add(Request(i, prompt, SAMPLED))
        said = {i: [] for i in range(3)}
        for turn in range(100):
            if turn == after:
                engine.cancel(cancelled)
                engine.cancel(cancelled)  # once more changes nothing
                engine.cancel(77)  # never heard of
            if engine.is_idle:
                break
            for event in engine.step():
                assert event.request != cancelled or turn < after
                said[event.request] += event.tokens
            engine.cache.check()
        assert engine.cache.held() == 0
        for i in range(3):
            assert said[i] == (alone[i][: len(said[i])] if i == cancelled else alone[i])


def test_speculation_never_takes_more_forwards_than_tokens():
    (prompt,) = prompts_of(20)
    for name, make in SCRIPTS.items():
        model = TinyModel(VOCAB, reach=None)
        answer = plain_tokens(model, prompt, SAMPLED)
        before = model.forwards
        run(model, [prompt], SAMPLED, ScriptedDrafter(make(), {0: answer}))
        assert model.forwards - before <= 40, name


@pytest.mark.parametrize("seed", sweep(range(20), fast=range(8)))
def test_random_schedules_change_nothing(seed):
    """Prompts, ends, limits, drafters, slots and cancellations by chance; every survivor says its own."""
    chance = np.random.default_rng(seed)
    model = TinyModel(VOCAB, reach=None, seed=seed, context=1024)
    count = int(chance.integers(1, 7))
    prompts = prompts_of(*chance.integers(1, 80, count).tolist(), seed=seed)
    tokenizer = ByteTokenizer.letters(VOCAB, eos_ids=[int(chance.integers(VOCAB))])
    params = [
        SamplingParams(float(chance.choice([0, 0.8, 2.0])), seed=i, max_tokens=int(chance.integers(1, 40)))
        for i in range(count)
    ]
    settings = {"context": 1024, "tokenizer": tokenizer}
    alone = [run(model, [p], one, **settings)[0] for p, one in zip(prompts, params, strict=True)]
    answers = {i: [*p, *one.tokens, *p, *p] for i, (p, one) in enumerate(zip(prompts, alone, strict=True))}
    scripts = list(SCRIPTS.values())
    drafter = ScriptedDrafter(scripts[int(chance.integers(len(scripts)))](), answers, seed=seed)
    length, slots = int(chance.integers(1, 17)), int(chance.integers(1, 9))
    together = run(model, prompts, params, drafter, length=length, slots=slots, **settings)
    assert [one.key() for one in together] == [one.key() for one in alone]
