"""What a model is to everything above it, and what its backend declares that it can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from paceline.core.aliases import Ints
from paceline.core.batch import Batch, Forward
from paceline.formats.spec import ModelSpec
from paceline.model.cache import PagedCache
from paceline.model.decoder import DecoderWeights


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do beyond the least that `Model` asks for; it is asked for here, never by a class.

    `row_independent`: a row's logits are the same bits whatever else is in the batch, so a seed repeats a reply.
    `trees`: a sequence may be extended by a tree that branches; without, by chains only.
    `taps`: a forward brings the hidden states of layers.
    `native_loop`: the model is a `PackedModel`.
    """

    row_independent: bool = False
    trees: bool = False
    taps: bool = False
    native_loop: bool = False


class Model(Protocol):
    """Tokens in trees to logits. Knows nothing of drafts: a tree is a tree."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def page_bytes(self) -> int:
        """What one page of a cache takes, `PAGE` tokens with all their layers."""

    def new_cache(self, tokens: int) -> PagedCache:
        """Make a cache with room for `tokens` tokens."""

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        """Extend every sequence of the batch by its tree and return the wanted rows' logits.

        Keys and values of the whole tree are written behind the committed ones; `cache.commit` keeps a path of them.
        """


class PackedModel(Model, Protocol):
    """A model whose weights are packed for this machine's kernels: they can be weighed, cut and looped over."""

    weights: DecoderWeights
    weight_bytes: int

    @property
    def threads(self) -> int:
        """How many threads a forward runs on."""

    def loop(self, ids: Ints | None = None) -> Any:
        """Return the native loop that lets chains go on by themselves; see native/draft.cpp."""

    def with_outputs(self, ids: Ints) -> PackedModel:
        """Return this model with the outputs of the tokens `ids`, int32 [rows], only."""

    def first_layers(self, count: int) -> PackedModel:
        """Return the model of the first `count` layers under the same norm and head."""

    def layer_bits(self) -> float:
        """Return how many bits a weight of the layers' matrices takes, scales included."""

    def products(self) -> int:
        """Return the products of one token in the layers' and the head's matrices."""

    def floor_seconds(self, most: int, repeats: int = 3, limit: float = 0.1) -> float:
        """Return the least seconds to read the weights once, in proportion to reading at most `most` bytes."""

    def kv_bytes(self, tokens: int) -> int:
        """Return how many bytes of keys and values a decode step reads behind `tokens` tokens."""


def packed(model: Model) -> PackedModel | None:
    """Return the model as a packed one if it declares to be one, else `None`."""
    return cast("PackedModel", model) if model.capabilities.native_loop else None
