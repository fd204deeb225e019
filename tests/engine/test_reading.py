"""How prompts are read beside replies: in pieces if they come later, whole if they come together."""

from dataclasses import replace

from paceline.core.request import SamplingParams
from paceline.engine.scheduler import ROWS, Scheduler
from paceline.engine.sequence import Request
from paceline.testing import TinyModel
from tests.engine.test_engine import VOCAB, engine_of


def test_a_long_prompt_is_read_in_pieces_beside_others():
    model = TinyModel(VOCAB, reach=None, context=2048)
    engine = engine_of(model, context=1500)
    engine.parts = replace(engine.parts, clock=lambda: 0.0)  # reading holds nothing up
    engine.add(Request(1, [3], SamplingParams(max_tokens=8)))
    said = {0: [], 1: [len(event.tokens) for event in engine.step()]}
    engine.add(Request(0, [1, 2] * 500, SamplingParams(max_tokens=2)))
    for event in engine.run():
        said[event.request].append(len(event.tokens))
        assert event.round.committed == len(event.tokens)
    assert said[0] == [0, 0, 0, 0, 1, 1]  # 1000 tokens: 32 before the time of a row is known, then pieces of 255
    assert said[1] == [1] * 8
    assert ROWS == 256


def test_prompts_that_come_together_are_read_together(monkeypatch):
    """A reply is held up by those that came before it began, and hardly by later ones."""
    monkeypatch.setattr(Scheduler, "_beside", lambda *_: 7)
    engine = engine_of(TinyModel(VOCAB, reach=None, context=2048), context=1500)
    for i in range(4):
        engine.add(Request(i, [i] * 250, SamplingParams(max_tokens=8)))
    rounds = [engine.step() for _ in range(5)]
    assert [max(event.round.rows for event in events) for events in rounds[:4]] == [256, 256, 256, 238]
    assert all(event.tokens for event in rounds[4])
    engine.add(Request(4, [4] * 250, SamplingParams(max_tokens=8)))
    assert engine.step()[0].round.rows == 4 + 7
