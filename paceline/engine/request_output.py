"""The events of one request so far, and the completion they make."""

from __future__ import annotations

import threading
from copy import deepcopy
from time import perf_counter

from paceline.core.request import Event, FinishReason, Logprobs
from paceline.engine.completion import Completion, Setup, Timing
from paceline.engine.metrics import SpeculationMetrics
from paceline.engine.sequence import Request
from paceline.errors import PacelineError


class RequestOutput:
    """Adds up the events of one request."""

    def __init__(self, request: Request) -> None:
        self.id, self.request = request.id, request
        self.text, self.tokens, self.sources = "", list[int](), list[str]()
        self.finish_reason: FinishReason | None = None
        self.error: PacelineError | None = None
        self.is_cut = False
        self.cached = 0  # tokens of the prompt that were in the cache
        self.logprobs = list[Logprobs]()
        self.metrics = SpeculationMetrics()
        self._lock = threading.RLock()  # another thread may ask for a completion
        self.started = perf_counter()
        self.first: float | None = None
        self.last = self.started

    def add(self, event: Event, seconds: float) -> None:
        """Add an event of the time `seconds`; the first token's round counts as prefill."""
        with self._lock:
            self.text += event.text
            self.tokens += event.tokens
            self.sources += event.sources
            self.logprobs += event.logprobs
            self.finish_reason, self.is_cut, self.error = event.finish_reason, event.is_cut, event.error
            self.last = seconds
            self.cached = max(self.cached, event.cached)
            if event.round is not None and event.tokens:
                self.metrics.add(event.round)
                if self.first is not None:
                    self.metrics.add_seconds(event.round)
            if self.first is None and event.tokens:
                self.first = self.last

    def cancel(self) -> None:
        """Mark the request as cancelled."""
        with self._lock:
            self.finish_reason = "cancelled"

    def completion(self, setup: Setup, load_seconds: float, control_reason: str) -> Completion:
        """Return the reply so far, as a snapshot."""
        with self._lock:
            first = self.last if self.first is None else self.first
            metrics = deepcopy(self.metrics)
            timing = Timing(
                load_seconds,
                first - self.started,
                self.last - first,
                metrics.draft_seconds,
                metrics.verify_seconds,
                metrics.other_seconds,
            )
            return Completion(
                setup,
                self.text,
                list(self.tokens),
                self.finish_reason,
                len(self.request.prompt),
                metrics,
                timing,
                tuple(self.sources),
                self.is_cut,
                None if self.request.params.logprobs is None else tuple(self.logprobs),
                control_reason,
                self.error,
                self.request.params.seed,
            )
