"""Measuring a machine once: medians of few, kept on disk, measured again when the file is of no use."""

import json
import os

import pytest

from paceline.draft.base import NoDrafter
from paceline.draft.model import ModelDrafter
from paceline.engine.calibrate import ROWS, calibrated, identity, measure_forwards, measure_steps
from paceline.testing import TinyModel

KEY = {"model": "a", "cpu": "b"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    return tmp_path / "measured"


class Clocked(TinyModel):
    """Takes as long as it is told, on a clock of its own."""

    now = 0.0

    def __init__(self, per_row, **settings):
        super().__init__(**settings)
        self.per_row = per_row

    def forward(self, batch, cache, *, taps=()):
        self.now += 0.01 + self.per_row * len(batch.tokens)
        return super().forward(batch, cache, taps=taps)

    def clock(self):
        return self.now


def test_all_rows_are_measured_when_they_are_cheap():
    model = Clocked(1e-5)
    found = measure_forwards(model, clock=model.clock)
    assert tuple(sorted(found)) == ROWS
    for rows, seconds in found.items():
        assert seconds == pytest.approx(0.01 + 1e-5 * rows)


def test_dear_rows_are_left_out_and_the_time_is_kept():
    model = Clocked(0.05)
    found = measure_forwards(model, clock=model.clock)
    assert {1, 2, 3, 4} <= set(found)
    assert 64 not in found
    assert model.now < 5.5, "the text of 64 tokens takes 3.2 itself"


def test_a_short_context_is_no_obstacle():
    assert 1 in measure_forwards(TinyModel(context=8))


def test_steps_are_those_of_sources_that_take_time():
    drafter = ModelDrafter(TinyModel(), context=256, name="small")
    steps = measure_steps(drafter, 16)
    assert list(steps) == ["small"]
    assert steps["small"] > 0
    assert drafter.cache.held() == 0
    assert measure_steps(NoDrafter(), 16) == {}


def test_it_is_measured_once_and_again_when_asked(home):
    model, drafter = TinyModel(), NoDrafter()
    first = calibrated(model, drafter, KEY)
    before = model.forwards
    second = calibrated(model, drafter, KEY)
    assert model.forwards == before
    assert second.cost.to_json() == first.cost.to_json()
    assert len(list(home.iterdir())) == 1, "nothing half-written is left"
    calibrated(model, drafter, KEY, again=True)
    assert model.forwards > before
    before = model.forwards
    calibrated(model, drafter, {**KEY, "cpu": "another"})
    assert model.forwards > before


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 0}', "\x00", '{"version": 1, "key": {}}', "NaN"])
def test_a_file_of_no_use_is_replaced(home, text):
    model = TinyModel()
    calibrated(model, NoDrafter(), KEY)
    (path,) = home.iterdir()
    path.write_text(text)
    before = model.forwards
    calibrated(model, NoDrafter(), KEY)
    assert model.forwards > before
    assert json.loads(path.read_text())["key"] == KEY


def test_wrong_numbers_in_a_file_are_not_believed(home):
    model = TinyModel()
    calibrated(model, NoDrafter(), KEY)
    (path,) = home.iterdir()
    said = json.loads(path.read_text())
    for wrong in (
        {"key": {**KEY, "cpu": "c"}},
        {"forward_seconds": {"1": -1}},
        {"step_seconds": {"m": float("nan")}},
        {"step_seconds": 3},
        {"step_seconds": {"m": 10**400}},
        {"forward_seconds": {"1": 10**400}},
    ):
        path.write_text(json.dumps({**said, **wrong}))
        before = model.forwards
        calibrated(model, NoDrafter(), KEY)
        assert model.forwards > before, wrong


def test_a_pipe_is_not_waited_for(home):
    calibrated(TinyModel(), NoDrafter(), KEY)
    (path,) = home.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert calibrated(TinyModel(), NoDrafter(), KEY).cost.at(1) > 0
    assert json.loads(path.read_text())["key"] == KEY


def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "measured").write_text("a file where the folder would be")
    assert calibrated(TinyModel(), NoDrafter(), KEY).cost.at(1) > 0


def test_files_are_told_apart(tmp_path):
    one, two = tmp_path / "a.gguf", tmp_path / "b.gguf"
    one.write_bytes(b"x" * 300_000)
    two.write_bytes(b"x" * 300_000)
    first = identity(one)
    assert identity(two) != first
    assert identity(one) == first
    with one.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"y")
    assert identity(one) != first
