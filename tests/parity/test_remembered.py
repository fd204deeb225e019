"""Whatever a run remembers, true or false, it says the same; only how much is drafted differs."""

import numpy as np
import pytest
from parity_tools import run

from paceline.control.optimal import OptimalController
from paceline.core.request import SamplingParams
from paceline.draft.base import experience_of
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.lookup.recycle import RecycleDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.estimate.cost import CostTable
from paceline.testing import TinyModel

VOCAB = 16
TABLE = {rows: 1e-3 * (1 + 0.05 * rows) for rows in (1, 2, 4, 8, 16)}
MEMORIES = {
    "nothing": lambda counts, chance: counts * 0,
    "never right": lambda counts, chance: counts * 0 + [[0.0], [50.0]],
    "always right": lambda counts, chance: counts * 0 + 50.0,
    "anything": lambda counts, chance: np.sort(50 * chance.random(counts.shape), axis=0),
}


def mix():
    model = TinyModel(VOCAB, reach=4, seed=2, sharpness=1.5, context=1024)
    return MixDrafter(
        [SuffixDrafter(), RecycleDrafter(VOCAB), NgramDrafter(), ModelDrafter(model, context=1024, name="m")]
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_memory_changes_a_token(temperature, monkeypatch):
    model = TinyModel(VOCAB, reach=4, seed=2, context=1024)
    chance = np.random.default_rng(0)
    prompts = [chance.integers(VOCAB, size=n).tolist() for n in (5, 30, 70)]
    params = [SamplingParams(temperature, seed=i, max_tokens=30 + i) for i in range(3)]
    plain = [run(model, [p], one, context=1024)[0] for p, one in zip(prompts, params, strict=True)]
    drafted = {}
    for name, memory in MEMORIES.items():
        drafter = mix()
        controller = OptimalController(CostTable(TABLE), drafter.sources, most=16)
        for record in {**experience_of(drafter), **controller.experience}.values():
            record.recall(memory(record.gained(), chance), 6.0)
        monkeypatch.setattr("parity_tools.FixedController", lambda length, c=controller: c)
        together = run(model, prompts, params, drafter, context=1024)
        assert [said.key() for said in together] == [said.key() for said in plain], name
        drafted[name] = max(len(said.metrics.accepted_per_position) for said in together)
    assert drafted["always right"] > drafted["never right"], "it does change how deep drafts go"
