"""A drafter that waits and fails on demand, and what reads requests to their end."""

import threading

from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.service.service import Ticket
from paceline.testing import ByteTokenizer, TinyModel
from paceline.verify.coupled import CoupledVerifier

VOCAB = 16
LONG = SamplingParams(max_tokens=400, ignore_eos=True)
SHORT = SamplingParams(max_tokens=6, ignore_eos=True)


def engine_with(drafter):
    model, tokenizer = TinyModel(VOCAB, reach=None, context=1024), ByteTokenizer.letters(VOCAB)
    return Engine(model, tokenizer, drafter, FixedController(4), CoupledVerifier(), context=512)


class Gated(NgramDrafter):
    """Rounds wait for `gate` and raise `fails` if it is set."""

    def __init__(self):
        super().__init__()
        self.gate, self.inside, self.threads, self.fails = threading.Event(), threading.Event(), set(), None
        self.gate.set()

    def propose(self, views, budgets):
        self.inside.set()
        self.threads.add(threading.get_ident())
        assert self.gate.wait(10)
        if self.fails is not None:
            raise self.fails
        return super().propose(views, budgets)


def ticket(name, params=SHORT, **settings):
    return Ticket(Request(name, [1 + name % 9, 2, 3], params), **settings)


def all_of(service, one):
    """Read a request to its end; it is the only one."""
    told = []
    while not (told and told[-1].finish_reason):
        told += [event for event, _ in service.read(one)]
    assert [event.finish_reason is not None for event in told] == [False] * (len(told) - 1) + [True]
    assert one.line.empty(), "an event after the last"
    return told


def tokens_of(told):
    return [token for event in told for token in event.tokens]


def alone(name, params=SHORT):
    """The tokens of a request that has an engine to itself."""
    engine = engine_with(NgramDrafter())
    engine.add(ticket(name, params).request)
    return [token for event in engine.run() for token in event.tokens]
