"""A recording of two tiny models, made as the real one is, and the pair itself."""

import functools

import numpy as np
from rig.record import recorded
from rig.recording import dense

from paceline.bench.workloads import Ask
from paceline.draft.base import Loaded
from paceline.draft.model.drafter import ModelDrafter
from paceline.testing import ByteTokenizer, TinyModel

VOCAB, CONTEXT, MOST = 24, 8192, 96
END = 7  # ends a reply


@functools.cache
def pair():
    """A target, and a draft that agrees with it more often than not."""
    base, other = (TinyModel(VOCAB, reach=reach, seed=reach, context=CONTEXT) for reach in (3, 4))
    rarely = np.where(np.arange(VOCAB) == END, -1.5, 0.0)
    target = TinyModel(VOCAB, reach=3, context=CONTEXT, distribution=lambda seen: base.logits_after(seen) + rarely)
    distribution = lambda seen: 2 * target.logits_after(seen) + 0.8 * other.logits_after(seen)  # noqa: E731
    return target, TinyModel(VOCAB, reach=4, context=CONTEXT, distribution=distribution)


def reply_of(target, prompt, most):
    """Decode greedily."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + most:
        tokens.append(int(target.logits_after(tokens).argmax()))
        if tokens[-1] == END:
            break
    return tokens[len(prompt) :]


@functools.cache
def tiny_recording(texts=5):
    target, draft = pair()
    chance, found = np.random.default_rng(3), []
    tokenizer = ByteTokenizer.letters(VOCAB)
    for index in range(texts):
        prompt = [t for t in chance.integers(VOCAB, size=20 + 60 * index).tolist() if t != END]
        drafter = ModelDrafter(draft, context=CONTEXT, native=False)
        ask = Ask(("short", "long")[index > 2], index, "", MOST)
        loaded = Loaded("tiny", target, tokenizer, CONTEXT)
        found.append(recorded(ask, prompt, reply_of(target, prompt, MOST), loaded, drafter))
    return dense(found, [END], {"target": "tiny"})
