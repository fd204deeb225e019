"""Record what a pair of models would say, so that it can be replayed without them.

The target replies greedily; its rows are read again for their likeliest tokens. The draft is the product's own drafter,
asked at each place of the reply: for one guess, and where that is wrong for a whole chain.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from paceline.bench.workloads import Ask
from paceline.config import LLMConfig
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.base import Drafter, Loaded
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.completion import Completion
from paceline.engine.loading import load_drafter
from paceline.kernels.native import native, new_pool
from paceline.model.base import Model
from paceline.model.extend import extend, read_on
from paceline.model.flatten import CHUNK
from paceline.service.llm import LLM
from rig.recording import BESIDE, DEEP, LIKELY, SURE, Array, Recording, Text, dense

Show = Callable[[str], None]


def record(
    model: str, draft: str, asks: Sequence[Ask], *, threads: int | None = None, show: Show = print
) -> Iterator[Recording]:
    """Let the target reply to every prompt and record the pair along each reply; yield what there is after each."""
    os.environ["PACELINE_MEMORY"] = "off"
    llm = LLM(model, draft=draft, control="fixed", draft_tokens=4, threads=threads, slots=1)  # measures nothing
    pool = new_pool(threads)
    drafter = load_drafter(replace(LLMConfig.of(model=model, draft=draft), slots=1), llm.target, pool, progress=False)
    about = {
        "target": model,
        "draft": draft,
        "recorded": time.strftime("%Y-%m-%d"),
        "draft_head": llm.config.draft_head,
    }
    texts, started = list[Text](), time.perf_counter()
    for ask in asks:
        prompt = llm.encode(ask.text, chat=True)
        reply = llm.generate(prompt, SamplingParams(max_tokens=ask.max_tokens))
        assert isinstance(reply, Completion)
        texts.append(recorded(ask, prompt, reply.token_ids, llm.target, drafter))
        right = float(np.mean(texts[-1].guesses[:-1, 0] == texts[-1].reply))
        show(
            f"{ask.workload} {ask.index}: {len(prompt)} tokens of prompt, {len(reply.token_ids)} of reply, "
            f"first guesses right {right:.2f}, {time.perf_counter() - started:.0f} s"
        )
        yield dense(texts, sorted(llm.tokenizer.eos_ids), about)


def recorded(ask: Ask, prompt: Sequence[int], reply: Sequence[int], target: Loaded, drafter: Drafter) -> Text:
    """Return what target and draft make of a reply, in their own ids."""
    tokens = np.array([*prompt, *reply], np.int32)
    guesses, sure, beside = chains(drafter, tokens, len(prompt))
    return Text(
        ask.workload,
        ask.index,
        ask.max_tokens,
        tokens[: len(prompt)],
        tokens[len(prompt) :],
        likeliest(target.model, tokens, len(prompt)),
        guesses,
        sure,
        beside,
    )


def likeliest(model: Model, tokens: Array, start: int) -> Array:
    """Return int32 [n + 1, LIKELY]: the target's likeliest tokens at each place from `start` on."""
    cache = model.new_cache(len(tokens) + 2 * CHUNK)
    sequence, found = cache.open(), list[Array]()
    read_on(model, cache, sequence, tokens[:start])
    while (at := cache.length(sequence)) < len(tokens):
        part = tokens[at : at + CHUNK].tolist()
        logits = extend(model, cache, [sequence], [part], wanted=len(part))
        rows = np.arange(len(part), dtype=np.int32)
        found.append(np.array(native.top(np.asarray(logits), rows, LIKELY, None)))
    cache.release(sequence)
    return np.concatenate(found)


def chains(drafter: Drafter, tokens: Array, start: int) -> tuple[Array, Array, Array]:
    """Return the chains, confidences and runners-up at each place from `start` on."""
    assert isinstance(drafter, ModelDrafter), drafter
    count = len(tokens) - start + 1
    guesses, sure = np.full((count, DEEP), -1, np.int32), np.zeros((count, DEEP), np.int32)
    beside = np.full((count, DEEP, BESIDE), -1, np.int32)
    for place in range(count):
        end = start + place
        view = View(0, tokens[:end], SamplingParams(max_tokens=len(tokens)), start)
        for deep in (1, DEEP):
            # Nothing has a price: the chain goes on to the end and runners-up are wanted.
            drafter.propose([view], [Budget(3 * deep, deep, np.zeros(3 * deep + 1))])
            made = drafter._guesses[0]
            assert len(made.tokens) == deep, made
            guesses[place, :deep] = made.tokens
            sure[place, :deep] = np.rint(SURE * np.array(made.confidences))
            for depth, others in enumerate(made.beside):
                beside[place, depth, : len(others)] = others
            if end < len(tokens) and made.tokens[0] == tokens[end]:
                break
    drafter.release(0)
    return guesses, sure, beside
