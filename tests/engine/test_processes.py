"""What happens around the process: a fork after loading, several threads on one model."""

import multiprocessing
import threading

import pytest

from paceline.engine.llm import LLM
from paceline.kernels.native import new_pool
from paceline.model.files import open_model
from paceline.model.flatten import flatten
from paceline.model.native import NativeModel
from paceline.types import SamplingParams, TokenTree

PARAMS = SamplingParams(max_tokens=6)


@pytest.fixture(scope="module")
def llm(talker):
    return LLM(talker, draft="ngram", control="fixed", context=256, threads=2)


def reply(llm, queue):
    queue.put(llm.generate("The sky is", PARAMS).token_ids)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_generates_what_its_parent_does(llm):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=reply, args=(llm, queue))
    child.start()
    child.join(30)
    if child.is_alive():
        child.kill()
        pytest.fail("the child hangs")
    assert queue.get() == llm.generate("The sky is", PARAMS).token_ids


def test_threads_share_one_model(llm):
    prompts = ["The sky is", "One two three", "a b c a b c a"]
    alone = [llm.generate(prompt, PARAMS).token_ids for prompt in prompts]
    got = [None] * len(prompts)

    def run(i):
        got[i] = llm.generate(prompts[i], PARAMS).token_ids

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == alone
    llm.engine.cache.check()


def test_two_models_of_one_pool_take_turns(talker):
    pool = new_pool(2)
    models = [NativeModel(open_model(talker), pool, quant=quant) for quant in ("auto", "q8")]
    finished = []

    def run(model):
        cache = model.new_cache(64)
        sequence = cache.open()
        for _ in range(50):
            model.forward(flatten(cache, [sequence], [TokenTree.chain([1, 2, 3])], [1]), cache)
        finished.append(model)

    threads = [threading.Thread(target=run, args=(model,), daemon=True) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(finished) == 2
