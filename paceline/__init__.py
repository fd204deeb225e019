"""Paceline: speculative decoding that is exact, measured and never slower."""

from __future__ import annotations

__version__ = "0.1.0"
