"""A drafter of one's own: registered by name, it drafts like those that come along, alone and in a mix."""

import numpy as np
import pytest

from paceline.draft import base
from paceline.draft.base import empty_draft, register
from paceline.engine.llm import LLM
from paceline.errors import UsageError
from paceline.types import Draft, SamplingParams, TokenTree

PROMPT = "the cat sat on the mat"


class Echo:
    """Guesses that the last `period` tokens come once more."""

    sources = ("echo",)

    def __init__(self, period):
        self.spent = {}
        self.period, self.observed, self.released = period, [], []

    def propose(self, views, budgets):
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view, draft, verified):
        self.observed.append((draft.drafted, len(verified.nodes)))

    def release(self, sequence_id):
        self.released.append(sequence_id)

    def _propose(self, view, budget):
        count = min(budget.nodes, budget.depth)
        if not count:
            return empty_draft(view)
        again = np.resize(view.tokens[-self.period :], count)
        tree = TokenTree.chain([int(view.tokens[-1]), *again.tolist()])
        return Draft(tree, np.full(count + 1, 0.5, np.float32), np.zeros(count + 1, np.int8))


@pytest.fixture
def made(monkeypatch):
    """Register it for one test; return those that were made."""
    monkeypatch.setattr(base, "_registry", dict(base._registry))
    made = []

    def echo(setting, argument):
        made.append((setting, Echo(int(argument or 1))))
        return made[-1][1]

    register("echo", echo)
    return made


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_it_drafts_alone_and_mixed_without_changing_tokens(talker, made, temperature):
    params = SamplingParams(temperature, seed=3, max_tokens=60, ignore_eos=True)
    plain = LLM(talker, draft="off", context=256).generate(PROMPT, params)
    alone = LLM(talker, draft="echo:2", control="fixed", draft_tokens=4, context=256)
    both = LLM(talker, draft="echo:3,ngram", control="fixed", draft_tokens=4, context=256)
    for llm, sources in ((alone, ("echo",)), (both, ("echo", "ngram"))):
        reply = llm.generate(PROMPT, params)
        assert reply.token_ids == plain.token_ids
        assert reply.setup.drafters == sources
        assert reply.tally.by_source["echo"]["drafted"] > 0
    (setting, first), (_, second) = made
    assert (first.period, second.period) == (2, 3)
    assert setting.target is alone.target
    assert setting.config is alone.config
    rounds = alone.generate(PROMPT, params).tally
    assert first.released == [0, 1]
    assert sum(kept for _, kept in first.observed) == 2 * rounds.accepted_tokens


def test_what_it_gets_right_is_kept_and_credited_to_it(talker, made):
    """The same letter for ever: an echo of one token is always right."""
    params = SamplingParams(max_tokens=40, ignore_eos=True, allowed_tokens=(40,))
    reply = LLM(talker, draft="echo", control="fixed", draft_tokens=4, context=256).generate([40], params)
    assert reply.token_ids == [40] * 40
    assert reply.tally.rounds == 8
    assert reply.tally.by_source == {"echo": {"drafted": 32, "accepted": 32}}


def test_a_name_that_reads_as_something_else_is_refused():
    for name in ("", "a,b", "a/b", "a:b", "a+b"):
        with pytest.raises(UsageError, match="must have no comma"):
            register(name, lambda setting, argument: Echo(1))
