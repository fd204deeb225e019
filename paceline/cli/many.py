"""Many prompts or conversations from a file, and their replies as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from paceline.cli.texts import read_file
from paceline.core.aliases import Json
from paceline.errors import PacelineError, UsageError

if TYPE_CHECKING:
    from paceline.core.request import SamplingParams
    from paceline.service.llm import LLM

Message = dict[str, Any]
_SHAPE = 'a list of {"role": …, "content": …}, or an object with it as "messages"'


def read_asked(*, messages: str | None, prompts: str | None, raw: bool) -> tuple[list[list[Message] | str], bool]:
    """Return what a file asks, conversations or texts, and whether each reply is to be a JSON line.

    Raises:
        UsageError: both files are given, or the one cannot be used.
    """
    if messages is None or prompts is not None:
        if messages is not None or prompts is None:
            raise UsageError(
                "what to reply to is given once, got --messages and --prompts", hint="leave one of them out"
            )
        return list(read_prompts(prompts)), True
    if raw:
        raise UsageError("--messages needs the chat template, and --raw leaves it out", hint="drop one of the two")
    conversations, is_many = read_conversations(messages)
    return list(conversations), is_many


def read_conversations(path: str) -> tuple[list[list[Message]], bool]:
    """Return the conversations of a file in OpenAI's shape, and whether it is JSON lines, one on each.

    Raises:
        UsageError: it cannot be read, or is of another shape; names the line.
    """
    text = read_file(path, "--messages")
    try:
        return [_messages(json.loads(text), "it")], False
    except json.JSONDecodeError as error:
        whole = error
    found = []
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in lines:
        try:
            found.append(_messages(json.loads(line), f"line {number}"))
        except json.JSONDecodeError as error:
            wrong = whole if len(lines) == 1 or number == 1 else error
            raise UsageError(
                f"--messages must name a file of JSON or JSON lines, got `{path}`: {wrong}", hint=f"give {_SHAPE}"
            ) from error
    if not found:
        raise UsageError(
            f"--messages must name a file of JSON or JSON lines, got `{path}`, which is empty", hint=f"give {_SHAPE}"
        )
    return found, True


def _messages(said: Any, where: str) -> list[Message]:
    messages = said.get("messages") if isinstance(said, dict) else said
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise UsageError(f"--messages: {where} must be {_SHAPE}", hint='[{"role": "user", "content": "Hello"}]')
    return messages


def read_prompts(path: str) -> list[str]:
    """Return the prompts of a file: one a line, or a JSON string a line.

    Raises:
        UsageError: it cannot be read, or has none.
    """
    lines = [line for line in read_file(path, "--prompts").splitlines() if line.strip()]
    if not lines:
        raise UsageError(f"--prompts must name a file with a prompt on each line, got `{path}`, which has none")
    is_json = all(line.lstrip().startswith('"') for line in lines)
    try:
        return [json.loads(line) for line in lines] if is_json else lines
    except json.JSONDecodeError:
        return lines


def conversation_of(asked: list[Message] | str, system: str | None) -> list[Message]:
    """Return the conversation that a text begins, or a conversation, behind instructions if there are any."""
    lead = [] if system is None else [{"role": "system", "content": system}]
    return [*lead, *([{"role": "user", "content": asked}] if isinstance(asked, str) else asked)]


def reply_to_all(llm: LLM, asked: Sequence[list[Message] | str], params: SamplingParams) -> bool:
    """Print a JSON object for each reply, in order; return whether all could be made. A text is continued as it is."""
    is_whole = True
    with ThreadPoolExecutor(llm.config.slots) as readers:
        try:
            for number, (said, is_well) in enumerate(readers.map(lambda one: _said(llm, one, params), asked)):
                is_whole &= is_well
                print(json.dumps({"index": number, **said}), flush=True)
        except BaseException:
            readers.shutdown(wait=False, cancel_futures=True)
            llm.close()  # ends those under way
            raise
    return is_whole


def _said(llm: LLM, asked: list[Message] | str, params: SamplingParams) -> tuple[Json, bool]:
    """Make one reply; what cannot be made is told in its place, and the others go on."""
    try:
        reply = llm.stream(asked, params) if isinstance(asked, str) else llm.chat(asked, params)
        return reply.read().to_json(llm.tokenizer), True
    except PacelineError as error:
        return {"error": {"message": str(error), "hint": error.hint}}, False
