"""`POST /v1/completions`: texts continued as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from paceline.server.bridge import Host, Replies
from paceline.server.exchange import Json, Route, Tracer, head, numbers, prepare, raise_failed, stream, using, whole
from paceline.server.replies import text_logprobs
from paceline.server.schema import CompletionBody

router = APIRouter(route_class=Route)


@router.post("/v1/completions")
async def complete(body: CompletionBody, request: Request) -> Response:
    """Continue texts as they are."""
    async with using(request, body.model) as host:
        prompts, texts = await asyncio.to_thread(_prompts, host, body)
        changes = {"skip_special_tokens": body.skip_special_tokens}
        replies = await prepare(
            request, host, body, prompts, most=body.max_tokens, logprobs=body.logprobs, changes=changes
        )
    leads = [text for text in texts for _ in range(body.n)]
    if body.stream:
        return stream(_chunks(host, body, replies, leads))
    completions = await whole(replies, request)
    choices = [
        {
            "index": i,
            "text": leads[i] + one.text,
            "logprobs": None
            if one.logprobs is None
            else text_logprobs(one.logprobs, replies.llm.tokenizer, len(leads[i])),
            "finish_reason": one.finish_reason,
        }
        for i, one in enumerate(completions)
    ]
    return JSONResponse(
        {**head(host, "text_completion", "cmpl"), "choices": choices, **numbers(body, replies, completions)}
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


async def _chunks(host: Host, body: CompletionBody, replies: Replies, leads: Sequence[str]) -> AsyncIterator[Json]:
    common, tokenizer = head(host, "text_completion", "cmpl"), replies.llm.tokenizer
    offsets = [len(lead) for lead in leads]
    begun, tracer = set[int](), Tracer(body, replies)
    async with aclosing(replies.events()) as events:  # type: ignore[type-var]
        async for i, event in events:
            raise_failed(event)
            if not event.tokens and not event.finish_reason:
                continue
            text = event.text if i in begun else leads[i] + event.text
            begun.add(i)
            logprobs = text_logprobs(event.logprobs, tokenizer, offsets[i]) if event.logprobs else None
            offsets[i] += len(event.text)
            choice = {"index": i, "text": text, "logprobs": logprobs, "finish_reason": event.finish_reason}
            yield tracer.add(i, event, {**common, "choices": [choice]})
    if body.wants_usage:
        yield {**common, "choices": [], **numbers(body, replies, replies.completions())}
