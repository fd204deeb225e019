"""One reply as it is read: its events in order, and the completion that they make so far."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from paceline.core.request import Event
from paceline.engine.completion import Completion
from paceline.engine.request_output import RequestOutput
from paceline.service.service import Service, Ticket


class Events:
    """The events of one request, which starts with the first one; closed early, or collected, it is cancelled.

    Args:
        ended: called once, with the last event or when it is closed.
    """

    def __init__(self, service: Service, transcript: RequestOutput, ended: Callable[[], None]) -> None:
        self._service, self._transcript, self._ended = service, transcript, ended
        self._ticket = Ticket(transcript.request)
        self._told = deque[tuple[Event, float]]()
        self._is_asked = self._is_over = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        """Return the next event, waiting for it.

        Raises:
            PacelineError: the reply cannot go on.
        """
        if self._is_over:
            raise StopIteration
        try:
            if not self._is_asked:
                self._is_asked = True
                self._service.ask([self._ticket])
            if not self._told:
                self._told.extend(self._service.read(self._ticket))
            event, seconds = self._told.popleft()
            self._transcript.add(event, seconds)
        except BaseException:
            self.close()
            raise
        if event.finish_reason is not None:
            self._end()
        if event.error is not None:
            raise event.error
        return event

    def close(self) -> None:
        """Cancel the request unless it has ended, and wait for the round that it is in."""
        if self._is_over:
            return
        if self._is_asked:
            self._service.cancel(self._ticket, wait=not self._has_last())
            self._transcript.cancel()
        self._end()

    def _has_last(self) -> bool:
        return bool(self._told) and self._told[-1][0].finish_reason is not None

    def _end(self) -> None:
        self._is_over = True
        self._ended()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # where it was never made
            if self._is_asked and not self._is_over:
                self._service.cancel(self._ticket)


class Reply:
    """A reply in the making: iterate over its events once; `completion` is the reply as far as it was read."""

    def __init__(self, events: Events, finish: Callable[[], Completion]) -> None:
        self.events = events
        self._finish = finish

    def __iter__(self) -> Iterator[Event]:
        return self.events

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield the events while other tasks go on; left early, the reply is cancelled."""
        try:
            while (event := await asyncio.to_thread(next, self.events, None)) is not None:
                yield event
        finally:
            self.close()

    def read(self) -> Completion:
        """Read the reply to its end and return it."""
        for _ in self:
            pass
        return self.completion

    def close(self) -> None:
        """Cancel the reply unless it has ended; `completion` stays."""
        self.events.close()

    @property
    def completion(self) -> Completion:
        """Return the reply so far; after the last event, the whole one."""
        return self._finish()
