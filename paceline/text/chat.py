"""Render a conversation into the text a model was trained on.

The template comes with the model file, so it is not trusted: `sandbox.py` runs it. Encode what comes out with
`parse_special=True`: the template writes control tokens by name. Knows nothing of token ids.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import jinja2
from jinja2 import meta
from jinja2.exceptions import SecurityError

from paceline.errors import ModelFileError, UsageError
from paceline.text.marks import Names, escaped, free_marks, rewritten
from paceline.text.sandbox import ChatRefused, OverLimit, Sandbox
from paceline.text.tokenizer import Tokenizer

MAX_SOURCE = 1 << 20  # characters of template
ROLES = ("system", "user", "assistant", "tool")
_RAW = "write the whole prompt yourself: `paceline generate --raw --special`, `llm.generate(prompt, special=True)`"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% set system = messages[0].role == 'system' %}"
    "{% for message in (messages[1:] if system else messages) %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ messages[0].content ~ '\n\n' if system and loop.first }}{{ message.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


class Speaker(Protocol):
    """What a template needs of a tokenizer."""

    @property
    def chat_template(self) -> str | None: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...
    def token_text(self, token: int) -> str: ...
    def find(self, text: str) -> int | None: ...


class ChatTemplate:
    """One model's template; `render` is pure and may run in several threads."""

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise ModelFileError(
                f"a chat template must have at most {MAX_SOURCE} characters; got `{len(source)}`", hint=_RAW
            )
        self.source = source = source.removeprefix("\ufeff")
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.compile_template(source)
            self.reads = frozenset(meta.find_undeclared_variables(self._sandbox.parse(source)))  # what it may be given
        except (jinja2.TemplateError, RecursionError, SyntaxError, OverLimit, ArithmeticError, MemoryError) as error:
            raise ModelFileError(f"the model's chat template must be jinja2; got `{error}`", hint=_RAW) from error

    @classmethod
    def of(cls, tokenizer: Speaker) -> ChatTemplate:
        """Return the file's own template, or the one its control tokens call for."""
        source = tokenizer.chat_template
        if source is None:
            known = {"<|im_start|>": CHATML, "<start_of_turn>": GEMMA}
            source = next((template for mark, template in known.items() if tokenizer.find(mark) is not None), None)
        if source is None:
            raise UsageError("a chat needs a template; the model file has none, nor tokens of a known one", hint=_RAW)
        bos, eos = tokenizer.bos_id, tokenizer.eos_id
        return cls(
            source,
            "" if bos is None else tokenizer.token_text(bos),
            "" if eos is None else tokenizer.token_text(eos),
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt for `messages`, each a mapping with `role` and `content`.

        Args:
            tools: functions that the model may call, as JSON schemas in OpenAI's shape.
            options: what else the template reads, such as `enable_thinking`.

        Raises:
            UsageError: the template reads no tools, not these options, or refuses the conversation.
            ModelFileError: the template is broken, or asks for too much.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise UsageError(f"a message must be a mapping with a `role`; got `{str(message)[:80]}`")
        if not messages:
            raise UsageError("a chat needs at least one message; got none")
        if tools and "tools" not in self.reads:
            raise UsageError("tools need a chat template that reads them, got one of this model that does not")
        self._check_options(options or {})
        budget = self._sandbox.open_budget()
        try:
            pieces = self._template.generate(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                tools=tools or None,
                **self._tokens,
                **(options or {}),
            )
            return "".join(pieces)
        except ChatRefused as refusal:
            raise UsageError(f"the model's chat template refuses this conversation: {refusal}", hint=_RAW) from refusal
        except (OverLimit, SecurityError, OverflowError, MemoryError, RecursionError) as error:
            raise ModelFileError(
                f"the model's chat template must stay within its limits; it was stopped after "
                f"{budget.written} characters and {budget.steps} steps: `{error or type(error).__name__}`",
                hint=_RAW,
            ) from error
        except Exception as error:  # whatever a foreign template runs into
            raise UsageError(
                f"the model's chat template cannot render these messages: `{error or type(error).__name__}`", hint=_RAW
            ) from error

    def _check_options(self, options: Mapping[str, Any]) -> None:
        free = sorted(
            self.reads - {"messages", "add_generation_prompt", "tools", *self._tokens, *self._sandbox.globals}
        )
        for name in options:
            if name not in free:
                near = difflib.get_close_matches(name, free, 1)
                raise UsageError(
                    f"chat_template_kwargs must be what this model's template reads "
                    f"({', '.join(free) or 'nothing'}), got `{name}`" + (f"; did you mean `{near[0]}`?" if near else "")
                )


_MESSAGE = 'a message is {"role": "user", "content": "text"}'


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    options: Mapping[str, Any] | None = None,
) -> list[int]:
    """Return a conversation's token ids, ready for the reply; control tokens are only those the template wrote.

    A conversation that ends with words of the assistant goes on from them: the reply is the rest of that turn.
    Names of control tokens in the texts of a message or a tool, whatever field they are in, get a mark inside before
    rendering: a text stays what it was and steers nothing. `tools` and `options` are those of `ChatTemplate.render`.
    """
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise UsageError(f"a conversation must be a list of messages, got `{str(messages)[:80]}`", hint=_MESSAGE)
    for message in messages:
        _check(message)
    names = _names(tuple(tokenizer.special_texts()))
    mark, end = free_marks(2, [*messages, *tools, options, template.source])
    safe = [_safe(message, names, mark) for message in messages]

    def render(said: Sequence[Mapping[str, Any]], *, is_ready: bool = True) -> str:
        return template.render(said, is_ready, _unnamed([*tools], names, mark), _unnamed(options, names, mark))

    goes_on = bool(safe) and safe[-1]["role"] == "assistant"
    text = _begun(render, safe, end) if goes_on else render(safe)
    return tokenizer.encode(text.replace(escaped(mark), mark), parse_special=True, mark=mark)


_names = lru_cache(maxsize=8)(Names)  # a vocabulary may have thousands


def _begun(render: Callable[..., str], messages: list[dict[str, Any]], end: str) -> str:
    """Return the prompt up to the last of the assistant's words; `end` is a character that the conversation lacks."""
    *earlier, last = messages
    if last.get("tool_calls"):
        raise UsageError(
            "a conversation that ends with the assistant must end with words of it; got tool calls",
            hint='add what the tool gave back: {"role": "tool", "content": "text"}',
        )
    text = render([*earlier, {**last, "content": last["content"] + end}], is_ready=False)
    if text.count(end) != 1:
        raise UsageError(
            f"the model's chat template must write the last message once for the reply to go on from it; "
            f"it wrote it `{text.count(end)}` times",
            hint=f"end with a user's message, or {_RAW}",
        )
    return text[: text.index(end)]


def _safe(message: Mapping[str, Any], names: Names, mark: str) -> dict[str, Any]:
    """Return a message in which no text is the name of a control token. Its role is one of ours."""
    rest = {key: value for key, value in message.items() if key != "role"}
    keyed = _unnamed(list(rest.values()), names, mark)
    return {"role": message["role"], **dict(zip(rest, keyed, strict=True))}


def _unnamed(value: Any, names: Names, mark: str) -> Any:
    """Return a value in which no text is the name of a control token."""
    return rewritten(value, lambda s: names.broken(s, mark), lambda s: names.broken_inside(s, mark))


def _check(message: object) -> None:
    if not isinstance(message, Mapping):
        raise UsageError(f"a message must be a mapping, got `{str(message)[:80]}`", hint=_MESSAGE)
    if not isinstance(message.get("role"), str) or message["role"] not in ROLES:
        got = f"`{str(message['role'])[:80]}`" if "role" in message else "none"
        raise UsageError(f"a message's role must be one of {', '.join(ROLES)}, got {got}", hint=_MESSAGE)
    if not isinstance(message.get("content"), str):
        got = f"`{str(message['content'])[:80]}`" if "content" in message else "none"
        raise UsageError(f"a message's content must be a text, got {got}", hint=_MESSAGE)
