"""`POST /v1/responses`: OpenAI's other shape of a conversation, for the agents that speak it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from paceline.engine.completion import Completion
from paceline.server.bridge import Host, Replies
from paceline.server.chat import begin
from paceline.server.exchange import Json, Route, numbers, raise_failed, stream, whole
from paceline.server.responses_schema import ResponsesBody
from paceline.text.reply_parts import Part
from paceline.text.tools import ToolUse

router = APIRouter(route_class=Route)


@router.post("/v1/responses")
async def respond(body: ResponsesBody, request: Request) -> Response:
    """Reply to a conversation, as items."""
    host, use, replies = await begin(request, body.chat())
    written = _Written(_head(host, body), use)
    if body.stream:
        return stream(_events(written, body, replies, use), is_typed=True)
    (completion,) = await whole(replies, request)
    parts = use.parts()
    for _ in written.add([*parts.push(completion.text), *parts.finish()]):
        pass
    for _ in written.end():
        pass
    return JSONResponse(written.response(body, replies, completion))


async def _events(written: _Written, body: ResponsesBody, replies: Replies, use: ToolUse) -> AsyncIterator[Json]:
    for kind in ("response.created", "response.in_progress"):
        yield written.event(kind, response=written.head)
    parts = use.parts()
    async with aclosing(replies.events()) as events:  # type: ignore[type-var]
        async for _, event in events:
            raise_failed(event)
            for one in written.add(parts.push(event.text)):
                yield one
    for one in (*written.add(parts.finish()), *written.end()):
        yield one
    (completion,) = replies.completions()
    response = written.response(body, replies, completion)
    yield written.event(f"response.{response['status']}", response=response)


def _head(host: Host, body: ResponsesBody) -> Json:
    """Return a response before anything is written."""
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": host.name,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "tool_choice": body.tool_choice if isinstance(body.tool_choice, str) else "auto",
        "tools": [tool.model_dump() for tool in body.tools or ()],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": None,
    }


class _Written:
    """The items of one response, and the events that tell of them, numbered."""

    def __init__(self, head: Json, use: ToolUse) -> None:
        self.head, self._use = head, use
        self._output: list[Json] = []
        self._kind: tuple[str, int] | None = None  # of the item that is being written
        self._count = 0

    def event(self, kind: str, **fields: Any) -> Json:
        """Return an event with the next number."""
        self._count += 1
        return {"type": kind, "sequence_number": self._count - 1, **fields}

    def add(self, parts: Sequence[Part]) -> Iterator[Json]:
        """Add parts of the reply; yield what they change."""
        for part in parts:
            kind = ("call", part.call) if part.kind in ("call", "arguments") else (part.kind, 0)
            if kind[0] == "call" and self._use.is_single and part.call:
                continue
            if kind != self._kind:
                yield from self.end()
                self._kind = kind
                yield from self._begin(kind[0], part.text)
            if part.kind != "call":
                yield self._more(kind[0], part.text)

    def end(self) -> Iterator[Json]:
        """End the item that is being written."""
        if self._kind is None:
            return
        (kind, _), self._kind, item = self._kind, None, self._output[-1]
        item["status"] = "completed"
        if kind == "call":
            said = {"arguments": item["arguments"], "name": item["name"]}
            yield self.event("response.function_call_arguments.done", **self._where(), **said)
        else:
            (content,) = item["content"]
            place, (name, more) = {**self._where(), "content_index": 0}, _text_event(kind)
            yield self.event(f"response.{name}.done", **place, text=content["text"], **more)
            yield self.event("response.content_part.done", **place, part=content)
        yield self.event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def response(self, body: ResponsesBody, replies: Replies, completion: Completion) -> Json:
        """Return the whole response."""
        said = numbers(body, replies, [completion])
        usage, reason = said["usage"], completion.finish_reason
        is_whole = reason == "stop"
        thought = "".join(i["content"][0]["text"] for i in self._output if i["type"] == "reasoning")
        if not is_whole and self._output:
            self._output[-1]["status"] = "incomplete"
        return {
            **self.head,
            "status": "completed" if is_whole else "incomplete",
            "incomplete_details": None if is_whole else {"reason": _REASONS.get(str(reason), str(reason))},
            "output": self._output,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": len(replies.llm.encode(thought)) if thought else 0},
                "total_tokens": usage["total_tokens"],
            },
            "speculation": said["speculation"],
        }

    def _begin(self, kind: str, text: str) -> Iterator[Json]:
        if kind == "call":
            call = {"call_id": self._use.call_id(), "name": text, "arguments": ""}
            item: Json = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", **call}
        elif kind == "content":
            item = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "content": []}
        else:
            item = {"id": f"rs_{secrets.token_hex(12)}", "type": "reasoning", "summary": [], "content": []}
        item["status"] = "in_progress"
        self._output.append(item)
        yield self.event("response.output_item.added", output_index=len(self._output) - 1, item={**item})
        if kind != "call":
            text_of: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            content = text_of if kind == "content" else {"type": "reasoning_text", "text": ""}
            item["content"] = [content]
            yield self.event("response.content_part.added", **self._where(), content_index=0, part={**content})

    def _more(self, kind: str, text: str) -> Json:
        item = self._output[-1]
        if kind == "call":
            item["arguments"] += text
            return self.event("response.function_call_arguments.delta", **self._where(), delta=text)
        item["content"][0]["text"] += text
        name, more = _text_event(kind)
        return self.event(f"response.{name}.delta", **self._where(), content_index=0, delta=text, **more)

    def _where(self) -> Json:
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}


def _text_event(kind: str) -> tuple[str, Json]:
    """Return what events of a text are called, and the fields that clients want beside it."""
    return ("output_text", {"logprobs": []}) if kind == "content" else ("reasoning_text", {})


_REASONS = {"length": "max_output_tokens"}
