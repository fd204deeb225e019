"""The recording in the repository is whole, small, and worth guessing for."""

import pytest
from rig.machines import MACHINES
from rig.play import Player, control_of
from rig.recording import HOME, load


def test_the_recording_in_the_repository_is_whole_and_small():
    recording = load()
    assert HOME.stat().st_size < 3_000_000
    assert len(recording.texts) >= 24
    assert all(sum(t.workload == name for t in recording.texts) == 4 for name in recording.workloads)
    assert len(recording.workloads) == 6
    assert sum(len(text.reply) for text in recording.texts) > 2000
    assert len(recording.vocabulary) < 20_000
    assert recording.ends


@pytest.mark.parametrize(("control", "least"), [("optimal", 1.3), ("fixed:4", 1.3), ("fixed:0", 1.0)])
def test_recorded_code_is_faster_with_guesses(control, least):
    recording, machine = load(), MACHINES["xeon-vnni"]
    text = next(text for text in recording.texts if text.workload == "code")
    played = Player(recording, machine, control_of(control)).play(text)
    assert played.tokens == len(text.reply) - 1
    assert least <= played.speedup(machine) * (1 + 1e-9) < 4
