"""A conversation and its commands: what a turn does, whatever it was typed into."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.terminal import say
from paceline.errors import ContextOverflow, PacelineError, UsageError

if TYPE_CHECKING:
    from paceline.core.request import SamplingParams
    from paceline.engine.completion import Completion
    from paceline.service.llm import LLM

Message = dict[str, Any]

# Commands and what stands behind them: nothing, an optional or a needed text, one file, a setting with its value.
COMMANDS = {
    "/help": "",
    "/exit": "",
    "/quit": "",
    "/reset": "",
    "/retry": "",
    "/continue": "",
    "/show": "",
    "/stats": "",
    "/system": "[TEXT]",
    "/edit": "[TEXT]",
    "/save": "FILE",
    "/load": "FILE",
    "/set": "NAME VALUE",
}
_SHAPES = {"": r"", "[TEXT]": r".*", "FILE": r"\S+", "NAME VALUE": r"[\w-]+\s+\S.*"}
# What /set changes, with the type of its value.
SETTINGS: dict[str, Callable[[str], object]] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "typical_p": float,
    "seed": int,
    "max_tokens": int,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
}
KEPT = 0.5  # of the context that a conversation too long for it is cut to: several turns fit before the next cut

HELP = """\
/retry             reply again to the last turn; with a temperature, by another seed
/edit [TEXT]       put TEXT in the place of the last turn; without TEXT, edit it here
/continue          go on with a reply that was cut
/reset             forget the conversation, keep the instructions
/system TEXT       give instructions (starts anew); without TEXT: none
/set NAME VALUE    change a setting of the replies to come: temperature, top_p, seed, max_tokens, …
/show              the model, the settings, the conversation so far
/stats             what speculation gained in this conversation
/save FILE         write the conversation as JSON, in OpenAI's shape
/load FILE         go on with such a conversation
/help              this
/exit, /quit       end, as Ctrl-D does
Any other text goes to the model, also one that begins with /. To send a command as text, double its slash: //help.
A line that ends in \\ goes on in the next one; Alt-Enter makes a line; lines between \"\"\" and \"\"\" are one turn.
Ctrl-C stops a reply or drops a line; twice at the prompt, it ends."""


@dataclass(slots=True)
class Totals:
    """What the replies of a conversation add up to."""

    replies: int = 0
    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    by_source: dict[str, list[int]] = field(default_factory=dict)  # drafted, accepted

    def add(self, completion: Completion) -> None:
        self.replies += 1
        self.tokens += len(completion.token_ids)
        self.seconds += completion.timing.prefill_seconds + completion.timing.decode_seconds
        self.rounds += completion.metrics.rounds
        for name, counts in completion.metrics.by_source.items():
            own = self.by_source.setdefault(name, [0, 0])
            own[0] += counts["drafted"]
            own[1] += counts["accepted"]


@dataclass(slots=True)
class Conversation:
    """The messages so far. A turn that fails leaves them as they were."""

    llm: LLM
    params: SamplingParams
    system: str | None
    turns: list[Message] = field(default_factory=list)
    failed: bool = False  # whether a turn failed
    totals: Totals = field(default_factory=Totals)
    draft: str | None = None  # a text to be edited in the next turn
    tries: int = 0  # replies to the latest turn, beyond the first
    was_cut: bool = False  # the notice that turns were dropped is given once

    def take(self, line: str) -> bool:
        """Answer a line or run its command; return False to end. An error is told, and the conversation goes on."""
        from paceline.cli.main import complain

        command, rest = split(line)
        if command in ("/exit", "/quit"):
            return False
        try:
            if command:
                getattr(self, f"_{command[1:]}")(rest)
            elif rest.strip():
                self.tries = 0
                self.answer(rest)
        except PacelineError as error:
            is_full = isinstance(error, ContextOverflow)
            complain(str(error), "a shorter turn fits, or a larger --context" if is_full else error.hint, 1)
            self.failed = True
        return True

    # ---- replies

    def answer(self, text: str) -> None:
        """Reply to one turn and keep both, the reply also if it was interrupted.

        Raises:
            PacelineError: the reply cannot be made.
        """
        user = {"role": "user", "content": text}
        completion, interrupted = self._play([*self.turns, user])
        if completion.text or not interrupted:
            self.turns += [user, {"role": "assistant", "content": completion.text}]

    def _play(self, turns: list[Message]) -> tuple[Completion, bool]:
        """Show the reply to `turns`; return it, and whether Ctrl-C ended it."""
        from paceline.cli.reply import finish, play
        from paceline.cli.terminal import Painter, Screen
        from paceline.text.stream import IncrementalDecoder

        kept = self._fit(turns)
        params = replace(self.params, seed=self.params.seed + self.tries)
        reply = self.llm.chat([*self._lead(), *kept], params)
        interrupted = play(reply, Screen(Painter(IncrementalDecoder(self.llm.tokenizer, at_start=False))))
        completion = reply.completion
        self.totals.add(completion)
        finish(self.llm, completion, params, interrupted=interrupted)
        del self.turns[: len(turns) - len(kept)]
        return completion, interrupted

    def _fit(self, turns: list[Message]) -> list[Message]:
        """Return the turns that find room, without the oldest ones.

        Half of the context is freed at once: the rest stays the same for several turns, so that the cache keeps it.
        """
        most = self.llm.context - 1
        if self._length(turns) <= most:
            return turns
        kept = list(turns)
        while len(kept) > 1 and self._length(kept) > KEPT * most:
            del kept[0]
            while len(kept) > 1 and kept[0]["role"] != "user":  # templates want a user first
                del kept[0]
        if self._length(kept) <= most and not self.was_cut:
            self.was_cut = True
            say("The context is full: from here on the oldest turns are left out. /reset starts anew.")
        return kept

    def _length(self, turns: list[Message]) -> int:
        return len(self.llm.encode_chat([*self._lead(), *turns]))

    def _lead(self) -> list[Message]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]

    def _last(self) -> int:
        """Return the place of the last user's turn; refuse if there is none."""
        for place in range(len(self.turns) - 1, -1, -1):
            if self.turns[place]["role"] == "user":
                return place
        raise UsageError("there is no turn yet", hint="type something first")

    # ---- commands

    def _help(self, _: str) -> None:
        say(HELP)

    def _reset(self, _: str) -> None:
        self.turns.clear()
        say("The conversation starts anew.")

    def _system(self, text: str) -> None:
        self.system = text or None
        self.turns.clear()
        say("The conversation starts anew with these instructions." if self.system else "No instructions now.")

    def _retry(self, _: str) -> None:
        place = self._last()
        before, text = self.turns[place:], self.turns[place]["content"]
        if self.params.is_greedy:
            say("At temperature 0 the reply is the same again; /set temperature 0.8 draws others.")
        del self.turns[place:]
        self.tries += 1
        self._answer_or_restore(text, before)

    def _edit(self, text: str) -> None:
        place = self._last()
        if not text:
            self.draft = self.turns[place]["content"]
            return
        before = self.turns[place:]
        del self.turns[place:]
        self._answer_or_restore(text, before)

    def _answer_or_restore(self, text: str, before: list[Message]) -> None:
        count = len(self.turns)
        try:
            self.answer(text)
        finally:
            if len(self.turns) <= count and not self.turns[count:]:
                self.turns += before

    def _continue(self, _: str) -> None:
        if not self.turns or self.turns[-1]["role"] != "assistant" or not self.turns[-1]["content"]:
            raise UsageError("there is no reply to go on with", hint="type something first")
        completion, _interrupted = self._play(list(self.turns))
        self.turns[-1] = {"role": "assistant", "content": self.turns[-1]["content"] + completion.text}

    def _set(self, text: str) -> None:
        from paceline.sample.params import validate

        name, value = text.split(maxsplit=1)
        known = name.replace("-", "_")
        if known not in SETTINGS:
            near = difflib.get_close_matches(known, SETTINGS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"no such setting: `{name}`", hint=f"{hint}settings: {', '.join(SETTINGS)}")
        try:
            changed = replace(self.params, **{known: SETTINGS[known](value)})  # type: ignore[arg-type]
        except ValueError as error:
            raise UsageError(f"{known} must be a number, got `{value}`") from error
        validate(changed)
        self.params = changed
        say(f"{known} is {getattr(changed, known)} now.")

    def _show(self, _: str) -> None:
        setup, usual = self.llm.setup, type(self.params)()
        tokens = self._length(self.turns) if self.turns else 0
        said = [f"model: {setup.model} · drafts: {', '.join(setup.drafters) or 'off'} · verify: {setup.verify}"]
        changed = [
            f"{one.name} {getattr(self.params, one.name)}"
            for one in fields(self.params)
            if one.name in ("temperature", "max_tokens", "seed")
            or getattr(self.params, one.name) != getattr(usual, one.name)
        ]
        said += [f"settings: {', '.join(changed)}", f"instructions: {self.system or 'none'}"]
        said += [f"{len(self.turns)} messages, {tokens} of {self.llm.context} tokens"]
        said += [f"{one['role']}: {one['content']}" for one in self.turns]
        say("\n".join(said))

    def _stats(self, _: str) -> None:
        totals = self.totals
        if not totals.replies:
            say("No reply yet.")
            return
        rate = totals.tokens / totals.seconds if totals.seconds else 0.0
        said = [f"{totals.replies} replies, {totals.tokens} tokens in {totals.seconds:.1f} s ({rate:.1f} tokens/s)"]
        if totals.rounds:
            said.append(f"{totals.tokens / totals.rounds:.2f} tokens a round (1 is plain decoding)")
        for name, (drafted, accepted) in totals.by_source.items():
            said.append(f"{name}: {accepted} of {drafted} guesses accepted")
        say("\n".join(said))

    def _save(self, name: str) -> None:
        from paceline import store

        path = Path(name).expanduser()
        said = {"model": self.llm.setup.model, "messages": [*self._lead(), *self.turns]}
        try:
            store.write(path, (json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode())
        except OSError as error:
            raise UsageError(f"the conversation cannot be saved: {error.strerror or error}: {path}") from error
        say(f"{len(said['messages'])} messages are in {path}.")

    def _load(self, name: str) -> None:
        path = Path(name).expanduser()
        messages = read_messages(path)
        self.llm.encode_chat(messages)  # what the template refuses is refused now
        is_led = messages[0]["role"] == "system"
        self.system, self.turns = (messages[0]["content"], messages[1:]) if is_led else (None, messages)
        say(f"{len(messages)} messages of {path}; the conversation goes on from there.")


def read_messages(path: Path) -> list[Message]:
    """Return a saved conversation: {"messages": [...]}, or the list alone.

    Raises:
        UsageError: the file cannot be read, or is no conversation.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"a conversation cannot be read: {error.strerror or error}: {path}") from error
    except ValueError as error:
        raise UsageError(f"a conversation must be JSON, got `{path}`: {error}") from error
    messages = said.get("messages") if isinstance(said, dict) else said
    if not isinstance(messages, list) or not messages:
        raise UsageError(
            f"a conversation must hold a list of messages, got none in `{path}`",
            hint='as in {"messages": [{"role": "user", "content": "Hello"}]}',
        )
    return messages


def split(line: str) -> tuple[str, str]:
    """Return a command and the text behind it, or no command and what goes to the model.

    A text that resembles a command goes to the model with a notice.
    """
    first, rest = (*line.split(maxsplit=1), "", "")[:2]
    rest = rest.strip()
    if not first.startswith("/"):
        return "", line
    if first in COMMANDS and re.fullmatch(_SHAPES[COMMANDS[first]], rest, re.DOTALL):
        return first, rest
    if first.startswith("//") and f"/{first.lstrip('/')}" in COMMANDS:
        return "", line.replace("/", "", 1)
    if first in COMMANDS:
        takes = f"takes {COMMANDS[first]}" if COMMANDS[first] else "takes no text"
        say(f"{first} {takes}, so this goes to the model; /help lists commands")
    elif near := difflib.get_close_matches(first.lower(), COMMANDS, 1, cutoff=0.75):
        say(f"no such command: {first}, so this goes to the model; did you mean {near[0]}? /help lists commands")
    return "", line
