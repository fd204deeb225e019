"""Short names of the arrays and values that all of the package uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Probabilities = npt.NDArray[np.float64]
Json = dict[str, Any]
