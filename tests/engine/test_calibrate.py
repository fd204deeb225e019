"""Measuring a machine once: the least of few, kept on disk, measured again when the file is of no use or doubtful."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType

import pytest

from paceline.core.round import Spent
from paceline.draft.base import NoDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.calibrate import (
    LIMIT,
    ROWS,
    TEXT,
    Instruments,
    calibrated,
    identity,
    known,
    measure,
    measure_forwards,
    measure_steps,
    time_forwards,
)
from paceline.engine.quality import SURE
from paceline.store import turn
from paceline.testing import TinyModel

KEY = {"model": "a", "cpu": "b"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    return tmp_path / "measured"


@pytest.fixture(autouse=True)
def no_spare_core(monkeypatch):
    """Let a model of one thread leave no core to others, whatever this machine has."""
    monkeypatch.setattr("paceline.engine.calibrate.own_cores", lambda: (0,))


class Clocked(TinyModel):
    """Takes as long as it is told, on a clock of its own, on which tools that it makes look."""

    now = 0.0

    def __init__(self, per_row, base=0.01, **settings):
        super().__init__(**settings)
        self.per_row, self.base = per_row, base
        self.share, self.neighbours = 1.0, 0.0

    def forward(self, batch, cache, *, taps=()):
        self.now += self.base + self.per_row * len(batch.tokens)
        return super().forward(batch, cache, taps=taps)

    def clock(self):
        return self.now

    def tools(self):
        return Instruments(self.clock, lambda: self.now * self.share, lambda: 0, lambda: self.neighbours)


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
    assert model.now < 3.5, "a text of 64 tokens would take 3.2 itself"


def test_small_rows_are_had_twice_beyond_the_limit():
    model = Clocked(0.0, base=0.25)
    found = time_forwards(model, model.tools())
    assert {rows: len(found.seconds[rows]) for rows in SURE} == dict.fromkeys(SURE, 2)
    assert LIMIT < 8 * 0.25
    assert model.now < 4.0
    assert found.wall == pytest.approx(sum(map(sum, found.seconds.values())))


@pytest.mark.parametrize("base", [1.0, 3.0, 20.0])
def test_a_very_slow_machine_measures_little_more_than_two_rows(base):
    model = Clocked(0.0, base=base)
    found = measure(model, NoDrafter(), model.tools())
    assert len(found.cost.rows) >= 2
    assert model.now <= max(6.0, 2 * base)
    assert any("fewer than 2" in doubt for doubt in found.quality.doubts)


def test_a_slowly_read_text_is_no_forward_of_one_row():
    class Stalls(Clocked):
        def forward(self, batch, cache, *, taps=()):
            self.now += 2.0 if len(batch.tokens) == TEXT - 9 else 0.0
            return super().forward(batch, cache, taps=taps)

    model = Stalls(1e-5)
    found = time_forwards(model, model.tools())
    assert max(found.seconds[1]) == pytest.approx(0.01001)
    assert found.wall == pytest.approx(sum(map(sum, found.seconds.values())))


def test_a_short_context_is_no_obstacle():
    assert 1 in measure_forwards(TinyModel(context=8))


def test_steps_are_those_of_sources_that_take_time():
    drafter = ModelDrafter(TinyModel(), context=256, name="small")
    steps = measure_steps(drafter, 16)
    assert list(steps) == ["small"]
    assert steps["small"] > 0
    assert drafter.cache.held() == 0
    assert measure_steps(NoDrafter(), 16) == {}


class Slow(NoDrafter):
    """A drafter whose steps take a second, on a clock of its own."""

    now, spent, known = 0.0, MappingProxyType({}), False

    def propose(self, views, budgets):
        read = 0 if self.known else len(views[0].tokens)
        took = budgets[0].depth * 1.0 + 0.1 * read
        self.now, self.known = self.now + took, True
        self.spent = {"slow": Spent(budgets[0].depth, took, read=read)}
        return []


def test_slow_steps_are_measured_and_not_many():
    drafter = Slow()
    assert measure_steps(drafter, 16, clock=lambda: drafter.now) == {"slow": 1.0}
    assert drafter.now < 6.5, "the text takes 3.2 itself"


def test_it_is_measured_once_and_again_when_asked(home):
    model, drafter = Clocked(1e-3), NoDrafter()
    first = calibrated(model, drafter, KEY, instruments=model.tools())
    before = model.forwards
    second = calibrated(model, drafter, KEY, instruments=model.tools())
    assert model.forwards == before
    assert second.to_json() == first.to_json()
    assert not first.quality.is_doubtful
    assert len(list(home.iterdir())) == 1, "nothing half-written is left"
    calibrated(model, drafter, KEY, again=True, instruments=model.tools())
    assert model.forwards > before
    before = model.forwards
    calibrated(model, drafter, {**KEY, "cpu": "another"}, instruments=model.tools())
    assert model.forwards > before


def test_a_doubtful_one_has_a_second_chance():
    model = Clocked(1e-3)
    readings = iter([0.0, 1.5, 0.0, 0.0])  # a window's begin and end, twice
    tools = replace(model.tools(), neighbours=lambda: next(readings))
    found = measure(model, NoDrafter(), tools)
    assert not found.quality.is_doubtful
    assert found.quality.neighbours == 0.0
    assert model.now < 6.0


@pytest.mark.parametrize(("before", "after"), [(0.01, 0.005), (0.005, 0.01)])
def test_of_two_doubtful_ones_the_least_seconds_count(before, after):
    model = Clocked(1e-3, base=before)
    readings = iter([0.0, 1.5, 0.0, 1.0])

    def neighbours():
        value = next(readings)
        if value == 1.5:
            model.base = after
        return value

    found = measure(model, NoDrafter(), replace(model.tools(), neighbours=neighbours))
    assert found.quality.is_doubtful
    assert found.cost.to_json()["1"] == pytest.approx(0.006)


def test_a_long_first_time_has_no_second():
    model = Clocked(0.0, base=0.6)
    model.neighbours = 1.5
    measure(model, NoDrafter(), model.tools())
    assert model.now < 6.0


def test_a_doubtful_file_is_used_until_the_machine_is_quieter(home):
    model = Clocked(1e-3)
    model.neighbours = 1.5
    first = calibrated(model, NoDrafter(), KEY, instruments=model.tools())
    assert first.quality.is_doubtful
    before = model.forwards
    for model.neighbours in (1.5, 1.2, None):
        assert calibrated(model, NoDrafter(), KEY, instruments=model.tools()).to_json() == first.to_json()
        assert model.forwards == before, model.neighbours
    assert known(KEY).quality == first.quality, "it is marked in the file"
    model.neighbours = 0.1
    assert not calibrated(model, NoDrafter(), KEY, instruments=model.tools()).quality.is_doubtful
    assert model.forwards > before
    assert not known(KEY).quality.is_doubtful


def test_one_row_alone_is_not_kept(home):
    model = Clocked(1e-3, context=2)
    found = calibrated(model, NoDrafter(), KEY, instruments=model.tools())
    assert found.quality.is_doubtful
    assert found.cost.at(1) == pytest.approx(0.011)
    assert known(KEY) is None
    assert not home.exists() or not list(home.iterdir())


def test_the_later_process_takes_what_the_first_kept(home):
    model, other = Clocked(1e-3), Clocked(1e-3, base=0.02)
    found = calibrated(other, NoDrafter(), KEY, instruments=other.tools())
    (path,) = home.iterdir()
    kept = path.read_bytes()
    path.unlink()
    with turn(home.parent), ThreadPoolExecutor() as pool:
        later = pool.submit(calibrated, model, NoDrafter(), KEY, instruments=model.tools())
        time.sleep(0.1)
        assert not later.done()
        assert model.forwards == 0, "it would disturb the other, and be disturbed"
        path.write_bytes(kept)
    assert later.result().to_json() == found.to_json()
    assert model.forwards == 0


def test_many_at_once_keep_one_file(home):
    models = [Clocked(1e-3) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda m: calibrated(m, NoDrafter(), KEY, instruments=m.tools()).cost.to_json(), models))
    assert len(list(home.iterdir())) == 1
    assert all(one == known(KEY).cost.to_json() for one in found)


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


WRONG = [
    {"key": {**KEY, "cpu": "c"}}, {"version": 2}, {"forward_seconds": {"1": -1, "2": 1}}, {"forward_seconds": None},
    {"forward_seconds": {"1": 1.69}}, {"forward_seconds": {}}, {"step_seconds": {"m": float("nan")}},
    {"step_seconds": 3}, {"step_seconds": {"m": 10**400}}, {"forward_seconds": {"1": 10**400, "2": 1}},
    {"quality": None}, {"quality": {}}, {"quality": {"made": "2026-11-30T23:10:00+00:00"}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_numbers_in_a_file_are_not_believed(home, wrong):
    model = Clocked(1e-3)
    calibrated(model, NoDrafter(), KEY, instruments=model.tools())
    (path,) = home.iterdir()
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, **wrong}))
    before = model.forwards
    calibrated(model, NoDrafter(), KEY, instruments=model.tools())
    assert model.forwards > before
    assert json.loads(path.read_text())["quality"]["doubts"] == []


@pytest.mark.parametrize("missing", ["forward_seconds", "step_seconds", "quality"])
def test_a_partial_file_is_measured_again(home, missing):
    model = Clocked(1e-3)
    calibrated(model, NoDrafter(), KEY, instruments=model.tools())
    (path,) = home.iterdir()
    said = json.loads(path.read_text())
    del said[missing]
    path.write_text(json.dumps(said))
    assert known(KEY) is None
    calibrated(model, NoDrafter(), KEY, instruments=model.tools())
    assert missing in json.loads(path.read_text())


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
