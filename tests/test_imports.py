"""Imports point one way, words are plain, and the checker that says so catches every kind of breach."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from check_tree import LIMIT, ROOT, complaints, oversized, wording

PACKAGE = ROOT / "paceline"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

# What is outside the repository, put together here because this file is checked too.
OUTSIDE = {
    f"C{12}": "points outside",
    f"D0{5}": "points outside",
    f"ALGORITHM{'S'}": "points outside",
    f"HOUSE.{'md'}": "is not in the repository",
}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_its_own_level_and_lower_ones(path):
    assert complaints(path, (PACKAGE / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        ("core/tree.py", "from paceline.model.base import Model", "level 0"),
        ("model/x.py", "import paceline.draft.lookup.ngram", "imports `draft`"),
        ("model/x.py", "def f():\n    from paceline.engine import step", ":2:"),
        ("model/x.py", "from ..draft import ngram", "imports `draft`"),
        ("draft/x.py", "from paceline.engine.scheduler import Scheduler", "imports `engine`"),
        ("engine/x.py", "from paceline import cli", "imports `cli`"),
        ("verify/x.py", "from paceline.model.base import Model", "must not know `model`"),
        ("sample/x.py", "from paceline.model import base", "must not know `model`"),
        ("control/x.py", "from paceline.model import base", "must not know `model`"),
        ("engine/x.py", "import torch", "`torch` belongs"),
        ("draft/x.py", "from paceline.model.native import NativeModel", "ask for their capabilities"),
        ("model/x.py", "import torch.nn as nn", "`torch` belongs"),
        ("novelty/x.py", "", "no level"),
    ],
)
def test_a_breach_is_found(path, source, said):
    (found,) = complaints(Path(path), source)
    assert said in found


@pytest.mark.parametrize("path", ["model/transformers.py", "train/heads.py"])
def test_torch_has_its_homes(path):
    assert complaints(Path(path), "import torch") == []


def test_a_long_file_is_found(tmp_path):
    (tmp_path / "paceline").mkdir()
    (tmp_path / "paceline" / "short.py").write_text("x\n" * LIMIT)
    (tmp_path / "paceline" / "long.cpp").write_text("x\n" * (LIMIT + 1))
    assert oversized(tmp_path) == [f"paceline/long.cpp: {LIMIT + 1} lines, at most {LIMIT}"]


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("paceline/model/x.py", '"""Says who owns it."""', "`who` is a person"),
        ("paceline/native/x.cpp", "// Nobody waits.", "`Nobody` is a person"),
        *(("tests/model/x.py", f"# as {name} says", f"`{name}` {fault}") for name, fault in OUTSIDE.items()),
    ],
)
def test_a_word_that_does_not_belong_is_found(path, line, said):
    (found,) = wording(path, f"x\n{line}\n", ROOT)
    assert found.startswith(f"{path}:2: ")
    assert said in found


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("paceline/model/x.py", "whole = whose  # docs/log.md and log.md are here"),
        ("paceline/model/x.py", "0xC01, SC012, C1"),
        ("tests/model/x.py", "a tale of somebody, as test data"),
    ],
)
def test_words_that_belong_pass(path, line):
    assert wording(path, line, ROOT) == []
