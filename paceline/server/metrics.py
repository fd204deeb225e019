"""Counters for Prometheus, under vLLM's names where it has them (`vllm:` there, `paceline:` here)."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from paceline.core.request import Event
from paceline.engine.request_output import RequestOutput

if TYPE_CHECKING:
    from paceline.server.bridge import Host

PREFIX = "paceline:"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one server; each server of a process has its own."""

    def __init__(self, model: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._model = model

        def count(name: str, help: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, help, ("model_name", *labels), registry=registry)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(PREFIX + name, help, ("model_name",), registry=registry)

        def times(name: str, help: str) -> Histogram:
            return Histogram(PREFIX + name, help, ("model_name",), buckets=SECONDS, registry=registry)

        self._running = gauge("num_requests_running", "Replies that hold pages of the cache.")
        self._waiting = gauge("num_requests_waiting", "Replies that wait for a place.")
        self._used = gauge("kv_cache_usage_perc", "Share of the cache's pages that replies hold, 0 to 1.")
        self._prompt = count("prompt_tokens", "Prompt tokens of replies that began.")
        self._cached = count("prefix_cache_hits", "Prompt tokens that were in the cache.")
        self._asked = count("prefix_cache_queries", "Prompt tokens that were looked for in the cache.")
        self._generated = count("generation_tokens", "Tokens generated.")
        self._ended = count("request_success", "Replies that ended, by the reason.", "finished_reason")
        self._first = times("time_to_first_token_seconds", "Seconds from a request to its first token.")
        self._between = times("inter_token_latency_seconds", "Seconds between a reply's tokens, a round's share each.")
        self._whole = times("e2e_request_latency_seconds", "Seconds from a request to its end.")
        self._drafts = count("spec_decode_num_drafts", "Rounds that checked guesses.")
        self._draft_tokens = count("spec_decode_num_draft_tokens", "Guesses checked.")
        self._accepted = count("spec_decode_num_accepted_tokens", "Guesses accepted.")
        self._at = count("spec_decode_num_accepted_tokens_per_pos", "Guesses accepted, by depth.", "position")
        self._by_source = count("draft_tokens_by_source", "Guesses checked, by source.", "source")
        self._accepted_by_source = count("accepted_tokens_by_source", "Guesses accepted, by source.", "source")
        self._plain = gauge("plain_round_seconds", "Seconds of a round without guesses, of one sequence, as last seen.")
        self._choice = Info(PREFIX + "controller", "The controller's reason for its latest choice.", registry=registry)
        self.refused = Counter(PREFIX + "requests_refused", "Replies refused for want of room.", registry=registry)
        self._last: dict[int, float] = {}

    def see(self, event: Event, output: RequestOutput) -> None:
        """Count an event, which `output` holds already."""
        name = self._model
        if event.tokens:
            before = self._last.get(output.id)
            if before is None:
                self._prompt.labels(name).inc(len(output.request.prompt))
                self._asked.labels(name).inc(len(output.request.prompt))
                self._cached.labels(name).inc(event.cached)
                self._first.labels(name).observe(max((output.first or output.last) - output.started, 0))
            else:
                for _ in event.tokens:
                    self._between.labels(name).observe(max(output.last - before, 0) / len(event.tokens))
            self._last[output.id] = output.last
            self._generated.labels(name).inc(len(event.tokens))
        if event.round is not None and event.round.drafted:
            self._drafts.labels(name).inc()
            self._draft_tokens.labels(name).inc(sum(event.round.drafted))
            self._accepted.labels(name).inc(sum(event.round.accepted))
            for depth, kept in enumerate(event.round.accepted):
                if kept:
                    self._at.labels(name, str(depth)).inc(kept)
            for source, (drafted, accepted) in event.round.by_source.items():
                self._by_source.labels(name, source).inc(drafted)
                self._accepted_by_source.labels(name, source).inc(accepted)
        if event.finish_reason is not None:
            self._last.pop(output.id, None)
            self._ended.labels(name, event.finish_reason).inc()
            self._whole.labels(name).observe(max(perf_counter() - output.started, 0))

    def text(self, host: Host) -> bytes:
        """Return all of it in Prometheus' format, with what holds now."""
        if host.is_ready:
            parts, name = host.loaded.engine.parts, self._model
            load = parts.scheduler.load()
            self._running.labels(name).set(load.running)
            self._waiting.labels(name).set(max(host.open_replies - load.running, 0))
            pages = parts.cache.store.pages
            self._used.labels(name).set(1 - parts.cache.free_pages / pages if pages else 0)
            self._plain.labels(name).set(plain_seconds(host) or 0)
            self._choice.info({"reason": parts.controller.reason})
        return bytes(generate_latest(self.registry))


def plain_seconds(host: Host) -> float | None:
    """Return the seconds of a plain round of one sequence, as the controller's guard last saw them."""
    guard = getattr(host.loaded.engine.parts.controller, "guard", None)
    return None if guard is None else guard.plain_seconds(1)
