"""One request while it runs: its committed tokens, its text so far, and when it must end."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from paceline.core.aliases import Ints
from paceline.core.request import FinishReason, SamplingParams, Speculation, View
from paceline.engine.logit_edits import edits_of
from paceline.text.grammar import mask_of
from paceline.text.stream import IncrementalDecoder, StopMatcher
from paceline.text.tokenizer import Tokenizer

FREE = Speculation()  # the engine decides
WAITING = -1  # the cache handle of a sequence that holds nothing yet


@dataclass(frozen=True, slots=True)
class Request:
    """A caller's request: token ids, how to draw the reply, what it is expected to be, and how to speculate.

    `cache_salt`: what it leaves in the caches is found by requests of the same salt only. `priority`: the least runs
    first, and takes the place of others where there is none; of equals, the first come. `deadline`: the second of the
    engine's clock at which the reply ends with what it has.
    """

    id: int
    prompt: Seq[int]
    params: SamplingParams
    prediction: Seq[int] | None = None
    speculation: Speculation = FREE
    cache_salt: bytes = b""
    priority: int = 0
    deadline: float = math.inf


class Sequence:
    """The one owner of a request's tokens.

    `cache` is its handle in the target's cache while it runs; `has_played` tells whether it had rows yet; `turn` is its
    place where sequences take turns, the least first; `rank` its place in the line, by priority and arrival. `entered`
    and `spoke` are the rounds in which it last began to run and first had nothing but its last token to read.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, context: int) -> None:
        self.id, self.params, self.cache = request.id, request.params, WAITING
        self.speculation, self.cache_salt = request.speculation, request.cache_salt
        self.rank = request.priority, 0  # the least comes first; its arrival is told by the scheduler
        self.deadline = request.deadline
        self.cached: int | None = None  # tokens of the prompt that were in the cache when it began
        self.has_played, self.turn = False, 0
        self.entered, self.spoke = 0, math.inf
        self.prompt_length = len(request.prompt)
        self.limit = min(self.prompt_length + request.params.max_tokens, context)
        self.finish_reason: FinishReason | None = None
        self.is_cut = False  # the text ends inside a character, shown as U+FFFD
        self._tokens = np.empty(self.limit, np.int32)
        self._tokens[: self.prompt_length] = request.prompt
        self._shown = np.frombuffer(self._tokens.data.toreadonly(), np.int32)  # read-only for good, unlike a flag
        self._length = self.prompt_length
        self._ends = frozenset() if request.params.ignore_eos else tokenizer.eos_ids
        self._prediction = None if request.prediction is None else np.asarray(request.prediction, np.int32)
        self._edits = edits_of(request.params, tokenizer)
        self._grammar = None if request.params.grammar is None else mask_of(request.params.grammar, tokenizer)
        self._decoder = IncrementalDecoder(
            tokenizer, show_special=not request.params.skip_special_tokens, at_start=False
        )
        self._stops = StopMatcher(request.params.stop)

    def __len__(self) -> int:
        return self._length

    @property
    def tokens(self) -> Ints:
        """int32 [n], a read-only view: prompt and output, the last committed token included."""
        return self._shown[: self._length]

    @property
    def output(self) -> list[int]:
        return [int(token) for token in self._tokens[self.prompt_length : self._length]]

    @property
    def room(self) -> int:
        """How many more tokens may be committed."""
        return self.limit - self._length

    def view(self) -> View:
        return View(
            self.id,
            self.tokens,
            self.params,
            self.prompt_length,
            self._ends,
            self._prediction,
            self._edits,
            self._grammar,
            self.cache_salt,
        )

    def append(self, tokens: Seq[int]) -> tuple[int, str]:
        """Commit tokens one by one until the sequence ends; return how many were kept and the text they release.

        A token that fails is not committed. Behind others it is left to the next round, where it comes first as in
        plain decoding; only there the error is raised.
        """
        text = ""
        for count, token in enumerate(tokens, 1):
            try:
                text += self._take(token)
            except Exception:
                if count == 1:
                    raise
                return count - 1, text
            if self.finish_reason:
                return count, text
        return len(tokens), text

    def _take(self, token: int) -> str:
        """Commit a token and return the text it releases; at the end of the sequence, all that was held back."""
        is_end, can_stop = token in self._ends, self._length + 1 - self.prompt_length > self.params.min_tokens
        released, hit = self._stops.push("" if is_end else self._decoder.push(token), counts=can_stop)
        self._tokens[self._length] = token
        self._length += 1
        self.finish_reason = "stop" if is_end or hit else "length" if self.room == 0 else None
        return released if hit or not self.finish_reason else released + self._rest(can_stop)

    def _rest(self, can_stop: bool) -> str:
        self.is_cut = self._decoder.incomplete
        released, hit = self._stops.push(self._decoder.flush(), counts=can_stop)
        if hit:
            self.finish_reason, self.is_cut = "stop", False
        return released if hit else released + self._stops.flush()
