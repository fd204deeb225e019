"""OpenAI's API: chat and plain completions, whole or streamed, models, and the tokenizer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sse_starlette import EventSourceResponse

from paceline.core.request import Event
from paceline.engine.completion import Completion
from paceline.server.bridge import Asked, Host, Replies
from paceline.server.errors import Refusal, body_of, refusal_of
from paceline.server.replies import chat_logprobs, speculation, text_logprobs, trace, usage
from paceline.server.schema import BODIES, ChatBody, CompletionBody, DetokenizeBody, Sampling, TokenizeBody, text_of
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


router = APIRouter(route_class=Route)


def host_of(request: Request) -> Host:
    host: Host = request.app.state.host
    return host


# ---- chat


@router.post("/v1/chat/completions")
async def chat(body: ChatBody, request: Request) -> Response:
    """Reply to a conversation."""
    host = _host_for(request, body.model)
    llm = host.llm
    messages = [message.plain() for message in body.messages]
    prompt = await asyncio.to_thread(llm.encode_chat, messages)
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise Refusal(400, "max_tokens and max_completion_tokens mean the same; give one", param="max_tokens")
    most = body.max_tokens or body.max_completion_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    replies = await host.prepare(_asked(host, body, [prompt], _salt(request, body), most=most, logprobs=logprobs))
    if body.stream:
        return _stream(_chat_chunks(host, body, replies))
    completions = await _whole(replies, request)
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": one.text, "refusal": None},
            "logprobs": chat_logprobs(one.logprobs, llm.tokenizer) if one.logprobs is not None else None,
            "finish_reason": one.finish_reason,
        }
        for i, one in enumerate(completions)
    ]
    return JSONResponse(
        {**_head(host, "chat.completion", "chatcmpl"), "choices": choices, **_numbers(body, replies, completions)}
    )


async def _chat_chunks(host: Host, body: ChatBody, replies: Replies) -> AsyncIterator[Json]:
    head = _head(host, "chat.completion.chunk", "chatcmpl")

    def chunk(i: int, delta: Json, finish: str | None = None, logprobs: Json | None = None) -> Json:
        return {
            **head,
            "choices": [{"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish}],
        }

    begun, tracer = set[int](), _Tracer(host, body, replies)
    async with aclosing(replies.events()) as events:  # type: ignore[type-var]
        async for i, event in events:
            _raise_failed(event)
            if i not in begun:
                begun.add(i)
                yield chunk(i, {"role": "assistant", "content": ""})
            if event.tokens:
                logprobs = chat_logprobs(event.logprobs, host.loaded.tokenizer) if event.logprobs else None
                yield tracer.add(i, event, chunk(i, {"content": event.text}, None, logprobs))
            if event.finish_reason:
                yield chunk(i, {}, event.finish_reason)
    if body.wants_usage:
        yield {**head, "choices": [], **_numbers(body, replies, replies.completions())}


# ---- plain completions


@router.post("/v1/completions")
async def complete(body: CompletionBody, request: Request) -> Response:
    """Continue texts as they are."""
    host = _host_for(request, body.model)
    prompts, texts = await asyncio.to_thread(_prompts, host, body)
    replies = await host.prepare(
        _asked(host, body, prompts, _salt(request, body), most=body.max_tokens, logprobs=body.logprobs)
    )
    leads = [text for text in texts for _ in range(body.n)]
    if body.stream:
        return _stream(_text_chunks(host, body, replies, leads))
    completions = await _whole(replies, request)
    choices = [
        {
            "index": i,
            "text": leads[i] + one.text,
            "logprobs": None
            if one.logprobs is None
            else text_logprobs(one.logprobs, host.llm.tokenizer, len(leads[i])),
            "finish_reason": one.finish_reason,
        }
        for i, one in enumerate(completions)
    ]
    return JSONResponse(
        {**_head(host, "text_completion", "cmpl"), "choices": choices, **_numbers(body, replies, completions)}
    )


def _prompts(host: Host, body: CompletionBody) -> tuple[list[list[int]], list[str]]:
    """Return the prompts' tokens and their texts."""
    said, llm = body.prompt, host.llm
    given: list[Any] = [said] if isinstance(said, str) or not said or isinstance(said[0], int) else list(said)
    prompts = [llm.encode(one) for one in given]
    texts = [""] * len(given)
    if body.echo:
        texts = [one if isinstance(one, str) else llm.tokenizer.decode(one) for one in given]
    return prompts, texts


async def _text_chunks(host: Host, body: CompletionBody, replies: Replies, leads: Sequence[str]) -> AsyncIterator[Json]:
    head = _head(host, "text_completion", "cmpl")
    offsets = [len(lead) for lead in leads]
    begun, tracer = set[int](), _Tracer(host, body, replies)
    async with aclosing(replies.events()) as events:  # type: ignore[type-var]
        async for i, event in events:
            _raise_failed(event)
            if not event.tokens and not event.finish_reason:
                continue
            text = event.text if i in begun else leads[i] + event.text
            begun.add(i)
            logprobs = text_logprobs(event.logprobs, host.loaded.tokenizer, offsets[i]) if event.logprobs else None
            offsets[i] += len(event.text)
            choice = {"index": i, "text": text, "logprobs": logprobs, "finish_reason": event.finish_reason}
            yield tracer.add(i, event, {**head, "choices": [choice]})
    if body.wants_usage:
        yield {**head, "choices": [], **_numbers(body, replies, replies.completions())}


# ---- what both share


def _host_for(request: Request, model: str | None) -> Host:
    host = host_of(request)
    if model is not None and model != host.name:
        raise Refusal(
            404,
            f"no such model: `{model}`; this server has `{host.name}`",
            param="model",
            code="model_not_found",
        )
    return host


def _asked(
    host: Host, body: Sampling, prompts: Sequence[list[int]], salt: bytes, *, most: int | None, logprobs: int | None
) -> list[Asked]:
    """Return the replies that a body asks for: `n` for each prompt, each with a seed of its own."""
    llm = host.llm
    prediction = None if body.prediction is None else text_of(body.prediction.content)
    wanted = body.speculating(llm.setup.drafters, llm.setup.verify)
    if prediction is not None and wanted.draft_tokens == 0:
        raise Refusal(400, "a prediction is used by speculation, which this request turns off", param="prediction")
    seed = secrets.randbits(32) if body.seed is None else body.seed
    return [
        Asked(
            prompt,
            body.sampling(seed=(seed + i) % 2**64, room=llm.context - len(prompt), most=most, logprobs=logprobs),
            prediction,
            wanted,
            salt,
        )
        for prompt in prompts
        for i in range(body.n)
    ]


def _salt(request: Request, body: Sampling) -> bytes:
    """Return what tells whose pages a request may find: those of its key, and of its own salt if it names one."""
    said = (body.cache_salt or "").encode()
    key: bytes = request.scope.get(KEY, b"")
    return hashlib.blake2b(said, key=key, digest_size=16).digest() if said or key else b""


async def _whole(replies: Replies, request: Request) -> list[Completion]:
    """Make replies to their ends; a client that leaves cancels them."""

    async def play() -> None:
        async with aclosing(replies.events()) as events:  # type: ignore[type-var]
            async for _, event in events:
                _raise_failed(event)

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


class _Tracer:
    """Adds to chunks what speculation did, where a request asks for it."""

    def __init__(self, host: Host, body: Sampling, replies: Replies) -> None:
        self._host = host
        self._decoders = [
            IncrementalDecoder(host.loaded.tokenizer, at_start=False)
            for _ in replies.outputs
            if body.speculation and body.speculation.trace
        ]

    def add(self, i: int, event: Event, chunk: Json) -> Json:
        if self._decoders:
            chunk["paceline"] = trace(self._host, event, self._decoders[i])
        return chunk


def _numbers(body: Sampling, replies: Replies, completions: Sequence[Completion]) -> Json:
    cached = [one.cached for one in replies.outputs]
    return {
        "usage": usage(completions, cached, each=body.n, predicted=body.prediction is not None),
        "speculation": speculation(completions),
    }


def _head(host: Host, kind: str, prefix: str) -> Json:
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": host.name,
    }


def _raise_failed(event: Event) -> None:
    if event.error is not None:
        raise event.error
    if event.finish_reason == "cancelled":
        raise Refusal(503, "the reply was cancelled, for the server is about to end", code="draining")


def _stream(chunks: AsyncIterator[Json]) -> EventSourceResponse:
    """Send chunks as server-sent events; an error becomes the last one, because the status has gone out."""

    async def lines() -> AsyncIterator[dict[str, str]]:
        try:
            async with aclosing(chunks) as said:  # type: ignore[type-var]
                async for chunk in said:
                    yield {"data": json.dumps(chunk, ensure_ascii=False)}
        except Exception as error:
            refusal = refusal_of(error)
            failed = body_of(refusal.status, str(refusal), param=refusal.param, code=refusal.code)
            yield {"data": json.dumps(failed)}
        yield {"data": "[DONE]"}

    return EventSourceResponse(lines(), ping=PING, headers={"X-Accel-Buffering": "no"})


# ---- models and tokens


@router.get("/v1/models")
async def models(request: Request) -> Json:
    """List the model of this server."""
    host = host_of(request)
    said: Json = {"id": host.name, "object": "model", "created": request.app.state.started, "owned_by": "local"}
    if host.is_ready:
        llm = host.llm
        said |= {
            "max_model_len": llm.context,
            "speculation": {
                "sources": list(llm.setup.drafters),
                "verify": llm.setup.verify,
                "control": llm.setup.control,
                "lossless": llm.setup.lossless,
            },
        }
    return {"object": "list", "data": [said]}


@router.get("/v1/models/{name:path}")
async def model(name: str, request: Request) -> Json:
    """Tell of the model of this server."""
    _host_for(request, name)
    one: Json = (await models(request))["data"][0]
    return one


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, request: Request) -> Json:
    """Return the token ids of a text, or of messages in the model's template."""
    llm = _host_for(request, body.model).llm
    if (body.prompt is None) == (body.messages is None):
        raise Refusal(400, "give either prompt or messages", param="prompt")
    if body.messages is not None:
        ids = await asyncio.to_thread(llm.encode_chat, [message.plain() for message in body.messages])
    else:
        ids = await asyncio.to_thread(llm.encode, body.prompt or "", special=body.parse_special)
    return {"tokens": ids, "count": len(ids), "max_model_len": llm.context}


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, request: Request) -> Json:
    """Return the text of token ids."""
    llm = _host_for(request, body.model).llm
    return {"prompt": llm.tokenizer.decode(body.tokens)}
