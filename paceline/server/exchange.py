"""From a body to its replies and back to a whole answer or chunks: what chat and plain completions share."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sse_starlette import EventSourceResponse

from paceline.core.request import Event, SamplingParams
from paceline.engine.completion import Completion
from paceline.server.bridge import Asked, Host, Replies
from paceline.server.errors import Refusal, body_of, refusal_of
from paceline.server.replies import speculation, trace, usage
from paceline.server.schema import BODIES, Sampling, text_of
from paceline.server.shelf import Shelf
from paceline.text.stream import IncrementalDecoder

Json = dict[str, Any]
PING = 15  # seconds between keep-alive comments of a stream
KEY = "paceline.key"  # in a request's scope: a digest of its key, where keys share nothing
CLOSED = 499  # the client is gone, and only the access log reads this status


class Route(APIRoute):
    """A route that leaves out unknown fields where the server tolerates them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, body = super().get_route_handler(), BODIES.get(self.path)

        async def tolerant(request: Request) -> Response:
            if body is not None and request.app.state.limits.allows_unknown:
                with contextlib.suppress(ValidationError):  # what is wrong beside is told as usual
                    known = body.model_validate_json(await request.body(), extra="ignore")
                    request._body = known.model_dump_json(exclude_unset=True, by_alias=True).encode()
            return await handle(request)

        return tolerant


def shelf_of(request: Request) -> Shelf:
    shelf: Shelf = request.app.state.shelf
    return shelf


def using(request: Request, model: str | None) -> AbstractAsyncContextManager[Host]:
    """Enter with the model that a body names, loaded; the first one where it names none."""
    return shelf_of(request).using(model)


async def prepare(
    request: Request,
    host: Host,
    body: Sampling,
    prompts: Sequence[list[int]],
    *,
    most: int | None,
    logprobs: int | None,
    changes: Json | None = None,
) -> Replies:
    """Take places for the replies that a body asks for: `n` for each prompt, each with a seed of its own.

    Args:
        most: tokens of a reply.
        changes: settings of `SamplingParams` that are not the body's own.
    """
    llm = host.llm
    prediction = None if body.prediction is None else text_of(body.prediction.content)
    wanted = body.speculating(llm.setup.drafters, llm.setup.verify)
    if prediction is not None and wanted.draft_tokens == 0:
        raise Refusal(400, "a prediction is used by speculation, which this request turns off", param="prediction")
    seed = secrets.randbits(32) if body.seed is None else body.seed

    def params(i: int, prompt: list[int]) -> SamplingParams:
        own = body.sampling(seed=(seed + i) % 2**64, room=llm.context - len(prompt), most=most, logprobs=logprobs)
        return replace(own, **(changes or {}))

    longest: float | None = request.app.state.limits.reply_seconds
    seconds = min((one for one in (body.timeout, longest) if one is not None), default=None)
    return await host.prepare(
        [
            Asked(prompt, params(i, prompt), prediction, wanted, _salt(request, body), body.priority, seconds)
            for prompt in prompts
            for i in range(body.n)
        ]
    )


def _salt(request: Request, body: Sampling) -> bytes:
    """Return what tells whose pages a request may find: those of its key, and of its own salt if it names one."""
    said = (body.cache_salt or "").encode()
    key: bytes = request.scope.get(KEY, b"")
    return hashlib.blake2b(said, key=key, digest_size=16).digest() if said or key else b""


async def whole(replies: Replies, request: Request) -> list[Completion]:
    """Make replies to their ends; a client that leaves cancels them."""

    async def play() -> None:
        async with aclosing(replies.events()) as events:  # type: ignore[type-var]
            async for _, event in events:
                raise_failed(event)

    playing, leaving = asyncio.create_task(play()), asyncio.create_task(_left(request))
    try:
        await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            raise Refusal(CLOSED, "the client is gone")
        await playing
    finally:
        for task in (playing, leaving):
            task.cancel()
    return replies.completions()


async def _left(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Tracer:
    """Adds to chunks what speculation did, where a request asks for it."""

    def __init__(self, body: Sampling, replies: Replies) -> None:
        self._llm = replies.llm
        self._decoders = [
            IncrementalDecoder(self._llm.tokenizer, at_start=False)
            for _ in replies.outputs
            if body.speculation and body.speculation.trace
        ]

    @property
    def is_on(self) -> bool:
        return bool(self._decoders)

    def add(self, i: int, event: Event, chunk: Json) -> Json:
        if self._decoders:
            chunk["paceline"] = trace(self._llm, event, self._decoders[i])
        return chunk


def numbers(body: Sampling, replies: Replies, completions: Sequence[Completion]) -> Json:
    """Return the usage of a request's replies, and what speculation did for them."""
    cached = [one.cached for one in replies.outputs]
    return {
        "usage": usage(completions, cached, each=body.n, predicted=body.prediction is not None),
        "speculation": speculation(completions),
    }


def head(host: Host, kind: str, prefix: str) -> Json:
    """Return the fields that an answer or each of its chunks begins with."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": host.name,
    }


def raise_failed(event: Event) -> None:
    """Raise what ended a reply, if that was none of the ends a client expects."""
    if event.error is not None:
        raise event.error
    if event.finish_reason == "cancelled":
        raise Refusal(503, "the reply was cancelled, for the server is about to end", code="draining")


def stream(chunks: AsyncIterator[Json], *, is_typed: bool = False) -> EventSourceResponse:
    """Send chunks as server-sent events; an error becomes the last one, because the status has gone out.

    Args:
        is_typed: each chunk has a type, which is its event's name too; else the last line says that nothing follows.
    """

    async def lines() -> AsyncIterator[dict[str, str]]:
        try:
            async with aclosing(chunks) as said:  # type: ignore[type-var]
                async for chunk in said:
                    event = {"event": chunk["type"]} if is_typed else {}
                    yield {**event, "data": json.dumps(chunk, ensure_ascii=False)}
        except Exception as error:
            refusal = refusal_of(error)
            failed = body_of(refusal.status, str(refusal), param=refusal.param, code=refusal.code)
            if is_typed:
                yield {"event": "error", "data": json.dumps({**failed["error"], "type": "error"})}
            else:
                yield {"data": json.dumps(failed)}
        if not is_typed:
            yield {"data": "[DONE]"}

    return EventSourceResponse(lines(), ping=PING, headers={"X-Accel-Buffering": "no"})
