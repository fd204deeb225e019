"""The types that Python sees of the kernels are those that were compiled, and a missing module says what to do."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))

from write_stub import STUB, stub

from paceline.errors import NativeUnavailable
from paceline.kernels import native as home

WRONG = """
from paceline.kernels.native import native, new_pool

weight: native.Weight = native.EmbedTable.from_weight(1)
new_pool(2).cores
reveal_type(new_pool(2).contention())
"""


def test_the_stub_is_what_was_compiled():
    """Compared as syntax: layout may differ by the version of the generator."""
    assert ast.dump(ast.parse(STUB.read_text())) == ast.dump(ast.parse(stub())), "run: python tools/write_stub.py"


@pytest.mark.slow
def test_wrong_calls_across_the_border_are_found(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--cache-dir", tmp_path / "cache", "--follow-imports=silent",
         "--ignore-missing-imports", tmp_path / "wrong.py"],
        capture_output=True, text=True, cwd=STUB.parent.parent,
    )  # fmt: skip
    assert "wrong.py:4: error: Incompatible types in assignment" in ran.stdout, ran.stdout + ran.stderr
    assert 'wrong.py:4: error: Argument 1 to "from_weight"' in ran.stdout
    assert 'wrong.py:5: error: "Pool" has no attribute "cores"' in ran.stdout
    assert "tuple[float, float]" in ran.stdout


def test_without_the_module_the_error_says_what_to_do(monkeypatch):
    def broken(name):
        raise ImportError("no such file")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(NativeUnavailable, match="no such file") as caught:
        home._Native().isas()
    assert "C++20" in caught.value.hint
