"""The rig tells good from bad: planted changes show, and what cannot be is said."""

import math
from dataclasses import replace

import numpy as np
import pytest
import rig.hindsight
import rig.judge
from rig.ablate import CHANGES, NOTHING, ablate, changed
from rig.hindsight import clairvoyant, held_by_lookups, held_by_model
from rig.judge import Question, complaints, judge
from rig.machines import MACHINES, Clock, Machine, seconds
from rig.play import control_of
from rig.recording import DEEP, Text, save
from tiny_recording import tiny_recording

from paceline.control import optimal as policy
from paceline.errors import UsageError

XEON = MACHINES["xeon-vnni"]


@pytest.fixture
def question(tmp_path, monkeypatch):
    """Two short texts, one machine, one session, hardly any hindsight."""
    for name, values in (("PRICES", (1.8,)), ("ALONE", ()), ("LENGTHS", (2,))):
        monkeypatch.setattr(rig.hindsight, name, values)
    recording = tiny_recording()
    short = replace(recording, texts=(recording.texts[0], recording.texts[3]))
    save(short, tmp_path / "tiny")
    return Question(machines=("xeon-vnni",), sessions=(0,), file=tmp_path / "tiny")


def test_a_controller_that_never_drafts_is_plain_and_behind(question):
    found = judge(replace(question, control="fixed:0"), processes=1)["machines"]["xeon-vnni"]["all"]
    assert found["speedup"] == pytest.approx(1.0)
    assert found["of_best_fixed"] < 0.95
    assert found["of_clairvoyant"] < found["of_best_fixed"]
    assert found["tokens_per_second"] == pytest.approx(1 / (XEON.target(1) + XEON.outside), rel=1e-3)


def test_a_clairvoyant_worse_than_the_controller_is_caught(question, monkeypatch):
    found = judge(question, processes=1)
    assert complaints(found) == []
    monkeypatch.setattr(rig.judge, "clairvoyant", lambda *text, unread: 1.0)
    said = complaints(judge(question, processes=1))
    assert any("passes the clairvoyant's" in line for line in said), said


def test_the_clairvoyant_is_the_fewest_seconds_there_are():
    """Four tokens after the first, all guessed right by the draft: every way to cut them into rounds, by hand."""
    machine = Machine("m", 1.0, {1: 1, 4: 1.3, 8: 3}, 0.2, 0.1, 0.05)
    ones = np.ones(6, np.int32)
    chain = np.tile(np.int32(1), (6, DEEP))
    text = Text(
        "w", 0, 5, ones[:3], ones[:5], np.ones((6, 8), np.int32), chain, chain, np.zeros((6, DEEP, 2), np.int32)
    )
    assert held_by_model(text) == [5, 4, 3, 2, 1]

    def least(left):
        if not left:
            return 0.0
        ways = [machine.target(1 + n) + 0.1 + (0.05 + n * machine.draft(1) if n else 0) for n in range(left)]
        return min(way + least(left - 1 - n) for n, way in enumerate(ways))

    plain = 4 * 1.1
    assert clairvoyant(text, [0] * 5, machine, unread=0) == pytest.approx(plain / least(4))
    assert clairvoyant(text, [0] * 5, machine, unread=None) == pytest.approx(1.0)
    assert clairvoyant(text, [0] * 5, machine, unread=10**6) == pytest.approx(1.0)
    assert clairvoyant(text, [0, 3, 0, 0, 0], machine, unread=None) == pytest.approx(plain / (1.3 + 0.15))


def test_a_runner_up_counts_where_it_is_right():
    text = tiny_recording().texts[3]
    held = held_by_model(text)
    for place, count in enumerate(held[:-DEEP]):
        chain = [*text.guesses[place : place + count, 0]]
        differs = [i for i, (a, b) in enumerate(zip(chain, text.reply[place:], strict=False)) if a != b]
        assert differs in ([], [count - 1])
        if differs:
            assert text.reply[place + count - 1] in text.beside[place + count - 1, 0]


def test_look_ups_hold_as_far_as_the_text_repeats():
    recording = tiny_recording()
    text = recording.texts[0]
    again = replace(text, prompt=np.concatenate([text.prompt, text.reply, text.prompt]))
    (held,) = held_by_lookups(recording, [again], "suffix")
    assert held[2:] == [min(16, len(text.reply) - place) for place in range(2, len(text.reply))]


def test_noise_is_what_the_log_says():
    clock = Clock(XEON, seed=1)
    took = []
    for _ in range(4000):
        before = clock()
        clock.forward("target", 1)
        took.append((clock() - before) / XEON.plain)
    logs = np.log(took)
    assert 1 / 40 < np.mean(np.diff(logs) > 0.3) < 1 / 25  # half as long again, one in 33
    assert np.median(np.abs(np.diff(logs))) == pytest.approx(0.05 * math.sqrt(2) * 0.6745, rel=0.15)
    assert seconds(clock.trace, XEON) == pytest.approx(4000 * XEON.plain)


def test_reading_takes_the_eighth_part_of_eight_rows_a_token():
    assert XEON.draft(256) == pytest.approx(32 * XEON.draft(8))
    assert XEON.draft(1) == pytest.approx(0.2 * XEON.plain)


@pytest.mark.parametrize("name", ["optimal:3", "entropy", "fixed:x", "sooner"])
def test_a_control_that_there_is_not_is_refused(name):
    with pytest.raises(UsageError, match="a control must be one of"):
        control_of(name)


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_finds_its_place_and_leaves_it(name):
    before = {key: value for key, value in vars(policy).items() if key.isupper()}
    with changed(CHANGES[name]):
        pass
    assert {key: value for key, value in vars(policy).items() if key.isupper()} == before


def test_an_ablation_shows_what_is_switched_off(question):
    names = [NOTHING.name, "without draft", "control.gate WORST = 4"]
    found = {row["name"]: row["all"] for row in ablate(question, names, processes=1)["changes"]}
    assert found["without draft"] < 0.95
    assert found["control.gate WORST = 4"] == pytest.approx(1.0, abs=0.1)
