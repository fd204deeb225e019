"""Acceptance counts of drafters and the controller, kept from one run to the next.

Replies are short, so estimates that start from a fixed prior converge too late. A run starts from the counts of earlier
runs, weighted as a few observations of each kind so that a different sort of text soon overrules them, and adds its own
to the file. Replies do not depend on it; their speed does. `PACELINE_MEMORY=off` keeps and reads nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import numpy as np

from paceline.control.optimal import OptimalController
from paceline.core.aliases import Probabilities
from paceline.draft.base import Drafter, experience_of
from paceline.engine.keyed_store import path_of, read, write
from paceline.estimate.acceptance import Record, bounded
from paceline.store import turn_or_later

VERSION = 1
KIND = "-acceptance"
KEPT = 64.0  # observations of a kind that the file holds at most: new ones displace old ones
TRUSTED = 4.0  # observations that a run weighs them as; more helps similar texts and slows different ones
SAVED_EVERY = 5.0  # seconds between two writings

log = logging.getLogger(__name__)


class WarmStart:
    """Carries records from run to run.

    Args:
        path: `None` keeps nothing.
        key: what the counts depend on.
    """

    def __init__(self, path: Path | None, key: Mapping[str, str], records: Mapping[str, Record]) -> None:
        self._path, self._key, self._records = path, dict(key), dict(records)
        self._unsaved: dict[str, Probabilities] = {}
        self._saved = monotonic()

    @staticmethod
    def of(key: Mapping[str, str], drafter: Drafter, controller: object) -> WarmStart:
        """Return the memory of a drafter and its controller, recalled already.

        Only `optimal` has one: the other controllers must draft alike in every run.
        """
        if not isinstance(controller, OptimalController) or os.environ.get("PACELINE_MEMORY") == "off":
            return WarmStart(None, key, {})
        memory = WarmStart(path_of(key, kind=KIND), key, {**experience_of(drafter), **controller.experience})
        memory.recall()
        return memory

    def recall(self) -> None:
        """Begin with the counts of earlier runs; an unusable record is ignored."""
        for name, counts in self._read().items():
            record = self._records.get(name)
            try:
                if record is not None:
                    record.recall(counts, TRUSTED)
            except ValueError as error:
                log.debug("what was learnt of `%s` does not count: %s", name, error)

    def save(self, *, now: bool = True) -> None:
        """Add the new counts to the file; without `now`, only every few seconds."""
        if self._path is None or not (now or monotonic() - self._saved >= SAVED_EVERY):
            return
        for name, record in self._records.items():
            gained = record.gained()
            self._unsaved[name] = self._unsaved[name] + gained if name in self._unsaved else gained
        self._saved = monotonic()
        if not any(counts[1].any() for counts in self._unsaved.values()):
            return
        with turn_or_later(self._path.parent, now=now) as goes_on:
            if not goes_on:  # the file is locked and a reply waits: saved next time
                return
            known = self._read()  # another process may have written since
            for name, counts in self._unsaved.items():
                before = known.get(name)
                alike = before if before is not None and before.shape == counts.shape else 0
                known[name] = bounded(counts + alike, KEPT)
            try:
                said = {name: np.round(counts, 4).tolist() for name, counts in known.items()}
                write(self._path, self._key, VERSION, {"right_and_tested": said})
                self._unsaved = {}
            except OSError as error:
                log.debug("what was learnt is not kept: %s", error)

    def _read(self) -> dict[str, Probabilities]:
        if self._path is None:
            return {}
        try:
            said = read(self._path, self._key, VERSION)
            return {} if said is None else {str(name): _sound(c) for name, c in said["right_and_tested"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            log.debug("nothing is recalled: %s is of no use (%s)", self._path, error)
            return {}


def _sound(value: object) -> Probabilities:
    counts = np.array(value, np.float64)
    if counts.ndim != 2 or len(counts) != 2 or not np.isfinite(counts).all():
        raise ValueError("counts are two rows of numbers")
    if (counts < 0).any() or (counts[0] > counts[1] + 1e-3).any():
        raise ValueError("guesses are right at most as often as they are tested")
    return counts
