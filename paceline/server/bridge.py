"""Between asyncio and the thread that generates: requests go in, events come out, without a thread for each.

A host owns one model: it loads it beside the running server, counts the open requests, refuses what the queue has no
room for, and drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from paceline.core.request import Event, SamplingParams, Speculation
from paceline.engine.request_output import RequestOutput
from paceline.engine.sequence import FREE, Request
from paceline.errors import PacelineError
from paceline.server.errors import Refusal
from paceline.service.service import Ticket

if TYPE_CHECKING:
    from paceline.engine.completion import Completion
    from paceline.server.metrics import ModelMetrics
    from paceline.service.llm import LLM
    from paceline.text.tokenizer import Tokenizer

RETRY = 1  # seconds that a refused client is asked to wait


class Line(Ticket):
    """A ticket whose events an event loop awaits."""

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(request)
        self._loop = loop
        self.events: asyncio.Queue[tuple[Event, float]] = asyncio.Queue()

    def put(self, event: Event, seconds: float) -> None:
        """See `Ticket.put`; a loop that has ended takes no more events."""
        self.has_ended = event.finish_reason is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.events.put_nowait, (event, seconds))


@dataclass(frozen=True)
class Asked:
    """One reply to be made; `seconds` until it must have ended, from now on."""

    prompt: Sequence[int]
    params: SamplingParams
    prediction: str | None = None
    speculation: Speculation = FREE
    cache_salt: bytes = b""
    priority: int = 0
    seconds: float | None = None


class Host:
    """Serves one model.

    Args:
        name: what clients call the model.
        load: loads it; called in a thread.
        metrics: its counters.
        most_waiting: requests that may wait beside those that run.
        size: finds the bytes that it is expected to take; called in a thread.
    """

    def __init__(
        self, name: str, load: Callable[[], LLM], metrics: ModelMetrics, *, most_waiting: int, size: Callable[[], int]
    ) -> None:
        self.name, self.metrics = name, metrics
        self._load, self._size, self._most_waiting = load, size, most_waiting
        self.size: int | None = None
        self._llm: LLM | None = None
        self._tokenizer: Tokenizer | None = None  # of the model while it is unloaded, so that it comes back sooner
        self.failure: PacelineError | None = None  # why the model could not be loaded
        self.is_draining = False
        self.used = 0.0  # when a request last came or ended
        self._open = self._held = 0
        self._ids = itertools.count()
        self._idle = asyncio.Event()
        self._idle.set()
        self.released: Callable[[], None] = lambda: None  # told when no request uses the model any more

    # ---- the model

    async def weigh(self) -> None:
        """Find out how many bytes the model takes; a failure is told as one of loading."""
        self.failure = None
        if self.size is None:
            try:
                self.size = await asyncio.to_thread(self._size)
            except PacelineError as error:
                self.failure, self.used = error, monotonic()

    async def start(self) -> None:
        """Load the model; a failure is told with each request."""
        await self.weigh()
        if self.failure is not None:
            return
        try:
            self._llm = await asyncio.to_thread(self._load)
            self.metrics.loads.inc()
        except PacelineError as error:
            self.failure = error
        self.used = monotonic()

    async def unload(self) -> None:
        """Close the model, which no reply may use, and give its memory back but for the tokenizer's."""
        llm, self._llm = self._llm, None
        if llm is not None:
            self._tokenizer = llm.tokenizer
            await asyncio.to_thread(llm.close)
            del llm
            gc.collect()

    @property
    def is_loaded(self) -> bool:
        return self._llm is not None

    @property
    def is_ready(self) -> bool:
        return self.is_loaded and not self.is_draining

    @property
    def is_used(self) -> bool:
        """Whether a request is being prepared or replied to."""
        return bool(self._open or self._held)

    @property
    def llm(self) -> LLM:
        """The model. Raises what `require_ready` does."""
        self.require_ready()
        return self.loaded

    def require_ready(self) -> None:
        """Check that the model takes requests.

        Raises:
            Refusal: it is not loaded yet, could not be loaded, or the server is about to end.
        """
        if self.is_draining:
            raise Refusal(503, "the server is about to end and takes no more requests", code="draining", retry=RETRY)
        if self.failure is not None:
            raise Refusal(503, f"the model cannot be loaded: {self.failure}", code="model_not_loaded")
        if self._llm is None:
            raise Refusal(503, "the model is still being loaded", code="loading", retry=RETRY)

    @property
    def loaded(self) -> LLM:
        """The model, for replies under way: also while the server drains."""
        assert self._llm is not None
        return self._llm

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the model in memory while entered."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._touch()

    # ---- replies

    def admit(self, count: int) -> None:
        """Refuse replies that find neither a place to run nor one to wait in.

        Raises:
            Refusal: 429.
        """
        room = self.llm.config.slots + self._most_waiting - self._open
        if count > room:
            self.metrics.refused.inc()
            raise Refusal(
                429,
                f"the queue has room for {max(room, 0)} more replies, got `{count}`",
                code="queue_full",
                retry=RETRY,
            )

    async def prepare(self, asked: Sequence[Asked]) -> Replies:
        """Check requests and take places in the queue for them; nothing is generated before the first event is awaited.

        Raises:
            Refusal: there is no room.
            PacelineError: one cannot run.
        """
        llm, loop, now = self.llm, asyncio.get_running_loop(), perf_counter()
        self.admit(len(asked))
        self._take(len(asked))
        try:
            requests = [
                Request(
                    next(self._ids),
                    one.prompt,
                    one.params,
                    llm.predicted(one.prediction),
                    one.speculation,
                    one.cache_salt,
                    one.priority,
                    math.inf if one.seconds is None else now + one.seconds,
                )
                for one in asked
            ]
            for request in requests:
                await asyncio.to_thread(llm.engine.check_request, request)
        except BaseException:
            self._take(-len(asked))
            raise
        return Replies(self, llm, [Line(request, loop) for request in requests])

    def _take(self, count: int) -> None:
        self._open += count
        if self._open:
            self._idle.clear()
        else:
            self._idle.set()
        self._touch()

    def _touch(self) -> None:
        self.used = monotonic()
        if not self.is_used:
            self.released()

    async def drain(self, seconds: float) -> None:
        """Take no more requests, wait for the open ones so long at most, and close the model."""
        self.is_draining = True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        await self.unload()

    @property
    def open_replies(self) -> int:
        """How many replies run or wait."""
        return self._open


class Replies:
    """Replies made side by side, and their places in the queue, which are given back at the end or by `close`."""

    def __init__(self, host: Host, llm: LLM, lines: Sequence[Line]) -> None:
        self.outputs = [RequestOutput(line.request) for line in lines]
        self.llm, self._host, self._lines = llm, host, lines
        self._is_open = True

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Yield (which reply, its event) to the last one of each; closed early, the replies are cancelled."""
        merged: asyncio.Queue[tuple[int, Event, float]] = asyncio.Queue()
        readers = [asyncio.create_task(_read(line, i, merged)) for i, line in enumerate(self._lines)]
        try:
            self.llm.service.ask(self._lines)
            left = len(self._lines)
            while left:
                i, event, seconds = await merged.get()
                self.outputs[i].add(event, seconds)
                self._host.metrics.see(event, self.outputs[i])
                left -= event.finish_reason is not None
                yield i, event
        finally:
            for line, output in zip(self._lines, self.outputs, strict=True):
                if not line.has_ended:
                    self.llm.service.cancel(line)
                if output.finish_reason is None:  # its last event is not read any more
                    output.cancel()
                    self._host.metrics.see(Event(output.id, (), "", finish_reason="cancelled"), output)
            for reader in readers:
                reader.cancel()
            self.close()

    def completions(self) -> list[Completion]:
        """Return the replies as far as they came."""
        llm = self.llm
        reason = llm.engine.parts.controller.reason
        return [output.completion(llm.setup, llm.load_seconds, reason) for output in self.outputs]

    def close(self) -> None:
        """Give the places back."""
        if self._is_open:
            self._is_open = False
            self._host._take(-len(self._lines))

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self.close()  # a response that was never begun


async def _read(line: Line, place: int, merged: asyncio.Queue[tuple[int, Event, float]]) -> None:
    while True:
        event, seconds = await line.events.get()
        await merged.put((place, event, seconds))
        if event.finish_reason is not None:
            return
