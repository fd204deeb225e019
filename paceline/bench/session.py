"""What all suites of one model share: the loaded model, the probes, the peer, and how often to repeat."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import numpy as np

from paceline.bench.peer import Peer
from paceline.bench.prompts import fresh_text
from paceline.kernels.native import native
from paceline.model.base import PackedModel, packed
from paceline.service.llm import LLM

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    suites: tuple[str, ...]
    repeats: int
    contexts: tuple[int, ...] = (64,)
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 32)
    draft_tokens: tuple[int, ...] = (2, 4, 6, 8)
    decode_tokens: int = 96
    prefill_tokens: int = 512
    reply_tokens: int = 96
    temperatures: tuple[float, ...] = (0.0, 0.8)
    suite_seconds: float = math.inf  # a suite ends early, with what it has, once it took this long
    quick: bool = False


@dataclass(slots=True)
class Session:
    """One model under measurement, loaded without a drafter.

    `rates` are bytes/s over a buffer as large as the model's weights.
    """

    llm: LLM
    pool: native.Pool
    probe: native.ReadProbe
    plan: Plan
    draft: str = "off"  # a model that may draft for it
    peer: Peer | None = None
    rng: random.Random = field(default_factory=random.SystemRandom)
    rates: list[float] = field(default_factory=list)
    products_per_second: float = 0.0
    started: float = field(default_factory=perf_counter)  # of the current suite

    @property
    def model(self) -> PackedModel:
        model = packed(self.llm.engine.parts.model)
        assert model is not None, self.llm.engine.parts.model
        return model

    @property
    def is_late(self) -> bool:
        return perf_counter() - self.started > self.plan.suite_seconds

    def fresh_tokens(self, count: int) -> list[int]:
        """Return `count` token ids of a text that no run has seen."""
        tokens: list[int] = []
        while len(tokens) < count:
            tokens += self.llm.encode(fresh_text(self.rng, 1 + count // 24))
        return tokens[:count]

    def read_weights_once(self) -> float:
        """Read as many bytes as the weights have, plainly, and note the rate in bytes/s."""
        rate = float(self.probe.nbytes / self.probe.read())
        self.rates.append(rate)
        return rate

    @property
    def bytes_per_second(self) -> float:
        return float(np.median(self.rates))


class Progress:
    """A passing word on stderr, on a terminal only."""

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty()

    def show(self, *words: object) -> None:
        if self._wanted:
            sys.stderr.write("\r\x1b[2K" + " ".join(map(str, words)))
            sys.stderr.flush()

    def clear(self) -> None:
        self.show()


def rotated(values: Sequence[T], by: int) -> list[T]:
    """Return the values starting elsewhere, so that no one of them always follows the same other."""
    by %= len(values)
    return [*values[by:], *values[:by]]
