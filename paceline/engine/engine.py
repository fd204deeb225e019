"""Requests in, events out: the loop around `step`, and the only place that starts and ends a sequence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence as Seq

from paceline.control.base import Controller
from paceline.core.request import Event
from paceline.draft.base import Drafter
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Request, Sequence
from paceline.engine.step import Parts, end, step
from paceline.errors import UsageError, reply_error, too_long
from paceline.kernels.ops import PAGE
from paceline.model.base import Model
from paceline.model.cache import PagedCache, pages_of
from paceline.model.flatten import SLACK
from paceline.model.narrowed import NarrowedModel
from paceline.sample.params import check_ids, check_known, validate
from paceline.text.grammar import check_grammar
from paceline.text.tokenizer import Tokenizer
from paceline.verify.base import Verifier


class Engine:
    """Runs requests of one target model; not for two threads at once.

    Args:
        context: tokens that prompt and reply of one request share.
        slots: how many requests run at once.
        cache_bytes: limit for keys and values of all of them; `None` for `slots` whole contexts.

    Raises:
        UsageError: drafter or verifier need what the model's backend cannot do, or the cache has no room for a context.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        drafter: Drafter,
        controller: Controller,
        verifier: Verifier,
        *,
        context: int,
        slots: int = 8,
        cache_bytes: int | None = None,
    ) -> None:
        self.tokenizer, self.context = tokenizer, context
        if tokenizer.vocab_size < model.spec.vocab:
            model = NarrowedModel(model, tokenizer.vocab_size)
        suit(model, drafter, verifier)
        whole = pages_of(context + SLACK)
        pages = whole * slots if cache_bytes is None else cache_bytes // model.page_bytes
        if pages < whole:
            raise UsageError(
                f"cache_bytes must hold one context of {context} tokens, "
                f"at least {whole * model.page_bytes} bytes, got `{cache_bytes}`",
                hint="lower the context (--context) or raise cache_bytes",
            )
        self.cache: PagedCache = model.new_cache(pages * PAGE)
        self.parts = Parts(model, self.cache, drafter, controller, verifier, Scheduler(self.cache, slots))

    def add(self, request: Request) -> None:
        """Queue a request; refuses what `check_request` refuses, and an id that is running."""
        self.check_request(request)
        if self.has(request.id):
            raise UsageError(f"a request with id `{request.id}` is running already")
        self.parts.scheduler.add(Sequence(request, self.tokenizer, self.context))

    def check(self) -> None:
        """Recount pages, references and the lines of requests, those of drafters too.

        Raises:
            AssertionError: with what disagrees.
        """
        self.parts.scheduler.check()
        self.parts.drafter.check()
        if self.is_idle:
            assert self.cache.free_pages == self.cache.store.pages, (self.cache.free_pages, self.cache.store.pages)

    def check_request(self, request: Request) -> None:
        """Refuse a request that cannot run; any thread may ask.

        Raises:
            UsageError: the prompt is empty, has ids outside the vocabulary, or a setting is out of range.
            ContextOverflow: the prompt leaves no room for a reply.
        """
        validate(request.params)
        spec = self.parts.model.spec
        check_ids(request.params, spec.vocab, spec.padding)
        if request.params.grammar is not None:
            check_grammar(request.params.grammar, self.tokenizer)
        self.check_text(request.prompt, most=self.context - 1)

    def check_text(self, tokens: Seq[int], *, most: int) -> None:
        """Refuse a text that the model cannot read, or that has more than `most` tokens; see `check_request`."""
        spec = self.parts.model.spec
        if not tokens:
            raise UsageError("the prompt must have at least one token, got none", hint="give some text")
        check_known("prompt token ids must be", tokens, spec.vocab, spec.padding)
        if len(tokens) > most:
            raise too_long(len(tokens), self.context, spec.context)

    def step(self) -> list[Event]:
        """Play one round; see `engine/step.py`. Requests whose time is over end before it; without any it is empty."""
        self._expire()
        self.parts.scheduler.admit()
        played = [] if self.is_idle else step(self.parts)
        owed = list(self.parts.owed)
        self.parts.owed.clear()
        return [*owed, *played]

    def _expire(self) -> None:
        now = self.parts.clock()
        for sequence in [one for one in self.parts.scheduler.sequences if one.deadline <= now]:
            end(self.parts, sequence)
            self.parts.owed.append(Event(sequence.id, (), "", finish_reason="deadline"))

    def run(self) -> Iterator[Event]:
        """Yield events until every request has ended."""
        while not self.is_idle or self.parts.owed:
            yield from self.step()
        self.cache.check()

    def has(self, request: int) -> bool:
        """Whether a request was added and has not ended."""
        return self.parts.scheduler.find(request) is not None

    def cancel(self, request: int) -> Event | None:
        """End a request, release its pages and drafts, and return its last event; nothing happens if it has ended."""
        sequence = self.parts.scheduler.find(request)
        if sequence is None:
            return None
        end(self.parts, sequence)
        return Event(request, (), "", finish_reason="cancelled")

    def fail(self, error: BaseException) -> list[Event]:
        """End the running requests after a failed round, which may be half played; return their last events.

        Waiting requests go on, unless none was running: then they fail.
        """
        events = list(self.parts.owed)
        self.parts.owed.clear()
        running = self.parts.scheduler.running or self.parts.scheduler.sequences
        for sequence in running:
            with contextlib.suppress(Exception):  # a drafter that failed may fail again
                end(self.parts, sequence)
            events.append(Event(sequence.id, (), "", finish_reason="error", error=reply_error(error)))
        return events

    @contextlib.contextmanager
    def playing(self, parts: Parts) -> Iterator[None]:
        """While entered, play rounds with other parts, such as another drafter on the same model and cache."""
        before, self.parts = self.parts, parts
        try:
            yield
        finally:
            self.parts = before

    @property
    def is_idle(self) -> bool:
        return self.parts.scheduler.is_idle


def suit(model: Model, drafter: Drafter, verifier: Verifier) -> None:
    """Refuse what a model's backend cannot do.

    Raises:
        UsageError: the drafter taps layers, or the verifier draws trees, and the backend supports neither.
    """
    layers = model.spec.layers if model.capabilities.taps else 0
    if wrong := [layer for layer in drafter.taps if not 0 <= layer < layers]:
        which = f"layers from 0 to {layers - 1}" if layers else "no layer of this model"
        raise UsageError(
            f"drafter `{','.join(drafter.sources)}` may tap {which}, got `{wrong[0]}`",
            hint="--draft auto needs no taps",
        )
    if verifier.draws in ("tree", "greedy_tree") and not model.capabilities.trees:
        raise UsageError(
            f"`{type(verifier).__name__}` draws trees, and this model reads chains only", hint="--verify coupled"
        )
