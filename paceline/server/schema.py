"""The bodies of requests: OpenAI's fields, and ours beside them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from paceline.core.request import Grammar, SamplingParams, Speculation
from paceline.server.errors import Refusal

MOST_REPLIES = 16
Stops = Annotated[list[Annotated[str, StringConstraints(min_length=1)]], Field(max_length=16)]


class Body(BaseModel):
    """A body of known fields; unknown ones are refused, or left out where the server tolerates them."""

    model_config = ConfigDict(extra="forbid", strict=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """Read null as not given, as OpenAI's clients mean it."""
        return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


class Part(Body):
    """A piece of a message's content; texts are all that is read."""

    type: Literal["text"]
    text: str


class Called(Body):
    """A function with the arguments of a call, JSON as a text."""

    name: str
    arguments: str


class ToolCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: Called
    index: int | None = None  # as chunks have it

    def plain(self) -> dict[str, Any]:
        """Return it as templates read it: with the arguments as what they mean.

        Raises:
            Refusal: the arguments are no JSON object.
        """
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            raise Refusal(
                400,
                f"the arguments of a tool call must be a JSON object, got `{self.function.arguments:.80}`",
                param="messages",
            )
        said: dict[str, Any] = {"type": self.type, "function": {"name": self.function.name, "arguments": arguments}}
        return said if self.id is None else {"id": self.id, **said}


class Function(Body):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class Named(Body):
    name: str


class ToolNamed(Body):
    """A choice of one tool."""

    type: Literal["function"]
    function: Named


class Message(Body):
    """A message. A developer's is a system's; content may be absent beside tool calls."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: None = None
    reasoning_content: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as templates read it."""
        said: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": text_of(self.content),
        }
        for name in ("name", "tool_call_id", "reasoning_content"):
            if (value := getattr(self, name)) is not None:
                said[name] = value
        if self.tool_calls:
            said["tool_calls"] = [one.plain() for one in self.tool_calls]
        return said


def text_of(content: str | list[Part] | None) -> str:
    """Return a content's text."""
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


class Prediction(Body):
    """What the reply is expected to be (OpenAI's Predicted Outputs)."""

    type: Literal["content"]
    content: str | list[Part]


class StreamOptions(Body):
    include_usage: bool = False


class Schema(Body):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """The form of the reply."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None


class StructuredOutputs(Body):
    """The form of the reply, as vLLM names it: one of these."""

    json_: dict[str, Any] | str | None = Field(default=None, alias="json")
    regex: str | None = None
    grammar: str | None = None
    choice: list[str] | None = Field(default=None, min_length=1)


class SpeculationOptions(Body):
    """How this request speculates. `draft`: the sources that may guess; `trace`: chunks tell of each round."""

    draft: str | list[str] | None = None
    draft_tokens: int | None = Field(default=None, ge=0, le=64)
    verify: str | None = None
    trace: bool = False


class Sampling(Body):
    """What chat and plain completions share. `user`, `metadata` and `store` are taken and not used.

    `priority`: the least runs first, as in vLLM; `timeout`: seconds after which the reply ends with what it has.
    """

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(default=1, ge=1, le=MOST_REPLIES)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    stop: Annotated[str, StringConstraints(min_length=1)] | Stops | None = None
    min_tokens: int = Field(default=0, ge=0)
    ignore_eos: bool = False
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=100)
    logit_bias: dict[str, float] | None = None
    prediction: Prediction | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    speculation: SpeculationOptions | Literal[False] | None = None
    cache_salt: str | None = Field(default=None, min_length=1)
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)
    timeout: float | None = Field(default=None, gt=0, le=1e6)
    skip_special_tokens: bool = True
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: Literal[False] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, *, seed: int, room: int, most: int | None, logprobs: int | None) -> SamplingParams:
        """Return how the reply is drawn.

        Args:
            room: tokens that the context has left, the limit where none is given.
            most: tokens that the request asks for.
        """
        stop = () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            seed=seed,
            max_tokens=max(room, 1) if most is None else most,
            min_tokens=self.min_tokens,
            stop=stop,
            ignore_eos=self.ignore_eos,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=self._bias(),
            logprobs=logprobs,
            grammar=self._grammar(),
        )

    def _bias(self) -> dict[int, float]:
        try:
            return {int(token): value for token, value in (self.logit_bias or {}).items()}
        except ValueError as error:
            raise Refusal(400, f"logit_bias must map token ids to numbers: {error}", param="logit_bias") from error

    def _grammar(self) -> Grammar | None:
        wanted = self.response_format
        form = None
        if wanted is not None and wanted.type == "json_object":
            form = Grammar.json_schema()
        elif wanted is not None and wanted.type == "json_schema":
            if wanted.json_schema is None or wanted.json_schema.schema_ is None:
                raise Refusal(
                    400,
                    "response_format of type json_schema needs json_schema.schema",
                    param="response_format.json_schema",
                )
            form = Grammar.json_schema(wanted.json_schema.schema_)
        if self.structured_outputs is None:
            return form
        said = self.structured_outputs
        found = [form] if form else []
        found += [Grammar.json_schema(said.json_)] if said.json_ is not None else []
        found += [Grammar.regex(said.regex)] if said.regex is not None else []
        found += [Grammar.lark(said.grammar)] if said.grammar is not None else []
        found += [Grammar.choice(said.choice)] if said.choice is not None else []
        if len(found) != 1:
            raise Refusal(400, f"a reply has one form, got {len(found) or 'none'} of them", param="structured_outputs")
        return found[0]

    def speculating(self, sources: tuple[str, ...], verify: str) -> Speculation:
        """Return how this request speculates, checked against the server's sources and verifier."""
        wanted = self.speculation
        if wanted is False:
            return Speculation(draft_tokens=0)
        if wanted is None:
            return Speculation()
        if wanted.verify is not None and wanted.verify != verify:
            raise Refusal(
                400,
                f"speculation.verify is set for the whole server, to `{verify}`, got `{wanted.verify}`",
                param="speculation.verify",
            )
        names = [wanted.draft] if isinstance(wanted.draft, str) else wanted.draft
        if names in (None, ["auto"]):
            return Speculation(wanted.draft_tokens)
        if names == ["off"]:
            return Speculation(0)
        if unknown := next((name for name in names or () if name not in sources), None):
            known = ", ".join(sources) or "none, for speculation is off"
            raise Refusal(
                400,
                f"speculation.draft may be auto, off, or some of this server's sources ({known}), got `{unknown}`",
                param="speculation.draft",
            )
        return Speculation(wanted.draft_tokens, frozenset(names or ()))


class ChatBody(Sampling):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolNamed | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)


class CompletionBody(Sampling):
    """`POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int | None = Field(default=16, ge=1)
    echo: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=5)


class TokenizeBody(Body):
    """`POST /tokenize`: a text, or messages in the model's template."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    parse_special: bool = False


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: list[int]


BODIES: dict[str, type[Body]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
