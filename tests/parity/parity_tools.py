"""Run requests through a whole engine and keep what it said."""

from dataclasses import dataclass, field

from sweep import sweep

from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams
from paceline.draft.base import NoDrafter
from paceline.engine.engine import Engine
from paceline.engine.metrics import SpeculationMetrics
from paceline.engine.sequence import Request
from paceline.testing import ByteTokenizer
from paceline.verify.coupled import CoupledVerifier

LENGTHS = sweep((1, 2, 3, 4, 8, 16), fast=(1, 8))


@dataclass
class Said:
    tokens: list = field(default_factory=list)
    text: str = ""
    deltas: list = field(default_factory=list)
    finish_reason: str | None = None
    logprobs: list = field(default_factory=list)
    metrics: SpeculationMetrics = field(default_factory=SpeculationMetrics)

    def key(self):
        return self.tokens, self.text, self.finish_reason


def engine_of(model, drafter=None, *, length=4, context=512, slots=8, tokenizer=None, verifier=None):
    return Engine(
        model,
        tokenizer or ByteTokenizer.letters(model.spec.vocab),
        drafter or NoDrafter(),
        FixedController(length),
        verifier or CoupledVerifier(),
        context=context,
        slots=slots,
    )


def run(model, prompts, params, drafter=None, *, check=True, predictions=None, **settings):
    """Reply to prompts side by side; recount the cache after every round; return what was said, in order."""
    engine = engine_of(model, drafter, **settings)
    params = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    said = [Said() for _ in prompts]
    for i, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        engine.add(Request(i, prompt, one, predictions and predictions[i]))
    while not engine.is_idle:
        for event in engine.step():
            reply = said[event.request]
            assert reply.finish_reason is None, "an event after the end"
            reply.tokens += event.tokens
            reply.text += event.text
            reply.deltas.append(event.text)
            reply.logprobs += event.logprobs
            reply.finish_reason = event.finish_reason
            reply.metrics.add(event.round)
        if check:
            engine.cache.check()
            for own in caches_of(drafter):
                own.check()
    assert engine.cache.held() == 0
    for own in caches_of(drafter):
        assert own.held() == 0
    return said


def caches_of(drafter):
    return [drafter.cache] if hasattr(drafter, "cache") else []


def plain_tokens(model, prompt, params, **settings):
    """Prompt and the output of plain decoding, as `ScriptedDrafter` wants to know it."""
    return [*prompt, *run(model, [prompt], params, **settings)[0].tokens]
