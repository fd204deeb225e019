"""Run the server until it is told to end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from paceline.errors import UsageError
from paceline.server.app import Limits, create_app
from paceline.server.bridge import Host
from paceline.server.metrics import Metrics
from paceline.server.shelf import Shelf

if TYPE_CHECKING:
    from paceline.service.llm import LLM


@dataclass(frozen=True)
class Offer:
    """A model to serve: what clients call it, and what loads it and finds about how many bytes it takes."""

    name: str
    load: Callable[[], LLM]
    size: Callable[[], int]


def serve(
    offers: Sequence[Offer],
    *,
    address: str,
    port: int,
    limits: Limits,
    most_waiting: int,
    most_bytes: int | None,
    idle_seconds: float | None,
    access_log: bool,
    started: Callable[[str], None],
) -> None:
    """Serve models; returns once SIGTERM or Ctrl-C has ended it and open replies have had their time.

    Args:
        most_waiting: replies of each model.
        most_bytes, idle_seconds: see `Shelf`.
        started: told the URL once the port is open, before the model is loaded.

    Raises:
        UsageError: the address cannot be listened at.
    """
    try:
        listening = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"the server cannot listen at {address}:{port}: {getattr(error, 'strerror', None) or error}",
            hint="choose another --port, or 0 for any that is free",
        ) from error
    with listening:
        shown = f"[{address}]" if ":" in address else address
        started(f"http://{shown}:{listening.getsockname()[1]}")
        metrics = Metrics()
        hosts = [
            Host(one.name, one.load, metrics.of(one.name), most_waiting=most_waiting, size=one.size) for one in offers
        ]
        config = uvicorn.Config(
            create_app(Shelf(hosts, most_bytes=most_bytes, idle_seconds=idle_seconds), limits, metrics),
            log_level="info" if access_log else "warning",
            access_log=access_log,
            timeout_graceful_shutdown=int(limits.drain_seconds) + 1,
            lifespan="on",
            server_header=False,
        )
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn ends by it, and then sends it once more
        uvicorn.Server(config).run(sockets=[listening])
