"""The Python face over its service: replies closed, collected and interrupted leave nothing behind."""

import gc
import os
import signal
import threading
import time

import pytest

from paceline.core.request import SamplingParams
from paceline.errors import UsageError
from paceline.kernels.ops import PAGE
from paceline.model.flatten import SLACK
from paceline.service.llm import LLM

LONG = SamplingParams(max_tokens=400, ignore_eos=True)
SHORT = SamplingParams(max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(talker):
    return LLM(talker, draft="ngram", control="fixed", context=1024)


def idle(llm):
    llm.check_idle("this test")
    llm.engine.cache.check()
    return llm.engine.cache.held() == 0


def test_a_reply_closed_early_says_cancelled(llm):
    reply = llm.stream("Once upon a time", LONG)
    first = next(iter(reply))
    reply.close()
    assert idle(llm)
    assert reply.completion.finish_reason == "cancelled"
    assert reply.completion.token_ids == list(first.tokens)
    assert list(reply) == []
    assert llm.stream("never asked", LONG).completion.finish_reason is None


def test_a_collected_reply_is_cancelled(llm):
    for event in llm.stream("Once upon a time", LONG):
        assert event.tokens
        break
    cycle = [llm.stream("Once upon a time", LONG)]
    next(iter(cycle[0]))
    cycle.append(cycle)
    del cycle, event
    gc.collect()
    assert idle(llm)


def test_a_reply_goes_on_while_its_reader_does_something_else(llm):
    alone = llm.generate("Once upon a time", LONG).token_ids
    reply = llm.stream("Once upon a time", LONG)
    events = iter(reply)
    first = next(events)
    deadline = time.monotonic() + 20
    while not llm.service.call(lambda: llm.engine.is_idle) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reply.completion.token_ids == list(first.tokens), "as far as it was read"
    list(events)
    assert reply.completion.token_ids == alone


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_cancels_generate_and_the_next_call_works(llm):
    alone = llm.generate("Once upon a time", SHORT).token_ids
    slow = SamplingParams(
        max_tokens=1000, ignore_eos=True, logits_processors=(lambda ids, row: time.sleep(0.005) or row,)
    )
    for ask in (
        lambda: llm.generate("x", slow),
        lambda: list(llm.stream("x", slow)),
        lambda: llm.generate(["x"] * 3, slow),
    ):
        threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            ask()
        assert idle(llm)
    assert llm.generate("Once upon a time", SHORT).token_ids == alone


def test_a_closed_model_says_so_and_its_thread_ends(talker):
    llm = LLM(talker, draft="off", context=128)
    llm.generate("x", SHORT)
    llm.close()
    with pytest.raises(UsageError, match="was closed"):
        llm.generate("x", SHORT)
    with pytest.raises(UsageError, match="was closed"):
        llm.check_idle("this")


def test_a_collected_model_ends_its_thread(talker):
    before = {thread.ident for thread in threading.enumerate()}
    llm = LLM(talker, draft="off", context=128)
    llm.generate("x", SHORT)
    llm.plain_seconds_per_token([5, 6, 7], 1)
    llm.check_idle("this test")
    assert {thread.ident for thread in threading.enumerate()} - before
    del llm
    gc.collect()
    deadline = time.monotonic() + 10
    while {thread.ident for thread in threading.enumerate()} - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not {thread.ident for thread in threading.enumerate()} - before


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_small_cache_changes_no_reply(talker, temperature):
    """On the native kernels: four replies outgrow a pool of one context, and some are read again."""
    params = SamplingParams(temperature, seed=5, max_tokens=220, ignore_eos=True)
    prompts = ["the cat and the dog", "one two three one two", "a b c a b c a", "Once upon a time"]
    whole = LLM(talker, draft="ngram", control="fixed", context=256)
    alone = [whole.generate(prompt, params).token_ids for prompt in prompts]
    pool = (256 + SLACK) // PAGE * whole.target.model.page_bytes
    assert whole.engine.cache.store.nbytes == 8 * pool
    small = LLM(talker, draft="ngram", control="fixed", context=256, cache_bytes=pool)
    preempted, preempt = [], small.engine.parts.scheduler._preempt
    small.engine.parts.scheduler._preempt = lambda: preempted.append(1) or preempt()
    assert [one.token_ids for one in small.generate(prompts, params)] == alone
    assert preempted
    assert small.engine.cache.store.nbytes == pool
