"""A machine without a compiler is told what to install, and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
MISSING = [tool for tool in ("cmake", "ninja") if shutil.which(tool, path=TOOLS) is None]


@pytest.mark.skipif(MISSING != [], reason=f"no build to try: {', '.join(MISSING)} neither on PATH nor beside Python")
def test_without_a_compiler_the_build_says_what_to_install(tmp_path):
    done = subprocess.run(
        [shutil.which("cmake", path=TOOLS), "-G", "Ninja", "-S", ROOT, "-B", tmp_path],
        env={**os.environ, "PATH": TOOLS, "CXX": str(tmp_path / "no-such-compiler")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    said = " ".join(done.stderr.split())  # cmake breaks lines where it likes
    assert "Paceline needs a C++20 compiler (GCC 11, Clang 14 or newer) and found none" in said
    for command in ("apt install g++", "dnf install gcc-c++", "xcode-select --install"):
        assert command in said, said
    assert done.stderr.count("CMake Error") == 1, done.stderr
