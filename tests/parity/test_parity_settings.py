"""Every setting of a distribution under speculation: the tokens and their log probabilities are those of plain
decoding.

On trees and in batches, greedy and seeded. What depends on the history must see the drafted path: verifiers that do not
are shown to say something else.
"""

from dataclasses import replace

import numpy as np
import pytest
from pairs import loaded, overlapping, permuted, setting_of
from parity_tools import engine_of, run
from sweep import sweep

from paceline.core.request import SamplingParams
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.loading import make_drafter
from paceline.engine.sequence import Request
from paceline.errors import NumericalError, ProcessorError, UsageError
from paceline.sample.coupled import adjust_fast, draw
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush, gappy, half_liar, liar, oracle
from paceline.verify.block import BlockVerifier
from paceline.verify.coupled import CoupledVerifier, walk
from paceline.verify.tree import RejectionVerifier, TreeVerifier

VOCAB, SPACE, END = 16, 14, 15
TOKENIZER = ByteTokenizer([*(bytes([97 + i]) for i in range(14)), b" ", b"."], eos_ids=[END])
PROMPT = np.random.default_rng(0).integers(14, size=29).tolist()
BASES = {
    "greedy": SamplingParams(max_tokens=32, ignore_eos=True),
    "T=0.8": SamplingParams(0.8, seed=3, max_tokens=32, ignore_eos=True),
}


def no_repeats(tokens, logits):
    """Ban what stands two tokens back: depends on the path and on nothing else."""
    logits[tokens[-2:]] = -np.inf
    return logits


def cooler(tokens, logits):
    return logits * np.float32(1.0 + len(tokens) % 3)


SETTINGS = {
    "repetition": {"repetition_penalty": 2.0},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.9},
    "frequency rewarded": {"frequency_penalty": -2.0},
    "bias": {"logit_bias": {0: 2.0, 3: -100, 7: 1.0}},
    "bad words": {
        "bad_words": ("c", "dea", *(chr(97 + a) + chr(97 + b) for a in range(14) for b in range(a % 3, 14, 3)))
    },
    "allowed": {"allowed_tokens": (0, 1, 2, 5, 9)},
    "min tokens": {"min_tokens": 20, "logit_bias": {END: 4.0}, "ignore_eos": False},
    "typical": {"typical_p": 0.6},
    "processors": {"logits_processors": (no_repeats, cooler)},
    "all": {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {2: 1.5, END: 2.0},
        "bad_words": ("b", "ca"),
        "min_tokens": 9,
        "ignore_eos": False,
        "typical_p": 0.9,
        "top_p": 0.95,
        "top_k": 9,
        "min_p": 0.01,
        "logits_processors": (no_repeats,),
    },
}
SETTING = pytest.mark.parametrize("setting", SETTINGS)
BASE = pytest.mark.parametrize("base", BASES)


def model_of(reach=None, seed=0, sharpness=2.0):
    return TinyModel(VOCAB, reach=reach, seed=seed, sharpness=sharpness, context=1024)


def said_by(params, drafter=None, prompts=(PROMPT,), model=None, **settings):
    return run(model or model_of(), list(prompts), params, drafter, tokenizer=TOKENIZER, **settings)


def drafters(answers):
    scripts = {
        "oracle": oracle,
        "liar": liar(VOCAB),
        "half-liar": half_liar(VOCAB, 2),
        "gappy": gappy(),
        "bush": bush(VOCAB, right_for=3),
        "wrong bush": bush(VOCAB, right_for=0),
    }
    yield "ngram", NgramDrafter()
    yield "itself", ModelDrafter(model_of(), context=1024)
    yield "blunter", ModelDrafter(model_of(sharpness=0.7), context=1024)
    for name, script in scripts.items():
        yield name, ScriptedDrafter(script, answers)


@BASE
@SETTING
@pytest.mark.parametrize("length", sweep((1, 4), fast=(4,)))
def test_drafts_change_no_token_and_no_log_probability(setting, base, length):
    params = replace(BASES[base], logprobs=3, **SETTINGS[setting])
    (plain,) = said_by(params)
    if (setting, base) != ("typical", "greedy"):
        assert plain.tokens != said_by(BASES[base])[0].tokens, "the setting must matter"
    assert len(plain.logprobs) == len(plain.tokens)
    answers = {0: [*PROMPT, *plain.tokens]}
    for name, drafter in drafters(answers):
        (said,) = said_by(params, drafter, length=3 * length if name == "bush" else length)
        assert said.key() == plain.key(), name
        assert said.logprobs == plain.logprobs, name
        if name in ("oracle", "itself"):
            assert said.metrics.rounds == 1 + -(-(len(plain.tokens) - 1) // (length + 1)), name


EVERY_DRAFTER = [
    "suffix", "recycle", "lookahead", "predicted", "blunt", "twin", "stranger", "staged:blunt", "ensemble:twin+blunt",
    "ensemble:stranger+twin", "branches:twin+stranger", "predicted,suffix,recycle,blunt",
]  # fmt: skip


def every_drafter(name):
    """A drafter by name: of the same tokens, of the same under other ids, and of others."""
    target = loaded("big", model_of(), TOKENIZER.pieces)
    blunt = loaded("blunt", model_of(reach=4, seed=7), TOKENIZER.pieces)
    setting = setting_of(target, [permuted(target, name="twin"), overlapping("stranger"), blunt])
    members = [make_drafter(member, setting) for member in name.split(",")]
    return members[0] if len(members) == 1 else MixDrafter(members)


@BASE
@pytest.mark.parametrize("name", EVERY_DRAFTER)
@pytest.mark.parametrize("setting", sweep(SETTINGS, fast=("all", "repetition", "bad words", "processors")))
def test_no_drafter_changes_what_a_setting_makes_of_the_text(setting, name, base):
    """Those that draw with the request's own distribution, in its tokens or in others, and those that only look."""
    params = replace(BASES[base], logprobs=2, **SETTINGS[setting])
    (plain,) = said_by(params)
    drafter, expected = every_drafter(name), plain.tokens[:9] + plain.tokens[11:]
    for _ in range(2):  # the second time it knows something
        (said,) = said_by(params, drafter, length=5, predictions=[expected])
        assert said.key() == plain.key()
        assert said.logprobs == plain.logprobs


@BASE
def test_a_batch_of_different_settings_says_what_each_says_alone(base):
    prompts = [PROMPT[: 3 + 2 * i] for i in range(len(SETTINGS))]
    params = [
        replace(BASES[base], seed=i, logprobs=1, max_tokens=20, **{**s, "min_tokens": 5})
        for i, s in enumerate(SETTINGS.values())
    ]
    alone = [said_by(one, prompts=[prompt])[0] for prompt, one in zip(prompts, params, strict=True)]
    answers = {i: [*p, *said.tokens] for i, (p, said) in enumerate(zip(prompts, alone, strict=True))}
    for name, drafter in drafters(answers):
        together = said_by(params, drafter, prompts, slots=5, context=256)
        assert [one.key() for one in together] == [one.key() for one in alone], name
        assert [one.logprobs for one in together] == [one.logprobs for one in alone], name


# ---- planted bugs


class CommittedOnly(CoupledVerifier):
    """Mutant: every node of a round is adjusted by the history before it."""

    def verify(self, draft, logits, view):
        tokens, plain = draft.tree.tokens, replace(view, params=unadjusted(view.params), edits=None)
        return walk(draft.tree, lambda node, path: draw(adjust_fast(logits[node], view, ()), plain, tokens[path]))


class OneTokenARound(CoupledVerifier):
    """Mutant: counters that grow by one token a round."""

    def __init__(self):
        self.counted = []

    def verify(self, draft, logits, view):
        tokens, plain = draft.tree.tokens, replace(view, params=unadjusted(view.params), edits=None)
        counted = np.array([*view.tokens[: view.prompt_length], *self.counted], np.int32)
        history = replace(view, tokens=counted)
        found = walk(draft.tree, lambda node, path: draw(adjust_fast(logits[node], history, ()), plain, tokens[path]))
        self.counted.append(found.bonus)
        return found


def unadjusted(params):
    return SamplingParams(params.temperature, seed=params.seed)


@pytest.mark.parametrize("setting", ["repetition", "frequency", "presence", "bad words", "processors"])
@pytest.mark.parametrize("broken", [CommittedOnly, OneTokenARound])
def test_a_history_that_lags_is_seen(broken, setting):
    differ = 0
    for seed in range(3):
        params = replace(BASES["T=0.8"], seed=seed, **SETTINGS[setting])
        prompt = PROMPT[:4]  # few tokens are penalised before the reply begins
        (plain,) = said_by(params, prompts=[prompt])
        drafter = ScriptedDrafter(oracle, {0: [*prompt, *plain.tokens]})
        assert said_by(params, drafter, [prompt])[0].tokens == plain.tokens
        differ += said_by(params, drafter, [prompt], verifier=broken())[0].tokens != plain.tokens
    assert differ >= 2, differ


# ---- promises


@BASE
@pytest.mark.parametrize("length", sweep((1, 3, 8), fast=(3,)))
def test_bad_words_never_appear_not_even_across_rounds(base, length):
    """The drafter guesses the very words that are banned, at every place of a block."""
    free = said_by(BASES[base])[0]
    for size in (1, 2, 3):
        for start in range(0, 12, 2):
            word = free.text[start : start + size]
            if word != word.strip():
                continue
            params = replace(BASES[base], bad_words=(word, "mm"))
            (said,) = said_by(params, ScriptedDrafter(oracle, {0: [*PROMPT, *free.tokens]}), length=length)
            assert word not in said.text, (word, said.text)
            assert said.text != free.text
            assert said.key() == said_by(params)[0].key()


@BASE
@pytest.mark.parametrize("least", [1, 2, 7, 31, 32])
def test_min_tokens_never_ends_early(base, least):
    eager = replace(BASES[base], ignore_eos=False, logit_bias={END: 30.0})
    assert len(said_by(eager)[0].tokens) == 1
    params = replace(eager, min_tokens=least)
    (plain,) = said_by(params)
    assert len(plain.tokens) == min(least + 1, 32)
    assert END not in plain.tokens[:least]
    tempting = {0: [*PROMPT, *plain.tokens[: least // 2], *[END] * 40]}
    for script in (oracle, bush(VOCAB, right_for=2)):
        assert said_by(params, ScriptedDrafter(script, tempting))[0].key() == plain.key()


def test_stop_strings_wait_for_min_tokens():
    (free,) = said_by(BASES["greedy"])
    stop = free.text[2:4]
    early = said_by(replace(BASES["greedy"], stop=(stop,)))[0]
    assert len(early.tokens) == 4
    for drafter in (None, ScriptedDrafter(oracle, {0: [*PROMPT, *free.tokens]})):
        late = said_by(replace(BASES["greedy"], stop=(stop, free.text[8:10]), min_tokens=6), drafter)[0]
        assert 6 < len(late.tokens) <= 10
        assert late.text == free.text[: len(late.text)]


def test_log_probabilities_are_the_models_own():
    model = model_of()
    for base in BASES.values():
        (said,) = said_by(replace(base, logprobs=4, repetition_penalty=1.5, top_k=3))
        tokens = list(PROMPT)
        for token, one in zip(said.tokens, said.logprobs, strict=True):
            row = model.logits_after(tokens).astype(np.float64)
            exact = row - np.log(np.exp(row).sum())
            assert one.token == token
            assert one.logprob == pytest.approx(exact[token], abs=1e-12)
            assert [i for i, _ in one.top] == np.argsort(-exact, kind="stable")[:4].tolist()
            assert [p for _, p in one.top] == pytest.approx(np.sort(exact)[::-1][:4].tolist(), abs=1e-12)
            tokens.append(token)
    assert said_by(BASES["greedy"])[0].logprobs == []
    assert all(one.top == () for one in said_by(replace(BASES["greedy"], logprobs=0))[0].logprobs)


# ---- errors


def after(count):
    def fail(tokens, logits):
        if len(tokens) >= len(PROMPT) + count:
            raise RuntimeError("enough")
        return logits

    return fail


@pytest.mark.parametrize("name", ["plain", "model", "ngram", "oracle"])
def test_a_processors_error_ends_only_its_own_request(name):
    """The draft path may meet the error before the target does; then the draft just ends."""
    (other,) = said_by(BASES["T=0.8"], prompts=[PROMPT[:9]])
    (free,) = said_by(BASES["T=0.8"])
    drafter = {
        "plain": None,
        "model": ModelDrafter(model_of(), context=512),
        "ngram": NgramDrafter(),
        "oracle": ScriptedDrafter(oracle, {0: [*PROMPT, *free.tokens], 1: [*PROMPT[:9], *other.tokens]}),
    }[name]
    engine = engine_of(model_of(), drafter, tokenizer=TOKENIZER)
    engine.add(Request(0, PROMPT, replace(BASES["T=0.8"], logits_processors=(after(6),))))
    engine.add(Request(1, PROMPT[:9], BASES["T=0.8"]))
    said, ended = {0: [], 1: []}, {}
    for event in engine.run():
        said[event.request] += event.tokens
        if event.finish_reason:
            ended[event.request] = event
    assert isinstance(ended[0].error, ProcessorError)
    assert "logits_processors[0] failed behind 35 tokens: RuntimeError: enough" in str(ended[0].error)
    assert said[0] == free.tokens[:6], "what came before the error is told, as without speculation"
    assert said[1] == other.tokens
    assert engine.cache.held() == 0


def silent_after(tokens):
    """Allow nothing behind these tokens, as a grammar does that is at its end."""

    def silence(seen, logits):
        return np.full_like(logits, -np.inf) if len(seen) >= len(PROMPT) + tokens else logits

    return silence


@pytest.mark.parametrize("processor", [after, silent_after])
@pytest.mark.parametrize("verifier", [CoupledVerifier, RejectionVerifier, BlockVerifier, TreeVerifier])
@pytest.mark.parametrize("stop", ["token", "text"])
@pytest.mark.parametrize("base", BASES)
def test_no_processor_is_asked_what_follows_the_end(base, stop, verifier, processor):
    """A guess may go on behind the token that ends the reply, where a processor may have nothing to say any more."""
    (free,) = said_by(BASES[base])
    length = next(n for n in range(3, 30) if free.tokens[n - 1] not in free.tokens[: n - 1])
    end, text = free.tokens[length - 1], TOKENIZER.decode(free.tokens[length - 1 : length])
    tokenizer = ByteTokenizer(TOKENIZER.pieces, eos_ids=[end] if stop == "token" else [END])

    def forced(seen, logits):  # so that chance of their own leads the other verifiers nowhere else
        at = len(seen) - len(PROMPT)
        return np.where(np.arange(VOCAB) == free.tokens[at], logits, -np.inf) if at < length else logits

    stops = (text,) if stop == "text" else ()
    params = replace(BASES[base], ignore_eos=False, logits_processors=(forced, processor(length)), stop=stops)
    drafter = ScriptedDrafter(oracle, {0: [*PROMPT, *free.tokens]})
    engine = engine_of(model_of(), drafter, tokenizer=tokenizer, length=16, verifier=verifier())
    engine.add(Request(0, PROMPT, params))
    events = list(engine.run())
    assert events[-1].finish_reason == "stop", events[-1].error
    assert [token for event in events for token in event.tokens] == free.tokens[:length]


def test_a_distribution_without_tokens_is_an_error_that_says_so():
    engine = engine_of(model_of(), tokenizer=TOKENIZER)
    engine.add(Request(0, PROMPT, SamplingParams(allowed_tokens=(2,), bad_words=("c",))))
    (event,) = engine.run()
    assert isinstance(event.error, NumericalError)
    assert "allowed_tokens" in event.error.hint


@pytest.mark.parametrize("settings", [{"logit_bias": {16: 1}}, {"allowed_tokens": (3, 16)}])
def test_ids_outside_the_vocabulary_are_refused(settings):
    engine = engine_of(model_of(), tokenizer=TOKENIZER)
    with pytest.raises(UsageError, match=r"from 0 to 15, got `16`") as caught:
        engine.add(Request(0, PROMPT, SamplingParams(**settings)))
    assert next(iter(settings)) in str(caught.value)
