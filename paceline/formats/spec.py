"""The numbers that describe an architecture, checked, whatever file they come from. Knows no weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.families import ARCHITECTURES, MODEL_TYPES, Family
from paceline.formats.numbers import Numbers
from paceline.formats.rope import Rope


@dataclass(frozen=True)
class ModelSpec:
    """Describe a decoder. `windows` and `rope_tables` have one entry a layer.

    A window of 0 is full attention; a table of -1 is no RoPE, others index `ropes`. `rope_interleaved`: pairs are
    (0, 1), (2, 3), … instead of (0, n/2), (1, n/2 + 1), …. `norm_offset` is to be added to every norm's weight.
    `qk_norm`: queries and keys are normed by head or as a whole row. `query_growth`: a query at position p is
    multiplied by 1 + growth · ln(1 + ⌊p / query_period⌋). `logit_scale` multiplies the logits.
    `padding`: ids, ascending, that no token has; their logits are -inf.
    """

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    vocab: int
    context: int
    norm_eps: float
    activation: Literal["silu", "gelu_tanh"]
    rope_interleaved: bool
    windows: tuple[int, ...]
    rope_tables: tuple[int, ...]
    ropes: tuple[Rope, ...]
    attention_scale: float
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    embed_scale: float = 1.0
    norm_offset: float = 0.0
    qkv_bias: bool = False
    qk_norm: Literal["", "head", "row"] = ""
    pre_norms: bool = True
    post_norms: bool = False
    query_growth: float = 0.0
    query_period: int = 1
    logit_scale: float = 1.0
    tied: bool = False
    padding: tuple[int, ...] = ()

    @property
    def plain_reach(self) -> int:
        """How many tokens the model reads without the long one of two sets of RoPE divisors."""
        return min([self.context, *(rope.original_context for rope in self.ropes if rope.long_divisors)])

    def reading(self, context: int) -> ModelSpec:
        """Return this model as it reads up to so many tokens: with one set of RoPE divisors."""
        return replace(self, ropes=tuple(rope.reading(context) for rope in self.ropes))


def local_layers(family: Family, n: Numbers, layers: int, with_rope: Sequence[bool]) -> list[bool]:
    """Say which layers see a window only, where no list does."""
    match family.local:
        case "all":
            return [True] * layers
        case "even":
            return [layer % 2 == 0 for layer in range(layers)]
        case "no rope":
            return [not used for used in with_rope]
        case "deep":
            first = n.integer("max_window_layers", least=0)
            return [layer >= first for layer in range(layers)]
    key = "attention.sliding_window_pattern" if n.prefix else "sliding_window_pattern"
    said = n.get(key)
    if isinstance(said, list):
        return [bool(flag) for flag in n.flags(key, layers) or ()]
    every = len(said) if isinstance(said, str) else n.integer(key, family.every)
    return [(layer + 1) % every != 0 for layer in range(layers)]


def rope_tables(family: Family, windows: Sequence[int], with_rope: Sequence[bool]) -> tuple[int, ...]:
    """Return which RoPE each layer has: the first, that of layers with a window, or none."""
    is_mixed = any(windows)

    def table(window: int, has_rope: bool) -> int:
        if family.local_rope:
            return 1 if window else 0
        if family.no_rope == "global":
            return 0 if window or not is_mixed else -1
        return 0 if has_rope else -1

    return tuple(map(table, windows, with_rope))


def scaled(spec: ModelSpec, n: Numbers, keys: tuple[str, str, str, str]) -> ModelSpec:
    """Return a spec with the family's multipliers, of embeddings, attention, branches and logits, by their keys.

    A multiplier of what is added to the residual stream is left out of the stream: all of it is divided by that, which
    only embeddings and the epsilon of norms notice.
    """
    embeddings, attention, branch, logits = keys
    residual = n.real(branch, 1.0)
    return replace(
        spec,
        embed_scale=n.real(embeddings, 1.0) / residual,
        attention_scale=n.real(attention, spec.attention_scale),
        norm_eps=spec.norm_eps / residual**2,
        logit_scale=1 / n.real(logits, 1.0),
    )


def head_length(n: Numbers, key: str, width: int, heads: int) -> int:
    """Return the length of a head: what the file says, or the width's share."""
    if n.get(key) is None and width % heads:
        raise ModelFileError(
            f"{n.where}: wanted a width that {heads} heads divide, or `{n.prefix}{key}`; got a width of {width}",
            hint="the file describes no possible model",
        )
    return n.integer(key, width // heads, most=1 << 10)


def reach(context: int, rope: Rope) -> int:
    """Return how many tokens a model reads: YaRN reaches further than the file may say."""
    return max(context, int(rope.original_context * rope.factor)) if rope.kind == "yarn" else context


def checked(spec: ModelSpec, where: str) -> ModelSpec:
    """Raise ModelFileError unless the numbers fit each other."""

    def want(fits: bool, wanted: str, got: object) -> None:
        if not fits:
            raise ModelFileError(f"{where}: wanted {wanted}; got {got}", hint="the file describes no possible model")

    want(spec.heads % spec.kv_heads == 0, f"heads that {spec.kv_heads} key-value heads divide", spec.heads)
    want(spec.head_dim % 2 == 0, "an even head length", spec.head_dim)
    want(math.isfinite(spec.attention_scale) and spec.attention_scale > 0, "an attention scale", spec.attention_scale)
    for rope in spec.ropes:
        want(rope.dimensions % 2 == 0 and 0 < rope.dimensions <= spec.head_dim, "even RoPE dimensions", rope.dimensions)
        want(rope.base > 1, "a RoPE base above 1", rope.base)
        want(rope.kind != "yarn" or rope.factor >= 1, "a YaRN factor of at least 1", rope.factor)
    return spec


def unknown_family(where: object, got: object) -> UnsupportedModel:
    """Make the error for a family that is not in the tables."""
    return UnsupportedModel(
        f"{where}: wanted one of the architectures {', '.join(ARCHITECTURES)} (in a folder also "
        f"{', '.join(sorted(MODEL_TYPES.keys() - ARCHITECTURES.keys()))}); got `{got}`",
        hint="mixtures of experts, hybrids and other families are not supported yet",
    )
