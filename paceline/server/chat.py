"""`POST /v1/chat/completions`: replies to a conversation, with reasoning and calls of tools taken apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from paceline.engine.completion import Completion
from paceline.server.bridge import Host, Replies
from paceline.server.errors import Refusal
from paceline.server.exchange import Json, Route, Tracer, head, numbers, prepare, raise_failed, stream, using, whole
from paceline.server.replies import chat_logprobs
from paceline.server.schema import ChatBody
from paceline.service.llm import LLM
from paceline.text.reply_parts import Part, ReplyParts
from paceline.text.tools import ToolUse

router = APIRouter(route_class=Route)


@router.post("/v1/chat/completions")
async def chat(body: ChatBody, request: Request) -> Response:
    """Reply to a conversation."""
    host, use, replies = await begin(request, body)
    if body.stream:
        return stream(_chunks(host, body, replies, use))
    completions = await whole(replies, request)
    choices = [_choice(i, one, use, replies.llm) for i, one in enumerate(completions)]
    return JSONResponse(
        {**head(host, "chat.completion", "chatcmpl"), "choices": choices, **numbers(body, replies, completions)}
    )


async def begin(request: Request, body: ChatBody) -> tuple[Host, ToolUse, Replies]:
    """Take places for the replies to a conversation; return the model, how replies are read, and them.

    Raises:
        Refusal: settings contradict each other, or there is no place.
    """
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise Refusal(400, "max_tokens and max_completion_tokens mean the same; give one", param="max_tokens")
    async with using(request, body.model) as host:
        use, prompt = await asyncio.to_thread(_read, host.llm, body)
        changes: Json = {"skip_special_tokens": body.skip_special_tokens and not use.shows_special}
        if use.form is not None:
            if body.response_format is not None or body.structured_outputs is not None:
                raise Refusal(400, "a reply that must call a tool has no other form", param="tool_choice")
            changes["grammar"] = use.form
        replies = await prepare(
            request,
            host,
            body,
            [prompt],
            most=body.max_tokens or body.max_completion_tokens,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            changes=changes,
        )
    return host, use, replies


def _read(llm: LLM, body: ChatBody) -> tuple[ToolUse, list[int]]:
    """Return how replies are read, and the prompt's tokens."""
    tools = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    choice, named = None, None
    if isinstance(body.tool_choice, str):
        choice = body.tool_choice
    elif body.tool_choice is not None:
        named = body.tool_choice.function.name
    if named is not None and named not in [tool["function"]["name"] for tool in tools]:
        raise Refusal(400, f"tool_choice must name one of the tools, got `{named}`", param="tool_choice")
    if choice == "required" and not tools:
        raise Refusal(400, "tool_choice `required` needs tools, got none", param="tool_choice")
    if choice == "none":
        tools = []
    prompt = llm.encode_chat(
        [message.plain() for message in body.messages], tools=tools, options=body.chat_template_kwargs
    )
    use = ToolUse.of(
        llm.template.source,
        llm.tokenizer,
        tools,
        prompt,
        only=named,
        must=choice == "required",
        is_single=body.parallel_tool_calls is False,
    )
    return use, prompt


def _choice(i: int, one: Completion, use: ToolUse, llm: LLM) -> Json:
    parts = use.parts()
    said = _Message(use)
    said.add([*parts.push(one.text), *parts.finish()])
    return {
        "index": i,
        "message": said.message(),
        "logprobs": chat_logprobs(one.logprobs, llm.tokenizer) if one.logprobs is not None else None,
        "finish_reason": _reason(one.finish_reason, parts),
    }


def _reason(reason: str | None, parts: ReplyParts) -> str | None:
    return "tool_calls" if parts.calls and reason == "stop" else reason


class _Message:
    """A reply's parts as OpenAI's clients read them, whole or in pieces."""

    def __init__(self, use: ToolUse) -> None:
        self._use = use
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[Json] = []

    def add(self, parts: Sequence[Part]) -> Json:
        """Add parts; return what they change, as a chunk has it."""
        delta: Json = {}
        for part in parts:
            if part.kind in ("content", "reasoning"):
                name = "content" if part.kind == "content" else "reasoning_content"
                (self._content if part.kind == "content" else self._reasoning).append(part.text)
                delta[name] = delta.get(name, "") + part.text
            elif not (self._use.is_single and part.call):
                self._add_call(part, delta.setdefault("tool_calls", []))
        return delta

    def _add_call(self, part: Part, told: list[Any]) -> None:
        if part.kind == "call":
            function = {"name": part.text, "arguments": ""}
            self._calls.append({"id": self._use.call_id(), "type": "function", "function": function})
            told.append({"index": part.call, **self._calls[-1], "function": dict(function)})
            return
        self._calls[part.call]["function"]["arguments"] += part.text
        if told and told[-1]["index"] == part.call:
            told[-1]["function"]["arguments"] += part.text
        else:
            told.append({"index": part.call, "function": {"arguments": part.text}})

    def message(self) -> Json:
        """Return the whole message."""
        content = "".join(self._content)
        said: Json = {"role": "assistant", "content": content if content or not self._calls else None, "refusal": None}
        if self._reasoning:
            said["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            said["tool_calls"] = self._calls
        return said


async def _chunks(host: Host, body: ChatBody, replies: Replies, use: ToolUse) -> AsyncIterator[Json]:
    common, tokenizer = head(host, "chat.completion.chunk", "chatcmpl"), replies.llm.tokenizer

    def chunk(i: int, delta: Json, finish: str | None = None, logprobs: Json | None = None) -> Json:
        return {
            **common,
            "choices": [{"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish}],
        }

    begun, tracer = set[int](), Tracer(body, replies)
    readers = [(use.parts(), _Message(use)) for _ in replies.outputs]
    async with aclosing(replies.events()) as events:  # type: ignore[type-var]
        async for i, event in events:
            raise_failed(event)
            parts, message = readers[i]
            if i not in begun:
                begun.add(i)
                yield chunk(i, {"role": "assistant", "content": ""})
            delta = message.add(parts.push(event.text))
            if delta or event.logprobs or (tracer.is_on and event.tokens):
                logprobs = chat_logprobs(event.logprobs, tokenizer) if event.logprobs else None
                yield tracer.add(i, event, chunk(i, delta, None, logprobs))
            if event.finish_reason:
                if rest := message.add(parts.finish()):
                    yield chunk(i, rest)
                yield chunk(i, {}, _reason(event.finish_reason, parts))
    if body.wants_usage:
        yield {**common, "choices": [], **numbers(body, replies, replies.completions())}
