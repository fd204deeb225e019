"""Sweeps of a proof: a few values in every run, the others when there is time."""

import pytest


def sweep(values, fast):
    """Return the values of a parametrised test; those not in `fast` are marked slow."""
    assert all(value in values for value in fast), (values, fast)
    slow = pytest.mark.slow
    return [v if v in fast else pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=slow) for v in values]
