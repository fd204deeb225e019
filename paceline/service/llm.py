"""The Python face: a model by name or path, replies with `generate`, `stream` and `chat`."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import weakref
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Self, Unpack

import numpy as np

from paceline.config import LLMConfig, drafters_of, make_verifier, verify_name
from paceline.core.request import SamplingOptions, SamplingParams
from paceline.core.tree import TokenTree
from paceline.draft.base import Loaded
from paceline.engine.calibrate import Instruments
from paceline.engine.completion import Completion, Setup
from paceline.engine.engine import Engine
from paceline.engine.loading import (
    calibration_key,
    find_models,
    load_controller,
    load_drafter,
    load_target,
)
from paceline.engine.request_output import RequestOutput
from paceline.engine.sequence import Request
from paceline.engine.upkeep import Upkeep
from paceline.engine.warm_start import WarmStart
from paceline.errors import UsageError
from paceline.kernels.native import new_pool
from paceline.model.extend import read_on
from paceline.model.flatten import flatten
from paceline.service.reply import Events, Reply
from paceline.service.service import Service, Ticket
from paceline.text.chat import ChatTemplate, encode_chat

Message = Mapping[str, Any]
DEFAULTS = LLMConfig()


class LLM:
    """A target model with its drafter.

    Args:
        model: a known name, a `.gguf` file, a Hugging Face folder, or `hf:org/name[:file.gguf or :type]`.
        draft: a name of `paceline.choices.DRAFTERS`, a second model to draft with (same forms as `model`), or several
            with commas between.
        settings: any field of `LLMConfig`, e.g. `draft_tokens=4`, `threads=2`, `context=8192`, `quant="q8"`.

    Raises:
        PacelineError: of the kind that fits; nothing stays half-loaded.
    """

    def __init__(
        self,
        model: str | Path = DEFAULTS.model,
        *,
        draft: str | Path = DEFAULTS.draft,
        progress: bool = False,
        **settings: object,
    ) -> None:
        started, instruments = perf_counter(), Instruments()
        for name, value in (("model", model), ("draft", draft)):
            if not isinstance(value, (str, Path)):
                raise UsageError(
                    f"{name} must be a name or a path, got `{value}`",
                    hint='draft="off" turns speculation off'
                    if name == "draft"
                    else "leave it out for the default model",
                )
        self.config = LLMConfig.of(model=str(model), draft=str(draft), **settings)
        pool = new_pool(self.config.threads)
        find_models(self.config, progress=progress)
        self.target: Loaded = load_target(self.config, pool, progress=progress)
        self.tokenizer = self.target.tokenizer
        self.context = self.target.context
        drafter = load_drafter(self.config, self.target, pool, progress=progress)
        verifier = make_verifier(self.config)
        controller, measured = load_controller(
            self.config, self.target, drafter, pool, progress=progress, instruments=instruments
        )
        self.calibration_key = calibration_key(self.config, self.target, drafter, pool)
        self.engine = Engine(
            self.target.model,
            self.tokenizer,
            drafter,
            controller,
            verifier,
            context=self.context,
            slots=self.config.slots,
            cache_bytes=self.config.cache_bytes,
        )
        self.service = Service(
            self.engine,
            upkeep=Upkeep(self.target.model, drafter, self.calibration_key, measured),
            memory=WarmStart.of(self.calibration_key, drafter, controller),
        )
        weakref.finalize(self, self.service.close).atexit = False  # the service closes itself at exit
        self.setup = Setup(
            self.target.name,
            drafter.sources,
            verify_name(self.config),
            self.config.control,
            lossless=verifier.lossless,
            reproducible=verifier.reproducible and self.target.model.capabilities.row_independent,
        )
        self.load_seconds = perf_counter() - started
        self._ids = itertools.count()
        self._template: ChatTemplate | None = None
        self._latest: list[int] = []  # tokens of the latest streamed reply, its prompt first

    # ---- replies

    def generate(
        self,
        prompt: str | Seq[int] | Seq[str],
        params: SamplingParams | None = None,
        *,
        chat: bool = False,
        special: bool = False,
        prediction: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Completion | list[Completion]:
        """Reply to one prompt (text or token ids), or to several texts side by side.

        A text is continued as it is, like `paceline generate --raw`, unless `chat` is true. Where one of several fails
        on the way, as by a logits processor that raises, the others finish and its completion holds the `error`.

        Args:
            chat: put the text into the model's chat template as the user's message first.
            special: read the names of control tokens in the text as these tokens: for a prompt that you wrote whole.
                Without it they are plain text.
            prediction: what the reply is expected to be, for example a text before an edit. It makes the reply faster
                where it is right and never changes it.
            options: settings of `SamplingParams` by name, as `max_tokens=5`; they come on top of `params`.

        Raises:
            PacelineError: a request cannot run, or the one reply cannot go on.
        """
        params = _checked(params, options)
        if isinstance(prompt, str) or not isinstance(prompt, Seq) or not prompt or not isinstance(prompt[0], str):
            (one,) = self._finish_all([self.encode(prompt, chat=chat, special=special)], params, prediction)  # type: ignore[arg-type]
            if one.error is not None:
                raise one.error
            return one
        prompts = [self.encode(text, chat=chat, special=special) for text in prompt]  # type: ignore[arg-type]
        return self._finish_all(prompts, params, prediction)

    def generate_each(
        self, prompt: str | Seq[int], params: Seq[SamplingParams], *, special: bool = False
    ) -> list[Completion]:
        """Reply to one prompt once for each of `params`, side by side; the prompt is read once.

        One that fails on the way is among them with its `error`, as in `generate`.
        """
        if not isinstance(params, (list, tuple)):
            raise UsageError(f"params must be a list of SamplingParams, got `{params!r:.80}`")
        return self._finish_all([self.encode(prompt, special=special)] * len(params), params, None)

    def stream(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        chat: bool = False,
        special: bool = False,
        prediction: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Reply:
        """Reply to one prompt, event by event. It starts with the first event asked for; closing it early cancels it.

        Several replies may be open at once and share rounds, whichever is read first. Once started, a reply goes on
        while its events wait to be read.
        """
        ids = self.encode(prompt, chat=chat, special=special)
        request = Request(next(self._ids), ids, _checked(params, options), self.predicted(prediction))
        self.engine.check_request(request)
        record = RequestOutput(request)

        def ended() -> None:
            self._latest = [*ids, *record.tokens]

        return Reply(Events(self.service, record, ended), lambda: self._completion(record))

    def chat(
        self,
        messages: Seq[Message],
        params: SamplingParams | None = None,
        *,
        prediction: str | None = None,
        tools: Seq[Mapping[str, Any]] = (),
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Reply:
        """Reply to a conversation. Earlier turns are reused from the cache.

        A conversation that ends with words of the assistant goes on from them; the reply is what follows.

        Args:
            prediction: see `generate`.
            tools: functions that the model may call, in OpenAI's shape; calls stay in the reply's text as written.
            chat_template_kwargs: what else the chat template reads, such as `enable_thinking`.
            options: see `generate`.
        """
        ids = self.encode_chat(messages, tools=tools, options=chat_template_kwargs)
        return self.stream(ids, params, prediction=prediction, **options)

    async def generate_async(
        self, prompt: str | Seq[int] | Seq[str], params: SamplingParams | None = None, **settings: Any
    ) -> Completion | list[Completion]:
        """Reply as `generate` does, while other tasks go on. Of streamed replies `async for` gives the events."""
        return await asyncio.to_thread(self.generate, prompt, params, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM({self.config.model!r}, draft={self.config.draft!r}, context={self.context})"

    def close(self) -> None:
        """Cancel open replies, save what was learnt and end the thread that generates; later requests are refused.

        The end of the process, or of the last reference, does the same.
        """
        self.service.close()

    # ---- text

    def encode(self, prompt: str | Seq[int], *, chat: bool = False, special: bool = False) -> list[int]:
        """Return token ids; names of control tokens in a text are plain text unless `special` reads them."""
        if special and (chat or not isinstance(prompt, str)):
            raise UsageError(
                f"special=True reads control tokens in a text, got {'chat=True beside it' if chat else 'token ids'}",
                hint="drop special: a chat template writes its own control tokens, and token ids are what they are",
            )
        if not isinstance(prompt, str):
            is_list = isinstance(prompt, Seq) and not isinstance(prompt, (bytes, bytearray, memoryview))
            is_list = is_list or (isinstance(prompt, np.ndarray) and prompt.ndim == 1)
            if not is_list or not all(isinstance(token, (int, np.integer)) for token in prompt):
                raise UsageError(
                    f"a prompt must be a text, a list of token ids or a list of texts, got `{prompt!r:.80}`"
                )
            return [int(token) for token in prompt]
        if chat:
            return self.encode_chat([{"role": "user", "content": prompt}])
        return self.tokenizer.encode(prompt, parse_special=special)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of token ids; bytes that form no character become U+FFFD."""
        return self.tokenizer.decode(tokens, skip_special)

    def encode_chat(
        self,
        messages: Seq[Message],
        *,
        tools: Seq[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the conversation in the model's chat template, ready for the assistant's reply; see `chat`.

        Only what the template wrote itself becomes control tokens: their names inside a message stay plain text.
        """
        return encode_chat(self.tokenizer, self.template, messages, tools=tools, options=options)

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template.

        Raises:
            UsageError: it has none.
        """
        if self._template is None:
            self._template = ChatTemplate.of(self.tokenizer)
        return self._template

    # ---- measuring

    def check_idle(self, what: str) -> None:
        """Refuse while replies are open: what follows needs the model to itself.

        Raises:
            UsageError: some are.
        """
        if not self.service.call(lambda: self.engine.is_idle):
            raise UsageError(f"{what} must have the model to itself, got open replies", hint="read or close them first")

    def plain_seconds_per_token(self, tokens: Seq[int] | None = None, repeats: int = 8) -> float:
        """Return the seconds of one token's forward without speculation behind `tokens`, by default the latest reply's.

        The median of `repeats` forwards after a few to warm up; cached tokens are not read again.

        Raises:
            UsageError: the tokens are no text of this model, or `repeats` is below 1.
            ContextOverflow: they are too many.
        """
        if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
            raise UsageError(f"repeats must be a whole number from 1 on, got `{repeats!r:.80}`")
        text = self.encode(self._latest if tokens is None else tokens) or [0]
        return self.service.call(lambda: self._plain_seconds(text, repeats))

    def _plain_seconds(self, text: list[int], repeats: int) -> float:
        self.engine.check_text(text, most=self.context)  # a reply may have filled the context
        cache, ids = self.engine.cache, np.array(text, np.int32)
        sequence = cache.open(text)
        try:
            read_on(self.target.model, cache, sequence, ids)
            seconds = []
            for _ in range(3 + repeats):
                batch = flatten(cache, [sequence], [TokenTree.chain(ids[-1:])], [1])
                started = perf_counter()
                self.target.model.forward(batch, cache)
                seconds.append(perf_counter() - started)
            return float(np.median(seconds[3:]))
        finally:
            cache.release(sequence)

    # ---- rounds

    def predicted(self, prediction: str | None) -> list[int] | None:
        """Return the token ids of a prediction; refuse one that no drafter would read."""
        if prediction is None:
            return None
        if not isinstance(prediction, str):
            raise UsageError(f"a prediction must be a text, got `{prediction!r:.80}`")
        if not any(choice and choice.prediction != "unread" for choice in drafters_of(self.config).values()):
            raise UsageError(
                f"a prediction needs a drafter that reads it, got draft `{self.config.draft}`",
                hint='--draft predicted, or LLM(draft="predicted")',
            )
        return self.tokenizer.encode(prediction, add_bos=False)

    def _finish_all(
        self,
        prompts: list[list[int]],
        params: SamplingParams | Seq[SamplingParams] | None,
        prediction: str | None,
    ) -> list[Completion]:
        expected = self.predicted(prediction)
        each = params if isinstance(params, (list, tuple)) else [params] * len(prompts)
        if len(each) != len(prompts):
            raise UsageError(f"params must be one for all prompts or one for each of {len(prompts)}, got `{len(each)}`")
        records = [
            RequestOutput(Request(next(self._ids), ids, _checked(one), expected))
            for ids, one in zip(prompts, each, strict=True)
        ]
        for record in records:
            self.engine.check_request(record.request)
        left = [(record, Ticket(record.request, at_once=False)) for record in records]
        try:
            self.service.ask([ticket for _, ticket in left])
            while left:
                record, ticket = left[0]
                for event, seconds in self.service.read(ticket):
                    record.add(event, seconds)
                del left[0]
        finally:
            for wait in (False, True):
                for _, ticket in left:
                    self.service.cancel(ticket, wait=wait)
        return [self._completion(record) for record in records]

    def _completion(self, record: RequestOutput) -> Completion:
        return record.completion(self.setup, self.load_seconds, self.engine.parts.controller.reason)


def _checked(params: Any, options: Mapping[str, Any] | None = None) -> Any:
    """Return the settings of one reply, or of several where `params` is a list, with `options` on top."""
    if isinstance(params, (list, tuple)):
        return [_checked(one, options) for one in params]
    if params is not None and not isinstance(params, SamplingParams):
        raise UsageError(
            f"params must be a SamplingParams, got `{params!r:.80}`", hint="paceline.SamplingParams(seed=1)"
        )
    known = SamplingOptions.__annotations__
    if wrong := next((name for name in options or () if name not in known), None):
        near = difflib.get_close_matches(wrong, known, 1)
        raise UsageError(
            f"unknown setting `{wrong}`", hint=f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
        )
    return replace(params or SamplingParams(), **(options or {}))
