"""Lets every folder of tests import the shared helpers: `tiny` from here, `gguf_writer` from tests/model."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "model"))

# Numpy's threads and the pool's would wait for each other's cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
