"""No controller changes a token; the optimal one leaves a useless draft model out and says why."""

import numpy as np
import pytest
from parity_tools import run

from paceline.control.optimal import OptimalController
from paceline.core.batch import Forward
from paceline.core.request import SamplingParams
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.estimate.cost import CostTable
from paceline.lab.confidence import ConfidenceController
from paceline.lab.ema import EmaController
from paceline.lab.schedule import ScheduleController
from paceline.testing import ScriptedDrafter, TinyModel, bush, half_liar, liar, oracle

VOCAB = 16
TABLE = {rows: 1e-3 * (1 + 0.05 * rows) for rows in (1, 2, 4, 8, 16)}
CONTROLLERS = {
    "optimal": lambda names: OptimalController(CostTable(TABLE), names, most=16),
    "ema": lambda names: EmaController(16),
    "schedule": lambda names: ScheduleController(16),
    "confidence": lambda names: ConfidenceController(16),
    "entropy": lambda names: ConfidenceController(16, by_entropy=True),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", CONTROLLERS)
def test_no_controller_changes_a_token(name, temperature, monkeypatch):
    model = TinyModel(VOCAB, reach=4, seed=2, context=1024)
    chance = np.random.default_rng(0)
    prompts = [chance.integers(VOCAB, size=n).tolist() for n in (5, 30, 70)]
    params = [SamplingParams(temperature, seed=i, max_tokens=30 + i) for i in range(3)]
    plain = [run(model, [p], one, context=1024)[0] for p, one in zip(prompts, params, strict=True)]
    answers = {i: [*p, *said.tokens] for i, (p, said) in enumerate(zip(prompts, plain, strict=True))}
    drafters = [
        NgramDrafter(),
        ModelDrafter(TinyModel(VOCAB, reach=4, seed=2, sharpness=1.5, context=1024), context=1024),
        ScriptedDrafter(half_liar(VOCAB, 2), answers),
        ScriptedDrafter(bush(VOCAB, right_for=2), answers),
    ]
    for drafter in drafters:
        monkeypatch.setattr("parity_tools.FixedController", lambda length, d=drafter: CONTROLLERS[name](d.sources))
        together = run(model, prompts, params, drafter, context=1024)
        assert [said.key() for said in together] == [said.key() for said in plain]


class Clock:
    """Stands still but for what moves it."""

    now = 0.0

    def __call__(self):
        return self.now


class Timed(TinyModel):
    """Moves a clock with every forward, and a little more for every row."""

    def __init__(self, clock, seconds, **settings):
        super().__init__(VOCAB, **settings)
        self.clock, self.seconds = clock, seconds

    def forward(self, batch, cache, *, taps=()) -> Forward:
        self.clock.now += self.seconds * (1 + 0.05 * len(batch.tokens))
        return super().forward(batch, cache, taps=taps)


@pytest.fixture
def clock(monkeypatch):
    """What rounds and draft models tell the time by."""
    found = Clock()
    for module in ("engine.step", "draft.model.drafter"):
        monkeypatch.setattr(f"paceline.{module}.perf_counter", found)
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_batch_of_two_kinds_drafts_exactly_for_one(temperature, clock, monkeypatch):
    """A drafter that is right for even requests and lies for odd ones: budgets differ, tokens do not."""
    model = Timed(clock, 1e-3, reach=4, seed=2, context=1024)
    prompts = [np.random.default_rng(i).integers(VOCAB, size=5 + 20 * i).tolist() for i in range(4)]
    params = [SamplingParams(temperature, seed=i, max_tokens=60 + 5 * i) for i in range(4)]
    plain = [run(model, [p], one, context=1024)[0] for p, one in zip(prompts, params, strict=True)]
    answers = {i: [*p, *said.tokens] for i, (p, said) in enumerate(zip(prompts, plain, strict=True))}

    class Partial(ScriptedDrafter):
        def _propose(self, view, budget):
            self._script = liar(VOCAB) if view.id % 2 else oracle
            return super()._propose(view, budget)

    made = []

    def controller(length):
        made.append(CONTROLLERS["optimal"](["scripted"]))
        return made[-1]

    monkeypatch.setattr("parity_tools.FixedController", controller)
    together = run(model, prompts, params, Partial(oracle, answers), context=1024)
    assert [said.key() for said in together] == [said.key() for said in plain]
    share = [said.metrics.drafted_tokens / said.metrics.rounds for said in together]
    assert min(share[::2]) > 3 * max(share[1::2]), (share, made[0].reason)
    assert min(said.metrics.acceptance_length for said in together[::2]) > 3


def test_an_unrelated_draft_model_is_left_out(clock, monkeypatch):
    """Few rounds draft, and the reply takes hardly longer than without."""
    target, draft = Timed(clock, 3e-3, reach=None, seed=1), Timed(clock, 1e-3, reach=None, seed=9)
    table = CostTable({rows: 3e-3 * (1 + 0.05 * rows) for rows in (1, 2, 4, 8, 16)})
    made = []

    def controller(length):
        made.append(OptimalController(table, ["stranger"], most=8, step_seconds={"stranger": 1e-3}))
        return made[-1]

    monkeypatch.setattr("parity_tools.FixedController", controller)
    drafter = ModelDrafter(draft, context=512, name="stranger")
    (said,) = run(target, [[1, 2, 3]], SamplingParams(max_tokens=300), drafter, check=False)
    assert 300 * 3e-3 * 1.05 / clock.now >= 0.95, (clock.now, made[0].reason)
    assert said.metrics.drafted_tokens <= 24, (said.metrics, made[0].reason)
    assert made[0].reason.startswith("drafting off: stranger is right "), made[0].reason
