"""Lets every folder of tests import the shared helpers: `tiny` from here, `gguf_writer` from tests/model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "model"))
