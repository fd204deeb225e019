"""The body of `POST /v1/responses`, and the conversation that it means."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from paceline.server.errors import Refusal
from paceline.server.schema import BODIES, Body, ChatBody, Function, Named, Sampling, Schema


class Text(Body):
    """A piece of an item's content; texts are all that is read."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class MessageItem(Body):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Text]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class CallItem(Body):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class OutputItem(Body):
    """What a called function returned."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[Text]
    id: str | None = None
    status: str | None = None


class ReasoningText(Body):
    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Body):
    """What the model thought; templates are given it before the turn that it belongs to."""

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None
    summary: list[ReasoningText] | None = None
    id: str | None = None
    status: str | None = None
    encrypted_content: str | None = None


Item = CallItem | OutputItem | ReasoningItem | MessageItem


class FunctionTool(Function):
    type: Literal["function"]


class ChosenTool(Named):
    type: Literal["function"]


class Format(Schema):
    type: Literal["text", "json_object", "json_schema"]


class TextOptions(Body):
    format: Format | None = None
    verbosity: str | None = None


class Reasoning(Body):
    """`effort` goes into the chat template as `reasoning_effort`; summaries are not made."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesBody(Sampling):
    """`POST /v1/responses`. Nothing is kept: a conversation is sent whole each time."""

    n: Literal[1] = 1
    input: str | list[Item] = Field(min_length=1)
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled", "auto"] | None = None
    store: bool | None = None  # type: ignore[assignment]
    include: list[str] | None = None
    background: Literal[False] | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    top_logprobs: None = None
    response_format: None = None

    def chat(self) -> ChatBody:
        """Return the same as a chat's body.

        Raises:
            Refusal: it goes on from a response that is not kept, or its items make no conversation.
        """
        if self.previous_response_id is not None:
            raise Refusal(
                400,
                "previous_response_id must be absent: this server keeps no responses; send the whole conversation",
                param="previous_response_id",
            )
        said = self.model_dump(exclude_unset=True, by_alias=True, include=set(Sampling.model_fields) - _OWN)
        said["messages"] = self._messages()
        said["max_tokens"] = self.max_output_tokens
        said["parallel_tool_calls"] = self.parallel_tool_calls
        said["tools"] = [
            {"type": "function", "function": one.model_dump(exclude={"type"}, exclude_none=True)}
            for one in self.tools or ()
        ] or None
        said["tool_choice"] = (
            {"type": "function", "function": {"name": self.tool_choice.name}}
            if isinstance(self.tool_choice, ChosenTool)
            else self.tool_choice
        )
        form = None if self.text is None else self.text.format
        if form is not None:
            said["response_format"] = {"type": form.type}
            if form.type == "json_schema":
                said["response_format"]["json_schema"] = {"schema": form.schema_}
        options = dict(self.chat_template_kwargs or {})
        if self.reasoning is not None and self.reasoning.effort is not None:
            options.setdefault("reasoning_effort", self.reasoning.effort)
        said["chat_template_kwargs"] = options or None
        try:
            return ChatBody.model_validate(said)
        except ValidationError as error:  # items that make no conversation
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise Refusal(400, f"input makes no conversation: {where}: {first['msg']}", param="input") from error

    def _messages(self) -> list[dict[str, Any]]:
        """Return the items as messages: calls belong to the assistant's turn, and so does what was thought."""
        found: list[dict[str, Any]] = []
        if self.instructions is not None:
            found.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*found, {"role": "user", "content": self.input}]
        for item in self.input:
            if isinstance(item, MessageItem):
                if item.role == "assistant":
                    _turn(found)["content"] = (_turn(found)["content"] or "") + _text(item.content)
                else:
                    found.append({"role": item.role, "content": _text(item.content)})
            elif isinstance(item, CallItem):
                called = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": called}
                _turn(found).setdefault("tool_calls", []).append(call)
            elif isinstance(item, OutputItem):
                found.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
            elif item.content:
                _turn(found)["reasoning_content"] = "".join(part.text for part in item.content)
        return found


_OWN = {"n", "response_format", "store", "stream_options"}
BODIES["/v1/responses"] = ResponsesBody


def _turn(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the assistant's turn that is being written, a new one if the last message is another's."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": None})
    return found[-1]


def _text(content: str | list[Text]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
