"""Counters for Prometheus, under vLLM's names where it has them (`vllm:` there, `paceline:` here)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from paceline.core.request import Event
from paceline.engine.request_output import RequestOutput

if TYPE_CHECKING:
    from paceline.server.bridge import Host
    from paceline.service.llm import LLM

PREFIX = "paceline:"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one server; each server of a process has its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def count(name: str, help: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, help, ("model_name", *labels), registry=registry)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(PREFIX + name, help, ("model_name",), registry=registry)

        def times(name: str, help: str) -> Histogram:
            return Histogram(PREFIX + name, help, ("model_name",), buckets=SECONDS, registry=registry)

        self.running = gauge("num_requests_running", "Replies that hold pages of the cache.")
        self.waiting = gauge("num_requests_waiting", "Replies that wait for a place.")
        self.used = gauge("kv_cache_usage_perc", "Share of the cache's pages that replies hold, 0 to 1.")
        self.prompt = count("prompt_tokens", "Prompt tokens of replies that began.")
        self.cached = count("prefix_cache_hits", "Prompt tokens that were in the cache.")
        self.asked = count("prefix_cache_queries", "Prompt tokens that were looked for in the cache.")
        self.generated = count("generation_tokens", "Tokens generated.")
        self.ended = count("request_success", "Replies that ended, by the reason.", "finished_reason")
        self.first = times("time_to_first_token_seconds", "Seconds from a request to its first token.")
        self.between = times("inter_token_latency_seconds", "Seconds between a reply's tokens, a round's share each.")
        self.whole = times("e2e_request_latency_seconds", "Seconds from a request to its end.")
        self.drafts = count("spec_decode_num_drafts", "Rounds that checked guesses.")
        self.draft_tokens = count("spec_decode_num_draft_tokens", "Guesses checked.")
        self.accepted = count("spec_decode_num_accepted_tokens", "Guesses accepted.")
        self.at = count("spec_decode_num_accepted_tokens_per_pos", "Guesses accepted, by depth.", "position")
        self.by_source = count("draft_tokens_by_source", "Guesses checked, by source.", "source")
        self.accepted_by_source = count("accepted_tokens_by_source", "Guesses accepted, by source.", "source")
        self.plain = gauge("plain_round_seconds", "Seconds of a round without guesses, of one sequence, as last seen.")
        self.choice = Info(
            PREFIX + "controller", "The controller's reason for its latest choice.", ("model_name",), registry=registry
        )
        self.refused = count("requests_refused", "Replies refused for want of room.")
        self.loads = count("model_loads", "Times that the model was loaded.")

    def of(self, model: str) -> ModelMetrics:
        """Return one model's counters."""
        return ModelMetrics(self, model)

    def text(self, hosts: Sequence[Host]) -> bytes:
        """Return all of it in Prometheus' format, with what holds now."""
        for host in hosts:
            host.metrics.look(host)
        return bytes(generate_latest(self.registry))


class ModelMetrics:
    """The counters of one model."""

    def __init__(self, all: Metrics, model: str) -> None:
        self._all, self._model = all, model
        self.refused, self.loads = all.refused.labels(model), all.loads.labels(model)
        self._last: dict[int, float] = {}

    def see(self, event: Event, output: RequestOutput) -> None:
        """Count an event, which `output` holds already."""
        every, name = self._all, self._model
        if event.tokens:
            before = self._last.get(output.id)
            if before is None:
                every.prompt.labels(name).inc(len(output.request.prompt))
                every.asked.labels(name).inc(len(output.request.prompt))
                every.cached.labels(name).inc(event.cached)
                every.first.labels(name).observe(max((output.first or output.last) - output.started, 0))
            else:
                for _ in event.tokens:
                    every.between.labels(name).observe(max(output.last - before, 0) / len(event.tokens))
            self._last[output.id] = output.last
            every.generated.labels(name).inc(len(event.tokens))
        if event.round is not None and event.round.drafted:
            every.drafts.labels(name).inc()
            every.draft_tokens.labels(name).inc(sum(event.round.drafted))
            every.accepted.labels(name).inc(sum(event.round.accepted))
            for depth, kept in enumerate(event.round.accepted):
                if kept:
                    every.at.labels(name, str(depth)).inc(kept)
            for source, (drafted, accepted) in event.round.by_source.items():
                every.by_source.labels(name, source).inc(drafted)
                every.accepted_by_source.labels(name, source).inc(accepted)
        if event.finish_reason is not None:
            self._last.pop(output.id, None)
            every.ended.labels(name, event.finish_reason).inc()
            every.whole.labels(name).observe(max(perf_counter() - output.started, 0))

    def look(self, host: Host) -> None:
        """Set what holds now."""
        every, name = self._all, self._model
        if not host.is_loaded:
            every.running.labels(name).set(0)
            every.waiting.labels(name).set(host.open_replies)
            every.used.labels(name).set(0)
            return
        parts = host.loaded.engine.parts
        load = parts.scheduler.load()
        every.running.labels(name).set(load.running)
        every.waiting.labels(name).set(max(host.open_replies - load.running, 0))
        pages = parts.cache.store.pages
        every.used.labels(name).set(1 - parts.cache.free_pages / pages if pages else 0)
        every.plain.labels(name).set(plain_seconds(host.loaded) or 0)
        every.choice.labels(name).info({"reason": parts.controller.reason})


def plain_seconds(llm: LLM) -> float | None:
    """Return the seconds of a plain round of one sequence, as the controller's guard last saw them."""
    guard = getattr(llm.engine.parts.controller, "guard", None)
    return None if guard is None else guard.plain_seconds(1)
