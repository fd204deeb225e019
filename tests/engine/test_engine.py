"""Requests come in, wait, run, end or are cancelled, and the numbers about them add up."""

import numpy as np
import pytest

from paceline import choices
from paceline.control.fixed import FixedController
from paceline.control.optimal import OptimalController
from paceline.core.request import Event, SamplingParams, Speculation
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verdict
from paceline.draft.base import NoDrafter
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.compose.staged import StagedDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.batch import graft, pack
from paceline.engine.engine import Engine
from paceline.engine.metrics import SpeculationMetrics, round_of, sources_of
from paceline.engine.scheduler import ROWS, Scheduler
from paceline.engine.sequence import Request, Sequence
from paceline.engine.step import limit
from paceline.errors import ContextOverflow, UsageError
from paceline.estimate.cost import CostTable
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush, half_liar
from paceline.verify.coupled import CoupledVerifier

VOCAB = 16


def engine_of(model=None, drafter=None, *, length=4, context=512, slots=8):
    model = model or TinyModel(VOCAB, reach=None, context=1024)
    return Engine(
        model,
        ByteTokenizer.letters(VOCAB),
        drafter or NoDrafter(),
        FixedController(length),
        CoupledVerifier(),
        context=context,
        slots=slots,
    )


# ---- what is refused


@pytest.mark.parametrize(
    ("prompt", "params", "error", "said"),
    [
        ([], {}, UsageError, "at least one token"),
        ([1, 16], {}, UsageError, "`16`"),
        ([1, -1], {}, UsageError, "`-1`"),
        ([1] * 512, {}, ContextOverflow, "`512`"),
        ([1], {"temperature": -1}, UsageError, "temperature"),
        ([1], {"max_tokens": 0}, UsageError, "max_tokens"),
    ],
)
def test_a_request_that_cannot_run_is_refused_and_leaves_nothing(prompt, params, error, said):
    engine = engine_of()
    with pytest.raises(error, match=said):
        engine.add(Request(0, prompt, SamplingParams(**params)))
    assert engine.is_idle
    assert engine.cache.held() == 0
    engine.cache.check()


def test_a_running_id_is_refused_a_finished_one_free():
    engine = engine_of()
    engine.add(Request(5, [1, 2], SamplingParams(max_tokens=2)))
    with pytest.raises(UsageError, match="`5`"):
        engine.add(Request(5, [3], SamplingParams()))
    list(engine.run())
    engine.add(Request(5, [3], SamplingParams(max_tokens=1)))
    assert sum(len(event.tokens) for event in engine.run()) == 1


# ---- room


@pytest.mark.parametrize("slots", [2, 8])
def test_requests_that_fit_only_one_after_another_take_turns(slots):
    """Each asks for more than half of the room; together they would run out of it in mid-text."""
    model = TinyModel(VOCAB, reach=None, context=1024)
    prompts = [[i, 1, 2] * 20 for i in range(5)]
    params = SamplingParams(0.8, max_tokens=100)
    alone = []
    for prompt in prompts:
        engine = engine_of(model, context=192)
        engine.add(Request(0, prompt, params))
        alone.append([token for event in engine.run() for token in event.tokens])
    answers = {i: [*prompt, *said] for i, (prompt, said) in enumerate(zip(prompts, alone, strict=True))}
    engine = engine_of(model, ScriptedDrafter(half_liar(VOCAB, 2), answers), context=192, slots=slots)
    for i, prompt in enumerate(prompts):
        engine.add(Request(i, prompt, params))
    said = {i: [] for i in range(5)}
    while not engine.is_idle:
        for event in engine.step():
            said[event.request] += event.tokens
        engine.cache.check()
    assert list(said.values()) == alone


def test_waiting_requests_take_no_room_from_the_running():
    """Texts seen before wait, known pages and all, behind one that needs the room."""
    engine = engine_of(slots=1, context=640)
    texts = [np.random.default_rng(i).integers(VOCAB, size=130).tolist() for i in range(5)]
    for i, text in enumerate(texts):
        engine.add(Request(i, text, SamplingParams(max_tokens=1)))
    list(engine.run())
    engine.add(Request(5, [1, 2, 3] * 200, SamplingParams(max_tokens=2)))
    for i, text in enumerate(texts):
        engine.add(Request(i, text, SamplingParams(max_tokens=1)))
    assert sorted(event.request for event in engine.run() if event.finish_reason) == list(range(6))


def test_a_cancelled_waiting_request_holds_nothing():
    engine = engine_of(slots=1)
    for i in range(4):
        engine.add(Request(i, list(range(16)) * 6, SamplingParams(max_tokens=1)))
    engine.cancel(2)
    assert sorted(event.request for event in engine.run() if event.finish_reason) == [0, 1, 3]
    assert engine.cache.held() == 0


@pytest.mark.parametrize("nodes", [4, 16, 60])
def test_a_bush_at_the_end_of_the_context_fits(nodes):
    class Wide(FixedController):
        def __init__(self):
            self._budget = Budget(nodes, 2)

    model = TinyModel(VOCAB, reach=None, context=1024)
    prompt = [1, 2, 3, 4, 5]
    plain = engine_of(model, context=64)
    plain.add(Request(0, prompt, SamplingParams(max_tokens=500)))
    answer = [token for event in plain.run() for token in event.tokens]
    assert len(answer) == 59
    drafter = ScriptedDrafter(bush(VOCAB, right_for=1), {0: [*prompt, *answer]})
    engine = Engine(model, ByteTokenizer.letters(VOCAB), drafter, Wide(), CoupledVerifier(), context=64)
    engine.add(Request(0, prompt, SamplingParams(max_tokens=500)))
    assert [token for event in engine.run() for token in event.tokens] == answer


# ---- which sequences run


def sequence(name, prompt=(1, 2, 3), **params):
    return Sequence(Request(name, list(prompt), SamplingParams(**params)), ByteTokenizer.letters(VOCAB), context=512)


def test_first_come_first_served():
    order = []
    engine = engine_of(slots=2)
    for i, count in enumerate((3, 8, 2, 2)):
        engine.add(Request(i, [1 + i], SamplingParams(max_tokens=count)))
    assert (engine.parts.scheduler.load().running, engine.parts.scheduler.load().waiting) == (0, 4)
    seen = []
    while not engine.is_idle:
        events = engine.step()
        seen.append([event.request for event in events])
        order += [event.request for event in events if event.finish_reason]
    assert order == [0, 2, 3, 1]
    assert max(map(len, seen)) == 2


def test_a_step_without_requests_is_empty():
    assert list(engine_of().run()) == []
    assert engine_of().step() == []


def test_each_request_ends_in_exactly_one_event():
    engine = engine_of(drafter=NgramDrafter())
    for i in range(6):
        engine.add(Request(i, [i, 1, 2], SamplingParams(0.9, seed=i, max_tokens=5 + i)))
    ends = [event.request for event in engine.run() if event.finish_reason]
    assert sorted(ends) == list(range(6))


# ---- parts of a round


def test_budgets_shrink_to_what_may_be_committed():
    engine = engine_of()
    engine.add(Request(0, [1, 2, 3], SamplingParams(max_tokens=5)))
    (one,) = engine.parts.scheduler._waiting
    engine.step()
    assert (len(one), one.room) == (4, 4)
    cut = limit(Budget(8, 8, np.zeros(9), {"a": 0.5}), one, engine.cache, engine.parts.model, ("a",))
    assert (cut.nodes, cut.depth, cut.step) == (8, 3, {"a": 0.5})
    assert limit(Budget(2, 2), one, engine.cache, engine.parts.model, ("a",)) == Budget(2, 2)
    assert limit(Budget(0, 0), one, engine.cache, engine.parts.model, ("a",)).nodes == 0


def test_nothing_is_drafted_while_a_prompt_is_read():
    engine = engine_of(drafter=NgramDrafter())
    engine.add(Request(0, [1, 2, 3, 1, 2, 3, 1, 2], SamplingParams(max_tokens=4)))
    (event,) = engine.step()
    assert sum(event.round.drafted) == 0


def optimal(most):
    return OptimalController(CostTable({1: 1.0, 5: 1.1}), ("model",), most=most, step_seconds={"model": 0.01})


CONTROLLERS = {name: optimal if name == "optimal" else choice.make for name, choice in choices.CONTROLLERS.items()}


@pytest.mark.parametrize("control", CONTROLLERS)
@pytest.mark.parametrize("beside", ["alone", "in a mix", "staged"])
@pytest.mark.parametrize("length", [5, 600])
def test_a_draft_model_reads_nothing_before_the_first_token(control, beside, length):
    model, draft = TinyModel(VOCAB, reach=None, context=1024), TinyModel(VOCAB, reach=None, context=1024)
    make = StagedDrafter if beside == "staged" else ModelDrafter
    drafter = make(draft, context=1024, name="model")
    if beside == "in a mix":
        drafter = MixDrafter([NgramDrafter(), drafter])
    parts = CONTROLLERS[control](4), CoupledVerifier()
    engine = Engine(model, ByteTokenizer.letters(VOCAB), drafter, *parts, context=1000)
    prompt = np.random.default_rng(1).integers(VOCAB, size=length).tolist()
    engine.add(Request(0, prompt, SamplingParams(max_tokens=30)))
    said = []
    while not said:
        said += [event for event in engine.step() if event.tokens]
        assert draft.forwards == 0
    drafted = [sum(event.round.drafted) for event in engine.run()]
    if control != "optimal":  # which sees that this draft takes as long as its target
        assert max(drafted) > 0
        assert draft.forwards > 0


def test_a_draft_model_reads_nothing_for_one_token():
    draft = TinyModel(VOCAB, reach=None, context=1024)
    engine = engine_of(drafter=ModelDrafter(draft, context=1024))
    engine.add(Request(0, [1, 2, 3], SamplingParams(max_tokens=1)))
    list(engine.run())
    assert draft.forwards == 0


def test_a_tree_is_grafted_onto_the_tokens_before_it():
    tree = TokenTree(np.array([9, 5, 6, 7], np.int32), np.array([-1, 0, 0, 2], np.int32))
    grafted = graft(np.array([7, 8, 9], np.int32), tree)
    assert grafted.tokens.tolist() == [7, 8, 9, 5, 6, 7]
    assert grafted.parents.tolist() == [-1, 0, 1, 2, 2, 4]
    assert graft(np.array([9], np.int32), tree) is tree


def test_a_scheduler_removes_the_waiting_and_the_running():
    scheduler = Scheduler(TinyModel(VOCAB).new_cache(1024), 1)
    first, second = sequence(0), sequence(1)
    scheduler.add(first)
    scheduler.add(second)
    assert scheduler.choose(32, ROWS) == []
    assert scheduler.admit() == [one for one, _ in scheduler.choose(32, ROWS)] == [first]
    assert scheduler.admit() == []
    assert scheduler.find(1) is second
    assert scheduler.find(2) is None
    scheduler.remove(second)
    scheduler.remove(first)
    assert scheduler.is_idle


# ---- numbers


def test_rounds_and_tallies_add_up():
    model = TinyModel(VOCAB, reach=None)
    plain = engine_of(model)
    plain.add(Request(0, [1, 2, 3], SamplingParams(max_tokens=30)))
    answer = [1, 2, 3, *(token for event in plain.run() for token in event.tokens)]
    drafter = ScriptedDrafter(half_liar(VOCAB, 2), {0: answer})
    engine, metrics = engine_of(model, drafter), SpeculationMetrics()
    engine.add(Request(0, [1, 2, 3], SamplingParams(max_tokens=30)))
    sources = []
    for event in engine.run():
        metrics.add(event.round)
        sources += event.sources
        assert len(event.sources) == len(event.tokens) == event.round.committed
        assert event.round.censored == (event.finish_reason is not None)
        assert all(kept <= made for kept, made in zip(event.round.accepted, event.round.drafted, strict=True))
        assert event.round.by_source.get("scripted", (0, 0))[0] == sum(event.round.drafted)
        assert min(event.round.draft_seconds, event.round.verify_seconds, event.round.other_seconds) >= 0
    # The prompt's round commits 1; then 2 + 1 a round: nine rounds of 3 and what is left of the tenth.
    assert metrics.rounds == 11
    assert metrics.committed_tokens == 30 == len(answer) - 3
    assert metrics.acceptance_length == 30 / 11
    assert metrics.accepted_tokens + metrics.rounds == metrics.committed_tokens
    assert metrics.accepted_tokens == sources.count("scripted")
    assert metrics.accepted_per_position[2:] == [0] * len(metrics.accepted_per_position[2:])
    assert metrics.acceptance_rate == metrics.accepted_tokens / metrics.drafted_tokens
    assert metrics.by_source == {"scripted": {"drafted": metrics.drafted_tokens, "accepted": metrics.accepted_tokens}}


def test_an_empty_tally_divides_by_nothing():
    assert SpeculationMetrics().acceptance_rate == SpeculationMetrics().acceptance_length == 0


def test_a_round_counts_a_tree_by_depth_and_source():
    tree = TokenTree(np.array([0, 1, 2, 3, 4], np.int32), np.array([-1, 0, 0, 1, 3], np.int32))
    draft = Draft(tree, np.ones(5, np.float32), np.array([0, 0, 1, 1, 0], np.int8))
    assert sources_of(draft, Verdict((1, 3), 9), ("a", "b")) == ("a", "b", "")
    engine = engine_of()
    engine.add(Request(0, [0], SamplingParams()))
    (one,) = engine.parts.scheduler.admit()
    _, (part,) = pack([(one, ROWS)], [draft], engine.cache)
    assert part.rows == slice(0, 5)
    round = round_of(
        Event(0, (1, 3, 9), ""), Verdict((1, 3), 9), part, ("a", "b"), rows=6, spent={}, seconds=(0.1, 0.2, 0.3)
    )
    assert round.drafted == (2, 1, 1)
    assert round.accepted == (1, 1, 0)
    assert round.by_source == {"a": (2, 1), "b": (2, 1)}


def test_events_tell_of_the_draft_and_of_what_was_kept():
    model = TinyModel(VOCAB, reach=None, context=1024)
    engine = engine_of(model)
    engine.add(Request(0, [1, 2], SamplingParams(max_tokens=24)))
    answer = [token for event in engine.run() for token in event.tokens]
    engine = engine_of(model, ScriptedDrafter(bush(VOCAB, right_for=3), {0: answer}))
    engine.add(Request(0, [1, 2], SamplingParams(max_tokens=24)))
    drafted = [event for event in engine.run() if event.draft is not None and event.draft.drafted]
    assert len(drafted) > 3
    for event in drafted:
        assert event.draft.tree.tokens[list(event.nodes)].tolist() == [*event.tokens][: len(event.nodes)]
        assert [bool(source) for source in event.sources[: len(event.nodes)]] == [True] * len(event.nodes)
        assert not event.draft.distributions


@pytest.mark.parametrize("most", [0, 1, 3, None])
def test_a_request_caps_its_own_drafts_and_no_others(most):
    model = TinyModel(VOCAB, reach=None, context=1024)

    def play(speculation):
        drafter = ScriptedDrafter(half_liar(VOCAB, 2), answers)
        engine = engine_of(model, drafter, length=4)
        for i in range(2):
            engine.add(Request(i, [1, 2 + i], SamplingParams(max_tokens=20), speculation=speculation[i]))
        events = list(engine.run())
        return [[e for e in events if e.request == i] for i in range(2)]

    answers = {0: [], 1: []}
    whole = play([Speculation(0), Speculation(0)])
    assert not any(event.round.drafted for one in whole for event in one)
    answers = {i: [token for event in one for token in event.tokens] for i, one in enumerate(whole)}
    capped, other = play([Speculation(most), Speculation()])
    assert [token for event in capped for token in event.tokens] == answers[0]
    assert [token for event in other for token in event.tokens] == answers[1]
    assert max(sum(event.round.drafted) for event in capped) == (4 if most is None else most)
    assert max(sum(event.round.drafted) for event in other) == 4


@pytest.mark.parametrize("wanted", [{"ngram"}, {"one"}, {"nothing else"}, {"ngram", "one"}])
def test_a_request_chooses_its_sources(wanted):
    class Two(ScriptedDrafter):
        """Its guesses are of two sources by turns."""

        sources = ("one", "two")

        def _propose(self, view, budget):
            draft = super()._propose(view, budget)
            return Draft(draft.tree, draft.acceptance_prob, (np.arange(len(draft.tree)) // 3 % 2).astype(np.int8))

    model = TinyModel(VOCAB, reach=1, context=1024)
    answers = {0: [token for event in played(model, NoDrafter(), Speculation()) for token in event.tokens]}
    drafter = MixDrafter([NgramDrafter(), Two(bush(VOCAB, right_for=4), answers)])
    events = played(model, drafter, Speculation(sources=frozenset(wanted)))
    assert [token for event in events for token in event.tokens] == answers[0]
    guessed = {name for event in events for name in event.round.by_source}
    assert guessed == wanted & {"ngram", "one"}


def played(model, drafter, speculation):
    engine = engine_of(model, drafter, length=6)
    engine.add(Request(0, [1, 2, 1, 2, 1, 2], SamplingParams(max_tokens=60), speculation=speculation))
    return list(engine.run())


def test_the_first_event_tells_what_was_cached():
    engine = engine_of()
    for i, cached in enumerate((0, 96)):
        engine.add(Request(i, list(range(16)) * 7, SamplingParams(max_tokens=2)))
        assert {event.cached for event in engine.run()} == {cached}
