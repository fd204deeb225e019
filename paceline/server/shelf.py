"""The models of a server: each is loaded when it is first asked for, and makes room for others when it is idle.

Requests of a model that is loaded go ahead. Others wait in one line: a model is loaded once all models together keep
below a ceiling, which unloads those not asked for longest as soon as no reply uses them. A model that must leave takes
no more requests before it has left, so that the one that waits has its turn.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

from paceline.server.bridge import Host
from paceline.server.errors import Refusal

LOOK = 0.25  # of the idle time: how often models are looked at


class Shelf:
    """Keeps models.

    Args:
        hosts: the first one is loaded at the start, and serves requests that name none.
        most_bytes: that all loaded models together may take; the one in use may take more.
        idle_seconds: after which a model that no request asks for is unloaded; `None` for never.
    """

    def __init__(
        self, hosts: Sequence[Host], *, most_bytes: int | None = None, idle_seconds: float | None = None
    ) -> None:
        self.hosts = list(hosts)
        self._most, self._idle_seconds = most_bytes, idle_seconds
        self._line = asyncio.Lock()  # of those that wait for a model to be loaded
        self._leaving: Host | None = None  # the one that makes room
        self._is_free = asyncio.Event()
        self._is_draining = False
        for host in self.hosts:
            host.released = self._is_free.set

    @property
    def first(self) -> Host:
        return self.hosts[0]

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken: the first model was there once, and the server is not about to end."""
        return not self._is_draining and self.first.failure is None and self.first.used > 0

    def find(self, name: str | None) -> Host:
        """Return the host of a model.

        Raises:
            Refusal: there is none of that name.
        """
        for host in self.hosts:
            if name is None or host.name == name:
                return host
        names = [host.name for host in self.hosts]
        near = difflib.get_close_matches(name or "", names, 1)
        known = f"did you mean `{near[0]}`?" if near else f"this server has {', '.join(f'`{one}`' for one in names)}"
        raise Refusal(404, f"no such model: `{name}`; {known}", param="model", code="model_not_found")

    @asynccontextmanager
    async def using(self, name: str | None) -> AsyncIterator[Host]:
        """Enter with a model's host, loaded; the model stays in memory while entered.

        Raises:
            Refusal: there is no such model, it cannot be loaded, or the server is loading or about to end.
        """
        host = self.find(name)
        if host is self.first and not host.is_loaded and not host.used:
            host.require_ready()  # the server has only begun, or could not load it: refused
        while not host.is_ready or host is self._leaving:
            async with self._line:
                if self._is_draining:
                    host.require_ready()
                if not host.is_loaded:
                    await self._load(host)
        with host.held():
            yield host

    async def _load(self, host: Host) -> None:
        await host.weigh()
        if host.failure is None:
            await self._make_room(host)
            await host.start()
        if host.failure is not None:
            raise Refusal(503, f"the model cannot be loaded: {host.failure}", param="model", code="model_not_loaded")

    async def _make_room(self, host: Host) -> None:
        """Unload models until one more fits, the one longest unused first; wait for those in use."""
        while self._most is not None:
            loaded = sorted((one for one in self.hosts if one.is_loaded), key=lambda one: (one.is_used, one.used))
            if not loaded or sum(one.size or 0 for one in [*loaded, host]) <= self._most:
                return
            self._leaving = loaded[0]
            try:
                while loaded[0].is_used:
                    self._is_free.clear()
                    await self._is_free.wait()
                await loaded[0].unload()
            finally:
                self._leaving = None

    async def watch(self) -> None:
        """Load the first model, then unload models that were idle for long; runs as long as the server."""
        async with self._line:
            await self.first.start()
        while self._idle_seconds is not None:
            await asyncio.sleep(self._idle_seconds * LOOK)
            async with self._line:
                for host in self.hosts:
                    if host.is_loaded and not host.is_used and monotonic() - host.used > self._idle_seconds:
                        await host.unload()

    async def drain(self, seconds: float) -> None:
        """Take no more requests, give the open ones so long at most, and close all models."""
        self._is_draining = True
        await asyncio.gather(*(host.drain(seconds) for host in self.hosts))
