"""Write what Python sees of the compiled kernels, so that types are checked across the border.

    python tools/write_stub.py        rewrites paceline/_native.pyi

nanobind reads signatures and docstrings from the module that was built; a test compares the file with them.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from nanobind.stubgen import StubGen

STUB = Path(__file__).parent.parent / "paceline" / "_native.pyi"
HEAD = "# Written by tools/write_stub.py from the compiled module; change native/*.cpp instead.\n"


def stub() -> str:
    """Return the stub of the module that is installed."""
    module = importlib.import_module("paceline._native")
    generator = StubGen(module)
    generator.put(module)
    return HEAD + str(generator.get()).rstrip() + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
