"""Requests: how tokens are drawn, what drafters see of a sequence, and the events that tell of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats, Ints
from paceline.core.round import Round
from paceline.core.tree import Draft
from paceline.errors import PacelineError

FinishReason = Literal["stop", "length", "error", "cancelled", "deadline"]


def _plain(value: Any) -> Any:
    """Return a setting with Python's numbers for numpy's, in tuples too."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist() if value.ndim == 0 else tuple(value.tolist()))
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(_plain, value)) if type(value) is tuple else value


Processor = Callable[[Ints, Floats], Floats]
"""Maps (token ids int32 [n] of prompt, output and path, logits float32 [V], its own to change) to logits [V]."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form that a whole reply must have.

    `text` is a JSON schema, a regular expression or a Lark grammar, by `kind`. The reply can end only where the form is
    complete, and ends where nothing can follow.
    """

    kind: Literal["json_schema", "regex", "lark"]
    text: str

    @staticmethod
    def json_schema(schema: Mapping[str, Any] | str | None = None) -> Grammar:
        """Return the form of JSON that a schema describes; any JSON object without one."""
        said = {"type": "object"} if schema is None else schema
        return Grammar("json_schema", said if isinstance(said, str) else json.dumps(said))

    @staticmethod
    def regex(pattern: str) -> Grammar:
        """Return the form that a regular expression matches from end to end; no look-around, no back references."""
        return Grammar("regex", pattern)

    @staticmethod
    def lark(grammar: str) -> Grammar:
        """Return the form of a Lark grammar's `start` rule."""
        return Grammar("lark", grammar)

    @staticmethod
    def choice(texts: Sequence[str]) -> Grammar:
        """Return the form of one of several texts."""
        return Grammar("lark", "start: " + " | ".join(json.dumps(text) for text in texts))


class GrammarMask(Protocol):
    """Which tokens a request's grammar allows behind what was written."""

    def allowed(self, written: Ints) -> npt.NDArray[np.bool_]:
        """Return bool [V] behind `written` int32 [n], the reply so far with a drafted path."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What the user asks of each token; the same names as everywhere in the field.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `typical_p` 1 and `min_p` 0 are off. `seed` keys every draw
    together with the token's absolute position, so the same request repeats at any batch size and with any drafter.

    `repetition_penalty` divides (if negative, multiplies) the logits of tokens in prompt or output; `presence_penalty`
    is taken once from those in the output, `frequency_penalty` once for each time. `logit_bias` is added by token id.
    `bad_words` are never written, as the tokenizer writes them with or without a space before; `allowed_tokens` are the
    only ones. `grammar` is the form of the whole reply. Until `min_tokens` nothing ends the reply. `logits_processors`
    change the logits last; they must be functions of what they are given. `logprobs` asks for each token's log
    probability and that many alternatives. `skip_special_tokens`: control tokens have no text in the reply.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()  # kept as pairs
    bad_words: tuple[str, ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    min_tokens: int = 0
    typical_p: float = 1.0
    logprobs: int | None = None
    logits_processors: tuple[Processor, ...] = ()
    grammar: Grammar | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Keep what was given as tuples, so that it cannot change afterwards, and numpy's numbers as Python's.

        One stop string may come by itself. A seed of `None` is drawn here, and kept.
        """
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if self.seed is None:
            object.__setattr__(self, "seed", secrets.randbits(32))
        if isinstance(self.logit_bias, Mapping):
            object.__setattr__(self, "logit_bias", tuple(self.logit_bias.items()))
        for name in ("stop", "logit_bias", "bad_words", "allowed_tokens", "logits_processors"):
            value = getattr(self, name)
            if isinstance(value, (list, set, frozenset, range)):
                object.__setattr__(self, name, tuple(value))
        for setting in fields(self):
            object.__setattr__(self, setting.name, _plain(getattr(self, setting.name)))

    @property
    def is_greedy(self) -> bool:
        return self.temperature <= 1e-5

    @property
    def is_penalised(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


class SamplingOptions(TypedDict, total=False):
    """The settings of `SamplingParams` as keywords of a call, for editors and type checkers."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    max_tokens: int
    stop: str | Sequence[str]
    ignore_eos: bool
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...]
    bad_words: Sequence[str]
    allowed_tokens: Sequence[int] | None
    min_tokens: int
    typical_p: float
    logprobs: int | None
    logits_processors: Sequence[Processor]
    grammar: Grammar | None
    skip_special_tokens: bool


@dataclass(frozen=True, slots=True)
class Edits:
    """What one request changes about every row of logits, in ids, resolved once.

    `bias_ids` int32 [b], each once, with `bias` float32 [b]; `allowed` int32 [a] or `None` for all; `banned` int32 [s]
    holds sequences whose last token may not follow the others, the i-th from `ban_starts[i]` to `ban_starts[i + 1]`.
    """

    bias_ids: Ints
    bias: Floats
    allowed: Ints | None
    banned: Ints
    ban_starts: Ints

    @staticmethod
    def of(params: SamplingParams, banned: Sequence[Sequence[int]] = ()) -> Edits:
        """Resolve what `params` ask; `banned` are the bad words' tokens."""
        pairs = dict(params.logit_bias)
        return Edits(
            np.array(list(pairs), np.int32),
            np.array(list(pairs.values()), np.float32),
            None if params.allowed_tokens is None else np.array(params.allowed_tokens, np.int32),
            np.array([token for word in banned for token in word], np.int32),
            np.cumsum([0, *map(len, banned)], dtype=np.int32),
        )

    @property
    def is_empty(self) -> bool:
        return not len(self.bias_ids) and self.allowed is None and not len(self.banned)


@dataclass(frozen=True, slots=True)
class Speculation:
    """What one request asks of speculation; it never changes the reply.

    `draft_tokens`: guesses of a round at most, 0 for none; `sources`: those that may guess. `None` leaves it to the
    engine.
    """

    draft_tokens: int | None = None
    sources: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What drafters and verifiers may see of a sequence: its committed tokens and how the next ones are drawn."""

    id: int
    tokens: Ints  # int32 [n], prompt and output, the last committed token included; read only
    params: SamplingParams
    prompt_length: int = 0
    ends: frozenset[int] = frozenset()  # tokens that end the reply
    prediction: Ints | None = None  # what the user expects the output to be
    edits: Edits | None = None  # `None`: those of `params`, with no bad words
    grammar: GrammarMask | None = None
    cache_salt: bytes = b""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural log probabilities of one emitted token under the model's own distribution: softmax of the logits as
    they came, before any setting changed them. `top` holds (id, log probability) of the likeliest tokens, best first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """What a round made known about one request; exactly one event of a request has a finish reason.

    `logprobs` has one entry per token if they were asked for. `is_cut`: the text ends inside a character, shown as
    U+FFFD. `error` comes with the finish reason "error"; "cancelled" is that of a request ended from outside,
    "deadline" that of one whose time is over. `draft` is what was guessed in the round, without its distributions,
    `nodes` what was kept of it, the root excluded. `cached`: tokens of the prompt that were in the cache when the
    request began.
    """

    request: int
    tokens: tuple[int, ...]
    text: str
    sources: tuple[str, ...] = ()  # the source of each token; "" for the target's own
    finish_reason: FinishReason | None = None
    is_cut: bool = False
    error: PacelineError | None = None
    round: Round | None = None
    logprobs: tuple[Logprobs, ...] = ()
    draft: Draft | None = field(default=None, compare=False, repr=False)
    nodes: tuple[int, ...] = ()
    cached: int = 0
