"""The rig plays what the real engine plays: the same rounds to the last second, on a pair that can be run both ways."""

from dataclasses import replace

import numpy as np
import pytest
from rig.machines import MACHINES, Clock
from rig.models import RecordedDraft
from rig.play import MODEL, Paced, Player, control_of, optimal, order_of
from tiny_recording import CONTEXT, VOCAB, pair, tiny_recording

from paceline.core.request import SamplingParams
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.lookup.predicted import PredictedDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.testing import ByteTokenizer


class Timed:
    """A tiny model whose forwards take what a machine's take."""

    def __init__(self, model, clock, kind):
        self.model, self.clock, self.kind, self.spec = model, clock, kind, model.spec
        self.capabilities = model.capabilities

    def new_cache(self, tokens):
        return self.model.new_cache(tokens)

    def forward(self, batch, cache, *, taps=()):
        self.clock.forward(self.kind, len(batch.tokens))
        return self.model.forward(batch, cache)


def played_by_the_engine(machine, control, names, texts):
    """The rounds of the real engine with the tiny models themselves."""
    target, draft = pair()
    clock = Clock(machine, seed=1)
    made = {
        "predicted": PredictedDrafter,
        "suffix": SuffixDrafter,
        MODEL: lambda: ModelDrafter(
            Timed(draft, clock, "draft"), context=CONTEXT, name=MODEL, native=False, clock=clock
        ),
    }
    members = [made[name]() for name in names.split(",")]
    drafter = members[0] if len(members) == 1 else MixDrafter(members)
    tokenizer = ByteTokenizer.letters(VOCAB, eos_ids=tiny_recording().ends)
    engine = Engine(
        Timed(target, clock, "target"), tokenizer, drafter, control(machine, drafter), Paced(clock),
        context=CONTEXT, slots=1,
    )  # fmt: skip
    engine.parts = replace(engine.parts, clock=clock)
    found = []
    for i, text in enumerate(texts):
        prediction = text.prediction.tolist() if len(text.prediction) else None
        engine.add(Request(i, text.prompt.tolist(), SamplingParams(max_tokens=text.max_tokens), prediction))
        found.append([event.round for event in engine.run()])
    return found


@pytest.mark.parametrize("control", ["optimal", "fixed:3", "ema"])
@pytest.mark.parametrize("names", [MODEL, f"suffix,{MODEL}", f"predicted,suffix,{MODEL}", "suffix"])
def test_the_rig_plays_the_rounds_of_the_real_engine(names, control):
    recording, machine = tiny_recording(), MACHINES["xeon-vnni"]
    texts = [
        replace(text, prediction=np.roll(text.reply, 2)[: len(text.reply) // 2]) if "predicted" in names else text
        for text in recording.texts
    ]
    player = Player(recording, machine, control_of(control), draft=names, seed=1)
    ours = [list(player.play(text).rounds) for text in texts]
    theirs = played_by_the_engine(machine, control_of(control), names, texts)
    assert ours == theirs
    # The guard gives up look-ups alone on these texts after 17 accepted guesses; all others accept more.
    least = 10 if (names, control) == ("suffix", "optimal") else 20
    assert sum(sum(round.accepted) for reply in ours for round in reply) > least


def test_a_session_repeats_to_the_second():
    recording = tiny_recording()
    first, second = (
        [player.play(text) for text in order_of(recording, 3)[:3]]
        for player in (Player(recording, MACHINES["zen3"], optimal, seed=3) for _ in range(2))
    )
    assert first == second


def test_nothing_drafted_is_plain():
    recording, machine = tiny_recording(), MACHINES["zen4"]
    player = Player(recording, machine, control_of("fixed:0"))
    assert [player.play(text).speedup(machine) for text in recording.texts] == pytest.approx([1.0] * 5)


MUTANTS = {
    "a draft equally sure of all": (RecordedDraft, "_say", lambda say: lambda s, t, sure, b: say(s, t, 0.5, b)),
    "runners-up in another order": (RecordedDraft, "_say", lambda say: lambda s, t, sure, b: say(s, t, sure, b[::-1])),
    "a forward of a row more": (Clock, "forward", lambda on: lambda s, kind, rows: on(s, kind, rows + 1)),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_rig_is_told_from_the_engine(mutant, monkeypatch):
    recording, machine, names = tiny_recording(), MACHINES["xeon-vnni"], f"suffix,{MODEL}"
    theirs = played_by_the_engine(machine, optimal, names, recording.texts[3:])
    owner, name, change = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    player = Player(recording, machine, optimal, draft=names, seed=1)
    assert [list(player.play(text).rounds) for text in recording.texts[3:]] != theirs
