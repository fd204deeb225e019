"""What happens around the process: forks, several threads on one model, calls from inside a round, the end."""

import multiprocessing
import subprocess
import sys
import threading

import pytest

from paceline.core.request import SamplingParams
from paceline.core.tree import TokenTree
from paceline.errors import ContextOverflow, PacelineError, ProcessorError, UsageError
from paceline.formats.files import open_model
from paceline.kernels.native import new_pool
from paceline.model.flatten import flatten
from paceline.model.native import NativeModel
from paceline.service.llm import LLM

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


def test_measuring_takes_its_turn_too(llm):
    """Once it ran forwards beside other threads' rounds: wrong text, and now and then the end of the process."""
    params, stop, measured = SamplingParams(max_tokens=40, ignore_eos=True), threading.Event(), []
    alone = llm.generate("Once upon a time", params).token_ids

    def measure():
        while not stop.is_set():
            measured.append(llm.plain_seconds_per_token([5, 6, 7] * 9, 1))

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        assert all(llm.generate("Once upon a time", params).token_ids == alone for _ in range(5))
    finally:
        stop.set()
        thread.join(30)
    assert len(measured) > 1


@pytest.mark.parametrize(
    ("tokens", "repeats", "error", "said"),
    [
        ([10**6], 1, UsageError, "prompt token ids must be"),
        ([-1], 1, UsageError, "got `-1`"),
        ([5] * 257, 1, ContextOverflow, "holds 256 tokens"),
        ([5] * 255 + [10**6], 1, UsageError, "got `1000000`"),
        ([5], True, UsageError, "got `True`"),
        ([5], 0, UsageError, "repeats must be a whole number from 1 on, got `0`"),
        (7, 1, UsageError, "a prompt must be"),
    ],
)
def test_what_cannot_be_measured_is_refused(llm, tokens, repeats, error, said):
    with pytest.raises(error, match=said):
        llm.plain_seconds_per_token(tokens, repeats)
    assert llm.plain_seconds_per_token([5] * 256, 1) > 0, "a reply may have filled the context"


def test_no_call_generates_inside_a_round_of_its_model(llm, talker):
    other = LLM(talker, draft="off", context=64)

    def asking(which):
        def ask(ids, logits):
            which.generate("x", SamplingParams(max_tokens=1))
            return logits

        return SamplingParams(max_tokens=3, logits_processors=(ask,))

    with pytest.raises(ProcessorError, match="from inside one of its own rounds"):
        llm.generate("The sky is", asking(llm))
    assert len(llm.generate("The sky is", asking(other)).token_ids) == 3
    assert llm.generate("The sky is", PARAMS).token_ids == llm.generate("The sky is", PARAMS).token_ids


def test_collection_waits_while_a_measurement_runs(llm, monkeypatch):
    """A reply abandoned in a cycle is closed whenever Python likes."""
    begun = llm.stream("Once upon a time", SamplingParams(max_tokens=40, ignore_eos=True))
    next(iter(begun))
    cancelled, forward, cancel = [], llm.target.model.forward, llm.engine.cancel
    monkeypatch.setattr(llm.engine, "cancel", lambda request: cancelled.append(request) or cancel(request))
    closing = [begun.events]

    def closes(batch, cache, *, taps=()):
        if closing and not len(batch.lengths) - 1 and batch.tokens.tolist()[-1:] == [7]:
            closing.pop().close()
            assert not cancelled
        return forward(batch, cache, taps=taps)

    monkeypatch.setattr(llm.target.model, "forward", closes)
    llm.plain_seconds_per_token([5, 6, 7], 1)
    assert not closing
    monkeypatch.undo()
    llm.generate("The sky is", PARAMS)
    assert llm.engine.is_idle


def told(llm, queue):
    try:
        queue.put(llm.generate("The sky is", PARAMS).token_ids)
    except PacelineError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_child_forked_inside_a_round_says_so(talker):
    llm, inside, on = LLM(talker, draft="off", context=64), threading.Event(), threading.Event()

    def wait(ids, logits):
        inside.set()
        on.wait(30)
        return logits

    def generate():
        llm.generate("The sky is", SamplingParams(max_tokens=1, logits_processors=(wait,)))

    thread = threading.Thread(target=generate)
    thread.start()
    assert inside.wait(30)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=told, args=(llm, queue))
    child.start()
    on.set()
    child.join(30)
    thread.join(30)
    if child.is_alive():
        child.kill()
        pytest.fail("the child hangs")
    assert "forked while another thread was generating" in queue.get()
    assert llm.generate("The sky is", PARAMS).token_ids


def test_python_may_end_while_a_thread_generates(talker):
    program = f"""
import threading, time, paceline
llm = paceline.load({str(talker)!r}, draft="off", context=2048)
begun = threading.Event()
def run():
    while True:
        for event in llm.stream("The sky is", paceline.SamplingParams(max_tokens=1000, ignore_eos=True)):
            begun.set()
threading.Thread(target=run, daemon=True).start()
begun.wait()
time.sleep(0.1)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


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
