"""What was learnt is there in the next run, worth little, and changes no token; a file of no use is as good as none."""

import json
import os
import subprocess
import sys
from time import monotonic

import numpy as np
import pytest

from paceline.control.fixed import FixedController
from paceline.control.guard import PROOF
from paceline.control.optimal import OptimalController
from paceline.control.pending import Pending
from paceline.core.request import SamplingParams
from paceline.core.round import Load
from paceline.draft.base import NoDrafter, experience_of
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.lookup.recycle import RecycleDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.warm_start import KEPT, TRUSTED, WarmStart
from paceline.estimate.acceptance import Acceptance, bounded
from paceline.estimate.cost import CostTable
from paceline.estimate.source import Source
from paceline.formats.catalog import models_folder
from paceline.service.llm import LLM
from paceline.store import turn
from paceline.testing import TinyModel

KEY = {"model": "a", "cpu": "b"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of its own, with the user's models and memory on."""
    models = models_folder()
    models.mkdir(parents=True, exist_ok=True)
    (tmp_path / "models").symlink_to(models)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    monkeypatch.delenv("PACELINE_MEMORY")
    return tmp_path / "measured"


def table(right, tested, *, buckets=3):
    one = Acceptance(np.full(buckets, 0.5))
    for i in range(tested):
        one.observe(1, kept=i < right)
    return one


def memory_at(path, record, *, key=KEY):
    return WarmStart(path, key, {"m": record})


def rate_after(path, *, key=KEY):
    fresh = table(0, 0)
    memory_at(path, fresh, key=key).recall()
    return float(fresh.rates()[1])


# ---- records


def test_recalled_counts_are_worth_a_few_observations():
    one = Acceptance(np.full(2, 0.5))
    one.recall(np.array([[900.0, 0.0], [1000.0, 0.0]]), 6.0)
    assert one.rates()[0] == pytest.approx((5.4 + 1) / 8)
    assert one.rates()[1] == 0.5
    for _ in range(12):
        one.observe(0, kept=False)
    assert one.rates()[0] < 0.4, "a new kind of text has its say"
    np.testing.assert_array_equal(one.gained(), [[0, 0], [12, 0]])
    assert not one.gained().any()
    with pytest.raises(ValueError, match="buckets"):
        one.recall(np.zeros((2, 3)), 6.0)


def test_a_source_begins_where_earlier_runs_ended():
    first = Source("m", 4)
    depths = np.arange(4)
    for i in range(50):
        kept = 3 if i % 10 else 0
        first.observe(0, (depths <= kept).astype(np.int32), (depths < kept).astype(np.int32), censored=False)
    second = Source("m", 4)
    second.recall(first.gained(), 6.0)
    assert second.rate == pytest.approx(first.rate, abs=0.1)
    assert second.tried == 0, "hopes and first tries are this run's"
    assert second.recalled == pytest.approx(6.0)
    np.testing.assert_allclose(second.survivals([0]), first.survivals([0]), atol=0.2)
    for _ in range(10):
        second.observe(0, np.ones(1, np.int32), np.zeros(1, np.int32), censored=False)
    assert second.rate < 0.45
    with pytest.raises(ValueError, match="buckets"):
        second.recall(np.zeros((2, 9)), 6.0)


def test_bounds_keep_rates():
    counts = bounded(np.array([[30.0, 1.0, 0.0], [60.0, 2.0, 0.0]]), 8.0)
    np.testing.assert_allclose(counts, [[4.0, 1.0, 0.0], [8.0, 2.0, 0.0]])
    one = Acceptance(np.full(1, 0.5))
    one.recall(np.array([[4.0], [5.0]]), 9.0)
    one.bound(1.0)
    assert one.rates()[0] == pytest.approx((0.8 + 1) / (1 + 2))


def test_every_source_of_a_mix_has_its_own_name():
    draft = ModelDrafter(TinyModel(16), context=64, name="small")
    mix = MixDrafter([SuffixDrafter(), RecycleDrafter(16), draft, NoDrafter()])
    names = set(experience_of(mix))
    assert {"suffix", "recycle", "small: kept", "small: ahead", "small: beside"} <= names
    assert len(names) == 8 + 4, names
    assert experience_of(NoDrafter()) == {}


# ---- the file


def test_counts_add_up_over_runs_up_to_a_bound(tmp_path):
    path = tmp_path / "x.json"
    memory_at(path, table(6, 6)).save()
    few = rate_after(path)
    memory_at(path, table(0, 6)).save()
    assert rate_after(path) < few - 0.2
    for _ in range(20):
        memory_at(path, table(10, 10)).save()
    kept = json.loads(path.read_text())["right_and_tested"]["m"]
    assert kept[1][1] == pytest.approx(KEPT)
    assert rate_after(path) == pytest.approx((TRUSTED + 1) / (TRUSTED + 2), abs=0.02)
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"], "nothing half-written is left"


def test_a_reply_does_not_wait_for_a_held_file(tmp_path, monkeypatch):
    path, one = tmp_path / "x.json", table(6, 6)
    memory = memory_at(path, one)
    monkeypatch.setattr(memory, "_saved", -1e9)
    with turn(tmp_path):
        started = monotonic()
        memory.save(now=False)
        assert monotonic() - started < 1
        assert not path.exists()
    memory.save()
    assert rate_after(path) == pytest.approx((TRUSTED + 1) / (TRUSTED + 2)), "it is not lost"


def test_what_was_saved_is_not_counted_twice(tmp_path):
    path, record = tmp_path / "x.json", table(3, 4)
    memory = memory_at(path, record)
    memory.save()
    before = path.read_text()
    memory.save()
    memory.save(now=False)
    assert path.read_text() == before
    again = table(0, 0)
    second = memory_at(path, again)
    second.recall()
    second.save()
    assert path.read_text() == before, "what was recalled is no new observation"


def test_two_runs_at_once_both_count(tmp_path):
    path = tmp_path / "x.json"
    one, two = memory_at(path, table(3, 4)), memory_at(path, table(1, 4))
    one.recall()
    two.recall()
    one.save()
    two.save()
    assert json.loads(path.read_text())["right_and_tested"]["m"] == [[0, 4, 0], [0, 8, 0]]


def test_other_tables_in_the_file_stay(tmp_path):
    path = tmp_path / "x.json"
    WarmStart(path, KEY, {"other": table(1, 2)}).save()
    memory_at(path, table(1, 2)).save()
    assert set(json.loads(path.read_text())["right_and_tested"]) == {"m", "other"}


USELESS = ["", "{", "[]", "null", "\x00", "NaN", '{"version": 0}', "[" * 100_000, '{"version": 1, "key": {}}']
WRONG = [
    3, {"m": 3}, {"m": [[1], [1]]}, {"m": [[2, 2, 2], [1, 1, 1]]}, {"m": [[-1, 0, 0], [1, 1, 1]]}, {"m": None},
    {"m": [[1e999, 0, 0], [1e999, 0, 0]]}, {"m": [["x", 0, 0], [1, 1, 1]]}, {"m": [[0, 0, 0], [1, 1]]}, {},
]  # fmt: skip


@pytest.mark.parametrize("text", [
    *USELESS, *(json.dumps({"version": 1, "key": KEY, "right_and_tested": value}) for value in WRONG),
])  # fmt: skip
def test_a_file_of_no_use_is_ignored_and_replaced(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert rate_after(path) == 0.5
    memory_at(path, table(6, 6)).save()
    assert rate_after(path) > 0.7


def test_another_models_file_or_a_huge_one_is_ignored(tmp_path):
    path = tmp_path / "x.json"
    memory_at(path, table(6, 6)).save()
    assert rate_after(path, key={**KEY, "cpu": "c"}) == 0.5
    path.write_text(" " * (1 << 21) + path.read_text())
    assert rate_after(path) == 0.5


def test_an_unwritable_folder_loses_nothing_of_this_run(tmp_path):
    folder = tmp_path / "measured"
    folder.write_text("a file where the folder would be")
    memory = memory_at(folder / "x.json", table(6, 6))
    memory.recall()
    memory.save()
    folder.unlink()
    memory.save()
    assert rate_after(folder / "x.json") > 0.7


WRITER = """
import sys, numpy as np
from pathlib import Path
from paceline.estimate.acceptance import Acceptance
from paceline.engine.warm_start import WarmStart
for i in range(20):
    one = Acceptance(np.full(3, 0.5))
    one.observe(1, kept=True)
    memory = WarmStart(Path(sys.argv[1]), {"model": "a", "cpu": "b"}, {"m": one})
    memory.recall()
    memory.save()
"""


def test_processes_writing_at_once_lose_nothing(tmp_path):
    path = tmp_path / "x.json"
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(3)]
    while any(one.poll() is None for one in running):
        if path.exists():
            assert json.loads(path.read_text())["key"] == KEY
    assert [one.wait() for one in running] == [0, 0, 0]
    right, tested = json.loads(path.read_text())["right_and_tested"]["m"]
    assert right == tested
    assert tested[1] == 60 < KEPT
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


# ---- which controllers have one


def test_only_optimal_remembers_and_the_environment_turns_it_off(home, monkeypatch):
    optimal = OptimalController(CostTable({1: 0.02}), ["suffix"], most=4)

    def keeps(controller):
        drafter = SuffixDrafter()
        drafter.experience["suffix"].observe(0, kept=True)
        WarmStart.of(KEY, drafter, controller).save()
        return home.exists()

    assert not keeps(FixedController(4))
    monkeypatch.setenv("PACELINE_MEMORY", "off")
    assert not keeps(optimal)
    monkeypatch.delenv("PACELINE_MEMORY")
    assert keeps(optimal)


def test_the_tests_do_not_touch_the_users():
    assert os.environ["PACELINE_MEMORY"] == "off"


def test_a_remembered_source_is_believed_before_its_first_guess():
    first = OptimalController(CostTable({1: 0.02, 64: 0.05}), ["m"], most=8)
    (source,) = first.experience.values()
    for _ in range(20):
        source.observe(0, np.ones(8, np.int32), np.ones(8, np.int32), censored=False)
    second = OptimalController(CostTable({1: 0.02, 64: 0.05}), ["m"], most=8)
    ((name, other),) = second.experience.items()
    other.recall(source.gained(), TRUSTED)
    view_budgets = []
    for one in (OptimalController(first.cost, ["m"], most=8), second):
        for _ in range(PROOF):
            one.guard.add(Pending(1, tokens=1, seconds=[0.0, 0.02, 0.0]), 1, drafted=False)
        for rows, seconds in ((1, 0.02), (16, 0.03)):  # the machine is known; only the source is not
            one.cost.observe(rows, seconds)
        view_budgets.append(one.budgets(views(), Load(1, 0))[0])
    assert [budget.depth for budget in view_budgets] == [1, 8]
    assert "m was right " in second.reason
    assert " % of the time before" in second.reason
    assert name == "m: to depth 8"


def views():
    from views import view_at

    return [view_at(9)]


def test_a_model_remembers_between_two_loads_and_says_the_same(home, talker):
    def reply():
        llm = LLM(talker, draft="suffix,recycle", context=256, threads=1)
        said = llm.generate("the cat and the dog and the cat", SamplingParams(max_tokens=16, ignore_eos=True)).token_ids
        llm.close()
        return said

    first = reply()
    (path,) = home.glob("*-acceptance.json")
    counts = np.array(json.loads(path.read_text())["right_and_tested"]["suffix"])
    assert counts[1].sum() > 0
    assert reply() == first
    assert len(list(home.glob("*-acceptance.json"))) == 1


def test_a_corpus_that_grows_is_no_other_machine(home, talker, tmp_path):
    for _ in range(3):
        llm = LLM(talker, draft=f"suffix:{tmp_path / 'kept.corpus'}", context=128)
        llm.generate("hello hello hello", SamplingParams(max_tokens=8, ignore_eos=True))
        del llm
        files = len(list(home.iterdir()))
    assert files <= 2, "what was measured, and what was learnt"


def test_the_end_of_a_process_is_soon_enough(home, talker):
    code = (
        "import sys; from paceline.service.llm import LLM; from paceline.core.request import SamplingParams\n"
        "llm = LLM(sys.argv[1], draft='recycle', context=256, threads=1)\n"
        "llm.generate('the cat and the dog', SamplingParams(max_tokens=12, ignore_eos=True))"
    )
    subprocess.run([sys.executable, "-c", code, str(talker)], check=True, timeout=120)
    assert len(list(home.glob("*-acceptance.json"))) == 1
