"""A request that fails in a round ends alone, with its own error and the tokens of plain decoding before it."""

import copy
import threading

import pytest
from pairs import setting_of, singers
from parity_tools import caches_of, engine_of, plain_tokens
from sweep import sweep

from paceline import LLM, PacelineError, SamplingParams
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.vocab.pairing import drafter_for
from paceline.engine.sequence import Request
from paceline.errors import ModelFileError, NumericalError, ReplyError
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush, oracle
from paceline.verify.coupled import CoupledVerifier

VOCAB, COUNT = 16, 16
PROMPTS = {0: [1, 2, 3], 1: [4, 5, 6], 2: [7, 8, 9, 10]}
LENGTHS = pytest.mark.parametrize("length", sweep((1, 2, 3, 4, 8, 16), fast=(1, 4)))


class Undecodable(ByteTokenizer):
    """Has no text for one token."""

    def __init__(self, token):
        super().__init__([bytes([97 + i]) for i in range(VOCAB)])
        self.token = token

    def token_bytes(self, token):
        if token == self.token:
            raise KeyError(token)
        return super().token_bytes(token)


class Complaining(CoupledVerifier):
    """Fails at the second round of one request."""

    def __init__(self, error):
        self.turns, self.error = 0, error

    def verify(self, draft, logits, view):
        self.turns += view.id == 1
        if view.id == 1 and self.turns == 2:
            raise self.error
        return super().verify(draft, logits, view)


class Forgetful(NgramDrafter):
    """Learns from every request but one."""

    def observe(self, view, draft, verified):
        if view.id == 1 and len(view.tokens) > 6:
            raise RuntimeError("no memory of that")
        super().observe(view, draft, verified)


def fails_at(count):
    def processor(tokens, logits):
        if len(tokens) >= count:
            raise ZeroDivisionError("by hand")
        return logits

    return processor


def play(engine, params):
    """Run three requests, the second with its own params; return tokens and last event of each."""
    said, last = {i: [] for i in PROMPTS}, {}
    for i, prompt in PROMPTS.items():
        engine.add(Request(i, prompt, params if i == 1 else SamplingParams(max_tokens=COUNT)))
    for event in engine.run():
        assert event.request not in last, "an event after the end"
        said[event.request] += event.tokens
        if event.finish_reason:
            last[event.request] = event
        engine.cache.check()
        for own in caches_of(engine.parts.drafter):
            own.check()
    assert engine.cache.held() == 0
    for own in caches_of(engine.parts.drafter):
        assert own.held() == 0
    return said, last


def answers(model):
    return {i: plain_tokens(model, prompt, SamplingParams(max_tokens=COUNT)) for i, prompt in PROMPTS.items()}


def drafters(model, right):
    yield NgramDrafter()
    yield ScriptedDrafter(oracle, right)
    yield ScriptedDrafter(bush(VOCAB, right_for=3), right)
    yield ModelDrafter(model, context=512)


def innocent(said, last, right):
    for i in (0, 2):
        assert said[i] == right[i][len(PROMPTS[i]) :]
        assert last[i].finish_reason == "length"


@LENGTHS
def test_a_token_without_text_ends_only_its_own_request(length):
    model = TinyModel(VOCAB, reach=None)
    right = answers(model)
    reply = right[1][3:]
    bad = next(token for token in reply[4:] if token not in {*reply[:4], *right[0][3:], *right[2][4:]})
    for drafter in drafters(model, right):
        engine = engine_of(model, drafter, length=length, tokenizer=Undecodable(bad))
        said, last = play(engine, SamplingParams(max_tokens=COUNT))
        innocent(said, last, right)
        assert said[1] == reply[: reply.index(bad)]
        assert isinstance(last[1].error, ReplyError)
        assert isinstance(last[1].error.__cause__, KeyError)


@LENGTHS
def test_a_processor_that_raises_ends_its_own_request(length):
    model = TinyModel(VOCAB, reach=None)
    right = answers(model)
    params = SamplingParams(max_tokens=COUNT, logits_processors=(fails_at(10),))
    for drafter in drafters(model, right):
        said, last = play(engine_of(model, drafter, length=length), params)
        innocent(said, last, right)
        assert said[1] == right[1][3:10]
        assert "ZeroDivisionError" in str(last[1].error)


@LENGTHS
@pytest.mark.parametrize(
    "error", [AssertionError("a bug"), ValueError("odd"), NumericalError("nothing"), MemoryError(), KeyError(7)]
)
def test_a_verifier_that_complains_ends_its_own_request(error, length):
    model = TinyModel(VOCAB, reach=None)
    right = answers(model)
    for drafter in drafters(model, right):
        engine = engine_of(model, drafter, length=length, verifier=Complaining(error))
        said, last = play(engine, SamplingParams(max_tokens=COUNT))
        innocent(said, last, right)
        assert said[1] == right[1][3 : 3 + len(said[1])]
        assert last[1].finish_reason == "error"
        assert isinstance(last[1].error, PacelineError)
        assert error in (last[1].error, last[1].error.__cause__)


@LENGTHS
def test_stop_matching_that_raises_ends_its_own_request(length, monkeypatch):
    model = TinyModel(VOCAB, reach=None)
    right = answers(model)
    for drafter in drafters(model, right):
        engine = engine_of(model, drafter, length=length)
        add = engine.parts.scheduler.add

        def spoilt(sequence, add=add):
            if sequence.id == 1:
                pushed, push = [0], sequence._stops.push

                def fail(text, **settings):
                    pushed[0] += 1
                    if pushed[0] >= 6:
                        raise RuntimeError("no match")
                    return push(text, **settings)

                sequence._stops.push = fail
            add(sequence)

        engine.parts.scheduler.add = spoilt
        said, last = play(engine, SamplingParams(max_tokens=COUNT))
        innocent(said, last, right)
        assert said[1] == right[1][3:8]
        assert isinstance(last[1].error.__cause__, RuntimeError)


def test_a_failing_observe_ends_no_other_request():
    model = TinyModel(VOCAB, reach=None)
    right = answers(model)
    said, last = play(engine_of(model, Forgetful()), SamplingParams(max_tokens=COUNT))
    innocent(said, last, right)
    assert last[1].finish_reason == "error"


def test_a_text_unreadable_for_a_draft_costs_no_reply():
    target, draft = singers()
    drafter = drafter_for(setting_of(target), draft)
    assert "slem" in drafter.sources[0]
    spell, target_spell = draft.tokenizer.encode, target.tokenizer.encode

    def panic(text, **settings):
        if "dolor" in text:
            raise ModelFileError("tokenizer.json must cut any text")
        return spell(text, **settings)

    drafter._draft = copy.copy(draft.tokenizer)  # the model says its distribution with the other one
    drafter._draft.encode = panic
    prompts = {0: target_spell("lorem ipsum "), 1: target_spell("sit amet consectetur ")}
    params = SamplingParams(max_tokens=10)
    engine = engine_of(target.model, drafter, tokenizer=target.tokenizer)
    for i, prompt in prompts.items():
        engine.add(Request(i, prompt, params))
    said = {i: [] for i in prompts}
    for event in engine.run():
        assert event.finish_reason in (None, "length")
        said[event.request] += event.tokens
    for i, prompt in prompts.items():
        plain = plain_tokens(target.model, prompt, params, tokenizer=target.tokenizer)
        assert [*prompt, *said[i]] == plain


# ---- the Python face


@pytest.fixture(scope="module")
def llm(talker):
    return LLM(talker, draft="ngram", context=512)


FAILS = SamplingParams(max_tokens=20, ignore_eos=True, logits_processors=(fails_at(12),))
GOES = SamplingParams(max_tokens=20, ignore_eos=True)


def test_a_reader_sees_only_its_own_error(llm):
    alone = llm.generate([1, 2, 3], GOES).token_ids
    for order in (0, 1):
        replies = [llm.stream([1, 2, 3], params) for params in ((GOES, FAILS), (FAILS, GOES))[order]]
        good, bad = replies[order], replies[1 - order]
        reading, failing = iter(good), iter(bad)
        next(reading)
        with pytest.raises(PacelineError, match="ZeroDivisionError"):
            list(failing)
        list(reading)
        assert good.completion.token_ids == alone
        assert (bad.completion.finish_reason, good.completion.finish_reason) == ("error", "length")
        assert bad.completion.token_ids == alone[:9]
    assert llm.engine.is_idle
    assert llm.engine.cache.held() == 0


def test_threads_see_only_their_own_errors(llm):
    alone, found = llm.generate([1, 2, 3], GOES).token_ids, {}

    def ask(name, params):
        try:
            found[name] = llm.generate([1, 2, 3], params).token_ids
        except PacelineError as error:
            found[name] = str(error)

    threads = [threading.Thread(target=ask, args=(i, FAILS if i % 2 else GOES)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, said in found.items():
        assert ("ZeroDivisionError" in said) if name % 2 else said == alone


def test_a_list_returns_the_finished_beside_the_failed(llm):
    alone = llm.generate([1, 2, 3], GOES).token_ids
    good, bad, other = llm.generate_each([1, 2, 3], [GOES, FAILS, GOES])
    assert good.token_ids == other.token_ids == alone
    assert (good.error, good.finish_reason) == (None, "length")
    assert (bad.finish_reason, bad.token_ids) == ("error", alone[:9])
    assert "ZeroDivisionError" in str(bad.error)
    assert bad.to_json()["error"]["message"] == str(bad.error)
    assert "error" not in good.to_json()
    with pytest.raises(PacelineError, match="ZeroDivisionError"):
        llm.generate([1, 2, 3], FAILS)
    assert [one.finish_reason for one in llm.generate(["ab", "cd"], FAILS)] == ["error", "error"]
    assert llm.engine.is_idle
