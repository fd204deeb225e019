"""The application: routes, keys, limits, errors, the page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from paceline.errors import PacelineError
from paceline.server import chat, completions, listing, responses, schema
from paceline.server.errors import Refusal, answer, invalid
from paceline.server.exchange import KEY
from paceline.server.metrics import Metrics
from paceline.server.shelf import Shelf

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OPEN = ("/health", "/ready", "/", "/page.css", "/page.js")  # paths that need no key
PAGES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
TOO_LARGE = "paceline.too_large"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What a request may be.

    `keys`: one of them is wanted, if there are any; `body_bytes`: of a body; `reply_seconds`: that a reply has until it
    ends with what it has; `drain_seconds`: that open replies have at the end; `allows_unknown`: fields that the schemas
    lack are left out, where they are refused otherwise; `shares_prefixes`: requests of one key find what those of
    another left in the cache.
    """

    keys: Sequence[str] = ()
    body_bytes: int = 8 << 20
    reply_seconds: float | None = None
    drain_seconds: float = 30.0
    allows_unknown: bool = False
    shares_prefixes: bool = False


def create_app(shelf: Shelf, limits: Limits, metrics: Metrics) -> FastAPI:
    """Return the application; it loads the first model when it starts and drains all when it ends."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(shelf.watch())
        yield
        await shelf.drain(limits.drain_seconds)
        watching.cancel()

    app = FastAPI(title="Paceline", version="0.1.0", lifespan=life, docs_url=None, redoc_url=None)
    app.state.shelf, app.state.started, app.state.limits = shelf, int(time.time()), limits
    for room in (chat, completions, responses, listing):
        app.include_router(room.router)
    _add_pages(app, shelf, metrics)
    _add_errors(app)
    app.add_middleware(Guarded, limits=limits)
    return app


class Guarded:
    """Keys and the size of bodies, before anything is read."""

    def __init__(self, app: Any, *, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._keys = [key.encode() for key in limits.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if self._keys and scope["path"] not in OPEN:
                self._check_key(scope)
            self._check_length(scope)
        except Refusal as refusal:
            await answer(refusal)(scope, receive, send)
            return
        count = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._limits.body_bytes:
                scope[TOO_LARGE] = True  # the framework makes an error of its own of what is raised while it reads
                raise self._too_large()
            return message

        await self._app(scope, counted, send)

    def _check_key(self, scope: Scope) -> None:
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, key = given.partition(b" ")
        found = [hmac.compare_digest(key.strip(), known) for known in self._keys]  # all of them, in constant time
        if kind.lower() != b"bearer" or not any(found):
            raise Refusal(401, "an API key is wanted, as `Authorization: Bearer KEY`", code="invalid_api_key")
        if not self._limits.shares_prefixes:
            scope[KEY] = hashlib.blake2b(key.strip(), digest_size=16).digest()

    def _check_length(self, scope: Scope) -> None:
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if not said.isdigit():
            raise Refusal(400, "content-length must be a number")
        if int(said) > self._limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> Refusal:
        return Refusal(413, f"a body may have {self._limits.body_bytes} bytes at most", code="request_too_large")


def _add_pages(app: FastAPI, shelf: Shelf, metrics: Metrics) -> None:
    folder = resources.files("paceline.server").joinpath("page")

    def page(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
        async def serve() -> Response:
            return Response(folder.joinpath(name).read_bytes(), media_type=kind, headers=SAFE)

        return serve

    for path, (name, kind) in PAGES.items():
        app.get(path, include_in_schema=False)(page(name, kind))

    @app.get("/health")
    async def health() -> JSONResponse:
        """Tell whether the server lives, and the first model could be loaded."""
        is_well = shelf.first.failure is None
        return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 500)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Tell whether requests are taken."""
        return JSONResponse({"ready": shelf.is_ready}, 200 if shelf.is_ready else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counters() -> Response:
        """Return the counters, in Prometheus' format."""
        return PlainTextResponse(metrics.text(shelf.hosts), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_errors(app: FastAPI) -> None:
    known = {path: {"": list(body.model_fields)} for path, body in schema.BODIES.items()}
    nested = {
        "speculation": list(schema.SpeculationOptions.model_fields),
        "stream_options": list(schema.StreamOptions.model_fields),
        "response_format": list(schema.ResponseFormat.model_fields),
        "structured_outputs": ["json", "regex", "grammar", "choice"],
    }

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        return answer(invalid(error, {**known.get(request.url.path, {}), **nested}))

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return answer(error)

    @app.exception_handler(PacelineError)
    async def failed(request: Request, error: PacelineError) -> Response:
        return answer(error)

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        if TOO_LARGE in request.scope:
            return answer(Refusal(413, "the body is too large", code="request_too_large"))
        said = f"{request.method} {request.url.path}: {error.detail}"
        return answer(Refusal(error.status_code, said, code="not_found" if error.status_code == 404 else None))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        log.exception("a request failed: %s %s", request.method, request.url.path)
        return answer(error)
