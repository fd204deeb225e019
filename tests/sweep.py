"""Sweeps of a proof: a few values in every run, the others when there is time."""

import pytest


def sweep(values, fast):
    """Return the values of a parametrised test; those not in `fast` are marked slow."""
    assert all(value in values for value in fast), (values, fast)
    return [value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in values]
