"""What one request taught a drafter helps the next one, and is gone once it is told to forget."""

import numpy as np
import pytest

from paceline import LLM, SamplingParams
from paceline.bench.ways import Rig, Way
from paceline.control.fixed import FixedController
from paceline.doctor.measure import Examination, examine
from paceline.draft.base import NoDrafter, forget_texts
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.compose.staged import StagedDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.lookup.recycle import RecycleDrafter
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.lab.lookahead import LookaheadDrafter
from paceline.testing import ByteTokenizer, TinyModel
from paceline.verify.coupled import CoupledVerifier

VOCAB = 64
KINDS = {
    "recycle": lambda: RecycleDrafter(VOCAB),
    "lookahead": LookaheadDrafter,
    "mix": lambda: MixDrafter([NgramDrafter(), RecycleDrafter(VOCAB)]),
    "staged": lambda: StagedDrafter(TinyModel(VOCAB, reach=2, seed=9), context=512, inner=RecycleDrafter(VOCAB)),
}


def accepted(model, drafter, prompt):
    tokenizer = ByteTokenizer([b"%c" % (32 + i) for i in range(VOCAB)])
    engine = Engine(model, tokenizer, drafter, FixedController(4), CoupledVerifier(), context=512)
    kept = 0
    engine.add(Request(0, prompt, SamplingParams(max_tokens=60)))
    for event in engine.run():
        kept += sum(event.round.accepted)
    return kept


@pytest.mark.parametrize("kind", ["recycle", "lookahead", "mix"])
def test_a_repeated_kind_is_guessed_better_unless_forgotten(kind):
    model, prompt = TinyModel(VOCAB, reach=2, seed=3), [1, 2, 3, 4]
    drafter = KINDS[kind]()
    first, second = (accepted(model, drafter, prompt) for _ in range(2))
    forget_texts(drafter)
    third = accepted(model, drafter, prompt)
    assert second > first + 5
    assert abs(third - first) <= 2, "what is learnt of how often guesses are right stays"


def test_tables_are_empty_after_forgetting():
    for kind, make in KINDS.items():
        drafter, model = make(), TinyModel(VOCAB, reach=2, seed=3)
        accepted(model, drafter, [1, 2, 3, 4])
        inner = {"mix": lambda d: d.members[1], "staged": lambda d: d.inner}.get(kind, lambda d: d)(drafter)
        table = inner._pool if kind == "lookahead" else np.flatnonzero(inner._successors >= 0)
        assert len(table)
        forget_texts(drafter)
        table = inner._pool if kind == "lookahead" else np.flatnonzero(inner._successors >= 0)
        assert not len(table)
    forget_texts(NoDrafter(), NgramDrafter())


@pytest.fixture(scope="module")
def llm(talker):
    return LLM(talker, draft="recycle", control="fixed", context=512)


def taught_at_starts(llm, drafter, monkeypatch):
    """Return a list that takes how much the table holds whenever a reply begins."""
    found, own = [], llm.stream

    def stream(*asked):
        found.append(np.count_nonzero(drafter._successors >= 0))
        return own(*asked)

    monkeypatch.setattr(llm, "stream", stream)
    return found


def test_the_bench_measures_first_runs(llm, monkeypatch):
    way = Way("recycle", "fixed")
    rig = Rig(llm, llm.target.model._pool, [way], [0.0])
    starts = taught_at_starts(llm, rig._players[way, 0.0].drafter, monkeypatch)
    for _ in range(3):
        assert rig.reply(way, [70, 71, 72], SamplingParams(max_tokens=20)).completion.metrics.drafted_tokens
    assert starts == [0, 0, 0]


def test_the_doctor_measures_first_runs(llm, monkeypatch):
    monkeypatch.setattr("paceline.doctor.measure.measure_forwards", lambda model: {1: 1.0})
    monkeypatch.setattr("paceline.doctor.measure.floors", lambda llm, model: (0.0, 0.0))
    starts = taught_at_starts(llm, llm.engine.parts.drafter, monkeypatch)
    examine(llm, ["ab"] * 3, SamplingParams(max_tokens=20), Examination(), is_late=lambda: False)
    assert starts == [0] * 6
