"""The frozen values that cross folder borders.

Only numpy is known here: no model, no cache, no tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from paceline.errors import PacelineError

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Probabilities = npt.NDArray[np.float64]
FinishReason = Literal["stop", "length", "error", "cancelled"]
Draws = Literal["shared", "chain", "tree", "greedy_tree"]
"""How a verifier wants guesses drawn: with the target's own noise, or with chance of their own and their distributions kept: a
chain, siblings without replacement, or the likeliest siblings and one drawn from the rest."""


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Tokens hanging below the last committed token, which is node 0.

    `tokens` int32 [N]; `parents` int32 [N], `-1` for the root, else a smaller index (topological order).
    """

    tokens: Ints
    parents: Ints

    @staticmethod
    def chain(tokens: list[int] | Ints) -> TokenTree:
        """Build the tree in which every token follows the one before it."""
        return TokenTree(np.asarray(tokens, np.int32), np.arange(-1, len(tokens) - 1, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.tokens)

    def depths(self) -> list[int]:
        """Return the number of edges between the root and each node."""
        depths = [0]
        for parent in self.parents[1:].tolist():
            depths.append(depths[parent] + 1)
        return depths

    def children(self, node: int) -> list[int]:
        """Return the indices of the nodes whose parent is `node`, in order."""
        return [int(child) for child in np.flatnonzero(self.parents == node)]

    def path(self, node: int) -> list[int]:
        """Return the nodes from just below the root down to `node`; empty for the root."""
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = int(self.parents[node])
        return path[::-1]

    def follow(self, tokens: Sequence[int] | Ints) -> list[int]:
        """Return the nodes met when walking down by these tokens, the first child of each name, root excluded."""
        node, path = 0, list[int]()
        for token in tokens:
            child = next((c for c in self.children(node) if self.tokens[c] == token), None)
            if child is None:
                break
            path.append(child)
            node = child
        return path


@dataclass(frozen=True, slots=True)
class Floor:
    """The confidence, 0 to 1, that a draft model needs to make a guess and go on.

    It is the model's probability of the guess; `by_entropy`, 1 - sqrt(0.2 H) with the entropy H of its distribution in nats
    (AdaEDL 2410.18351).
    """

    least: float
    by_entropy: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """How much to draft for one sequence this round; `nodes == 0` means do not draft.

    Prices are in tokens: what else the same time would have brought. `price` float64 [nodes + 1] is that of verifying
    so many nodes, 0 first; `None` asks for all of them. `step` is the price of one step of a source that takes time,
    `plain` that of a round without guesses; 0 if unknown. Under a `floor` draft models stop by that instead; it is
    the same for all sequences of a round.
    """

    nodes: int
    depth: int
    price: Probabilities | None = None
    step: Mapping[str, float] = field(default_factory=dict)
    plain: float = 0.0
    floor: Floor | None = None

    def scaled(self, factor: float) -> Budget:
        """Return it with other prices."""
        price = None if self.price is None else factor * self.price
        step = {name: factor * price for name, price in self.step.items()}
        return Budget(self.nodes, self.depth, price, step, factor * self.plain, self.floor)


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter's guess for one sequence.

    `acceptance_prob` float32 [N] is the drafter's own estimate that each node is accepted given its parent;
    `source` int8 [N] names the source of each (an index into the drafter's `sources`); the root's entries are unused.
    `distributions` float64 [V] by node: the draft distribution that node's drawn children were drawn from, without replacement, in order;
    `drawn` bool [N] tells them from children that are a function of the text. Verifiers that want own draws read both.
    """

    tree: TokenTree
    acceptance_prob: Floats
    source: npt.NDArray[np.int8]
    distributions: Mapping[int, Probabilities] = field(default_factory=dict)
    drawn: npt.NDArray[np.bool_] | None = None

    @property
    def drafted(self) -> int:
        """Number of guessed tokens, the root excluded."""
        return len(self.tree) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification kept: the accepted nodes from the root down (root excluded) and the target's bonus token."""

    nodes: tuple[int, ...]
    bonus: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of the tree that was verified: the nodes accepted, and what was committed.

    `tokens` int32 [k]: the accepted ones and the target's own last, fewer if a stop cut them. `logits` float32 [N, V]
    after each node, the model's own memory: read them before the next forward. `taps` float32 [N, D] by layer: the
    hidden states of each node that the layer put out, where the drafter asks for them; the model's own memory too.
    """

    tree: TokenTree
    nodes: tuple[int, ...]
    tokens: Ints
    logits: Floats
    taps: Mapping[int, Floats] = field(default_factory=dict)


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
class SamplingParams:
    """What the user asks of each token; the same names as everywhere in the field.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `typical_p` 1 and `min_p` 0 are off. `seed` keys every draw
    together with the token's absolute position, so the same request repeats at any batch size and with any drafter.

    `repetition_penalty` divides (if negative, multiplies) the logits of tokens in prompt or output; `presence_penalty`
    is taken once from those in the output, `frequency_penalty` once for each time. `logit_bias` is added by token id.
    `bad_words` are never written, as the tokenizer writes them with or without a space before; `allowed_tokens` are the
    only ones. Until `min_tokens` nothing ends the reply. `logits_processors` change the logits last; they must be
    functions of what they are given. `logprobs` asks for each token's log probability and that many alternatives.
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

    def __post_init__(self) -> None:
        """Keep what was given as tuples, so that it cannot change afterwards, and numpy's numbers as Python's."""
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
class View:
    """What drafters and verifiers may see of a sequence: its committed tokens and how the next ones are drawn."""

    id: int
    tokens: Ints  # int32 [n], prompt and output, the last committed token included; read only
    params: SamplingParams
    prompt_length: int = 0
    ends: frozenset[int] = frozenset()  # tokens that end the reply
    prediction: Ints | None = None  # what the user expects the output to be
    edits: Edits | None = None  # `None`: those of `params`, with no bad words


@dataclass(frozen=True, slots=True)
class Batch:
    """B sequences, each extended by a tree, laid flat over T tokens.

    `tokens`, `positions`, `parents` int32 [T] (parents count within their own tree); `starts` int32 [B+1];
    `wanted` int32 [W] flat rows whose logits are returned; `tables` int32 [B, P] page of each block of each
    sequence; `lengths` int32 [B] committed tokens already in the cache.
    """

    tokens: Ints
    positions: Ints
    parents: Ints
    starts: Ints
    wanted: Ints
    tables: Ints
    lengths: Ints


class Logits(np.ndarray[Any, np.dtype[np.float32]]):
    """float32 [n, V], and `peaks` int32 [n, V / 64]: the largest of each block of 64 of a row, as native/row.h has it.

    Rows taken with `part` keep theirs; any other view or copy is without, and a draw from it looks for itself.
    """

    peaks: Ints | None = None

    @staticmethod
    def of(values: Floats, peaks: Ints | None) -> Logits:
        logits = values.view(Logits)
        logits.peaks = peaks
        return logits

    def part(self, rows: slice) -> Logits:
        return Logits.of(self[rows], None if self.peaks is None else self.peaks[rows])


@dataclass(frozen=True, slots=True)
class Forward:
    """Logits float32 [W, V] of the wanted rows, owned by the model and valid until its next forward.

    `taps` float32 [T, D] per requested layer: the hidden states that layer put out.
    """

    logits: Floats
    taps: Mapping[int, Floats] = field(default_factory=dict)


LAG = 8  # tokens of a text that a draft step takes along, one of them its own


@dataclass(frozen=True, slots=True)
class Spent:
    """What a source's guesses of one round took: `steps` one after the other, in `seconds`.

    `read`: tokens it had missed and had to read first, in the same seconds, where that is more than a step takes along.
    """

    steps: int
    seconds: float
    read: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one sequence as the controller, metrics and benchmarks see it.

    The seconds are the round's, divided by the sequences that shared it.
    """

    drafted: tuple[int, ...]  # nodes guessed at each depth, depth 1 first
    accepted: tuple[int, ...]  # nodes kept at each depth
    by_source: Mapping[str, tuple[int, int]]  # name -> (drafted, accepted)
    committed: int  # tokens added, the bonus included
    censored: bool  # the round was cut by a stop or a limit, so its tail says nothing of acceptance
    rows: int  # tokens the target's forward had, all sequences together
    spent: Mapping[str, Spent]  # by source that takes time
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    # By source and depth, 0 or 1: whether it had guesses below what was accepted so far, and whether one was kept.
    by_source_depth: Mapping[str, tuple[list[int], list[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural log probabilities of one emitted token under the model's own distribution: softmax of the logits as they came,
    before any setting changed them. `top` holds (id, log probability) of the likeliest tokens, best first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """What a round made known about one request; exactly one event of a request has a finish reason.

    `logprobs` has one entry per token if they were asked for. `is_cut`: the text ends inside a character, shown as
    U+FFFD. `error` comes with the finish reason "error"; "cancelled" is that of a request ended from outside.
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


@dataclass(frozen=True, slots=True)
class Load:
    """What the controller may know of the engine's load.

    `unread`: tokens of each text that sources with models of their own would have to read before they guess, by source.
    """

    running: int
    waiting: int
    unread: Mapping[str, Sequence[int]] = field(default_factory=dict)


Json = dict[str, Any]
