"""A drafter of one's own: registered by name, it drafts like those that come along, alone and in a mix."""

import numpy as np
import pytest

from paceline import register_drafter
from paceline.core.request import SamplingParams
from paceline.core.tree import Draft, TokenTree
from paceline.draft.adopted import Adopted
from paceline.draft.base import Drafter, empty_draft
from paceline.errors import UsageError
from paceline.service.llm import LLM

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
def made(own_names):
    """Register it for one test; return those that were made."""
    made = []

    def echo(setting, argument):
        made.append((setting, Echo(int(argument or 1))))
        return made[-1][1]

    register_drafter("echo", echo)
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
        assert reply.metrics.by_source["echo"]["drafted"] > 0
    (setting, first), (_, second) = made
    assert (first.period, second.period) == (2, 3)
    assert setting.target is alone.target
    assert setting.config is alone.config
    rounds = alone.generate(PROMPT, params).metrics
    assert first.released == [0, 1]
    assert sum(kept for _, kept in first.observed) == 2 * rounds.accepted_tokens


def test_what_it_gets_right_is_kept_and_credited_to_it(talker, made):
    """The same letter for ever: an echo of one token is always right."""
    params = SamplingParams(max_tokens=40, ignore_eos=True, allowed_tokens=(40,))
    reply = LLM(talker, draft="echo", control="fixed", draft_tokens=4, context=256).generate([40], params)
    assert reply.token_ids == [40] * 40
    assert reply.metrics.rounds == 8
    assert reply.metrics.by_source == {"echo": {"drafted": 32, "accepted": 32}}


def guess_again(views, budgets):
    """Guess that the last token comes once more."""
    drafts = []
    for view, budget in zip(views, budgets, strict=True):
        last, count = int(view.tokens[-1]), min(budget.nodes, budget.depth)
        tree = TokenTree.chain([last] * (count + 1))
        drafts.append(Draft(tree, np.full(count + 1, 0.5, np.float32), np.zeros(count + 1, np.int8)))
    return drafts


class ThreeMethods:
    """All that the documentation asks of a class that is not derived from `Drafter`."""

    def __init__(self):
        self.calls = []

    def propose(self, views, budgets):
        self.calls.append("propose")
        return guess_again(views, budgets)

    def observe(self, view, draft, verified):
        self.calls.append("observe")

    def release(self, sequence_id):
        self.calls.append("release")


class OneMethod(Drafter):
    """All that the documentation asks of a class that is."""

    def propose(self, views, budgets):
        return guess_again(views, budgets)


@pytest.mark.parametrize("control", ["fixed", "optimal"])
@pytest.mark.parametrize("kind", [ThreeMethods, OneMethod])
@pytest.mark.parametrize("names", ["mine", "mine,ngram"])
def test_a_drafter_of_few_methods_drafts_under_its_name(talker, made, kind, names, control):
    drafters = []
    register_drafter("mine", lambda setting, argument: drafters.append(kind()) or drafters[-1])
    params = SamplingParams(max_tokens=40, ignore_eos=True, allowed_tokens=(40,))
    llm = LLM(talker, draft=names, control=control, draft_tokens=4, context=256)
    for _ in range(5):  # a machine that stalls may let `optimal` draft nothing in one reply
        reply = llm.generate([40], params)
        assert reply.token_ids == [40] * 40
        if "mine" in reply.metrics.by_source:
            break
    assert reply.setup.drafters == tuple(names.split(","))
    assert reply.metrics.by_source["mine"]["drafted"] > 0
    assert llm.engine.parts.drafter.unread([]) == {}
    if kind is ThreeMethods:
        assert {*drafters[0].calls} == {"propose", "observe", "release"}


def test_a_class_may_have_more_than_the_three_methods():
    class Rich(ThreeMethods):
        sources, weighs, experience = ("a", "b"), {"a"}, {"a": "a record"}
        is_taught = True

        def propose(self, views, budgets):
            self.spent = {"b": "a second"}
            return []

        def unread(self, views):
            return {"b": [len(views)]}

        def forget(self):
            self.is_taught = False

    rich = Rich()
    drafter = Adopted(rich, "mine", draws=False)
    assert (drafter.sources, drafter.weighs, drafter.experience) == (("a", "b"), {"a"}, {"a": "a record"})
    assert drafter.spent == {}
    assert drafter.propose([], []) == []
    assert drafter.spent == {"b": "a second"}
    assert drafter.unread([1, 2]) == {"b": [2]}
    drafter.forget()
    assert not rich.is_taught


@pytest.mark.parametrize("lost", ["propose", "observe", "release"])
def test_a_class_lacking_a_method_is_refused_with_a_cure(talker, made, lost):
    methods = {name: getattr(ThreeMethods, name) for name in ("propose", "observe", "release") if name != lost}
    register_drafter("mine", lambda setting, argument: type("Half", (), methods)())
    with pytest.raises(UsageError, match=f"drafter `mine` must have .*`Half` lacks `{lost}`") as caught:
        LLM(talker, draft="mine", context=256)
    assert "paceline.Drafter" in caught.value.hint


@pytest.mark.parametrize("said", [None, 5, "iterator"])
def test_what_is_no_list_of_drafts_is_refused_by_name(talker, made, said):
    class Wrong(Drafter):
        def propose(self, views, budgets):
            return iter(guess_again(views, budgets)) if said == "iterator" else said

    register_drafter("wrong", lambda setting, argument: Wrong())
    llm = LLM(talker, draft="wrong", control="fixed", context=256)
    with pytest.raises(UsageError, match="drafter `wrong` must return a list of drafts"):
        llm.generate(PROMPT, SamplingParams(max_tokens=4))
