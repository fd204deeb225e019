"""Keep the cost table of this machine right while an LLM runs: between requests, and between rounds.

Decides when to measure; `calibrate` measures, and the controller uses the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np

from paceline.control.base import Controller
from paceline.control.optimal import OptimalController
from paceline.core.tree import TokenTree
from paceline.draft.base import Drafter
from paceline.engine.calibrate import Calibration, calibrated
from paceline.engine.quality import worth_replacing
from paceline.hardware import Neighbours
from paceline.model.base import Model
from paceline.model.flatten import flatten


class Rehearsal:
    """Times forwards in a cache of its own, beside running sequences."""

    def __init__(self, model: Model, most: int, *, clock: Callable[[], float] = perf_counter) -> None:
        self._model, self._clock = model, clock
        self._cache = model.new_cache(most)
        self._sequence = self._cache.open()
        self._tokens = np.arange(most, dtype=np.int32) % model.spec.vocab

    def seconds(self, rows: int) -> float:
        """Return the seconds of one forward of `rows` rows."""
        batch = flatten(self._cache, [self._sequence], [TokenTree.chain(self._tokens[:rows])], [rows])
        started = self._clock()
        self._model.forward(batch, self._cache)
        return self._clock() - started


class Upkeep:
    """Measures again where a table has proved wrong or was doubtful.

    Args:
        key: see `calibrated`.
        found: the calibration the controller began with; `None` if nothing was measured.
        neighbours: cores that other processes use.
    """

    def __init__(
        self,
        model: Model,
        drafter: Drafter,
        key: Mapping[str, str],
        found: Calibration | None,
        *,
        neighbours: Callable[[], float | None] | None = None,
    ) -> None:
        self._model, self._drafter, self._key = model, drafter, key
        self._quality = None if found is None else found.quality
        self._neighbours = neighbours or Neighbours().read
        self._rehearsal: Rehearsal | None = None

    def between_requests(self, controller: Controller) -> None:
        """Calibrate anew if rounds have long disagreed with the table, or it is doubtful and the machine is quieter.

        No round may be under way; requests may wait meanwhile.
        """
        if self._quality is None or not isinstance(controller, OptimalController):
            return
        is_quieter = self._quality.is_doubtful and worth_replacing(self._quality, self._neighbours())
        if is_quieter or controller.cost.has_drifted:
            found = calibrated(self._model, self._drafter, self._key, again=True)
            controller.renew(found.cost)
            self._quality = found.quality

    def before_round(self, controller: Controller) -> None:
        """Time the forward that the controller asks for, if any, after rounds have contradicted the table."""
        if not isinstance(controller, OptimalController):
            return
        rows, most = controller.wanted_rows(), min(controller.cost.most_rows, self._model.spec.context)
        if not 0 < rows <= most:
            return
        if self._rehearsal is None:
            self._rehearsal = Rehearsal(self._model, most)
        controller.timed(rows, self._rehearsal.seconds(rows))
