"""Imports point one way, and the checker that says so catches every kind of breach."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from check_tree import LIMIT, ROOT, complaints, oversized

PACKAGE = ROOT / "paceline"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_its_own_level_and_lower_ones(path):
    assert complaints(path, (PACKAGE / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        ("types.py", "from paceline.model.base import Model", "level 0"),
        ("model/x.py", "import paceline.draft.ngram", "imports `draft`"),
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
