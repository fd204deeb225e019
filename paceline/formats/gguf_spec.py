"""A decoder's numbers from a GGUF file's metadata."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, Protocol

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.families import ARCHITECTURES, Family
from paceline.formats.numbers import Numbers
from paceline.formats.rope import Rope, longrope_factor
from paceline.formats.spec import (
    ModelSpec,
    checked,
    head_length,
    local_layers,
    reach,
    rope_tables,
    scaled,
    unknown_family,
)
from paceline.kernels.dequantize import dequantize
from paceline.kernels.tensor import Tensor

_SCALINGS = ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")


class Source(Protocol):
    """What `spec_from_gguf` needs of a file."""

    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> dict[str, object]: ...
    @property
    def tensors(self) -> dict[str, Tensor]: ...


def spec_from_gguf(file: Source) -> ModelSpec:
    """Read and check a GGUF file's numbers. Raises UnsupportedModel, ModelFileError."""
    name = file.metadata.get("general.architecture")
    if name is None:
        raise ModelFileError(f"{file.path}: wanted the key `general.architecture`; it is missing")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise unknown_family(file.path, name)
    family = ARCHITECTURES[name]
    n = Numbers(file.metadata, str(file.path), prefix=f"{name}.")
    if n.integer("expert_count", 0, least=0, most=1 << 16):
        raise UnsupportedModel(f"{file.path}: wanted a dense model; got one with experts (`{name}.expert_count`)")
    layers, heads = n.layers("block_count"), n.integer("attention.head_count", most=1 << 12)
    width = n.integer("embedding_length", most=1 << 17)
    head_dim = head_length(n, "attention.key_length", width, heads)
    if n.integer("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel(f"{file.path}: wanted keys and values of one length; got {head_dim} and another")
    rows = file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else None
    with_rope = [family.no_rope != "said" or (layer + 1) % 4 != 0 for layer in range(layers)]
    window = 0 if family.windows == "never" else n.integer("attention.sliding_window", 0, least=0)
    local = local_layers(family, n, layers, with_rope) if window else [False] * layers
    windows = tuple(window if here else 0 for here in local)
    rope = _rope(file, n, family, head_dim)
    ropes = [rope]
    if family.local_rope:
        base = 10_000.0 if family.local_rope == "own" else rope.base
        ropes.append(Rope(n.real("rope.freq_base_swa", base), rope.dimensions))
    # Both 27B divide by width / heads instead of the head's length; nothing in the file says so.
    queried = width / heads if (name, layers) in (("gemma2", 46), ("gemma3", 62)) else head_dim
    spec = ModelSpec(
        architecture=name,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=n.integer("attention.head_count_kv", heads, most=1 << 12),
        head_dim=head_dim,
        ffn_width=n.integer("feed_forward_length", most=1 << 20),
        vocab=n.integer("vocab_size", rows, most=1 << 24) if rows is None else rows,
        context=reach(n.integer("context_length", most=1 << 31), rope),
        norm_eps=n.real("attention.layer_norm_rms_epsilon", least=0.0, most=1.0),
        activation="gelu_tanh" if family.gemma else "silu",
        rope_interleaved=family.interleaved or family.permuted,
        windows=windows,
        rope_tables=rope_tables(family, windows, with_rope),
        ropes=tuple(ropes),
        attention_scale=n.real("attention.scale", queried**-0.5, least=0.0),
        attention_softcap=n.real("attn_logit_softcapping", 50.0, least=0.0) if family.softcaps else 0.0,
        final_softcap=n.real("final_logit_softcapping", 30.0 if family.softcaps else 0.0, least=0.0),
        embed_scale=math.sqrt(width) if family.gemma else 1.0,
        qkv_bias=family.qkv_bias or _has(file, "attn_q.bias", "attn_qkv.bias"),
        qk_norm=_qk_norm(file, family, head_dim),
        pre_norms=family.norms != "behind",
        post_norms=family.norms != "before"
        or (_has(file, "post_attention_norm.weight") and _has(file, "ffn_norm.weight")),
        query_growth=n.real("attention.temperature_scale", 0.0, least=0.0) if family.query_growth else 0.0,
        query_period=max(rope.original_context, 1),
        tied="output.weight" not in file.tensors,
    )
    return checked(scaled(spec, n, _SCALINGS) if family.scalings else spec, n.where)


def _has(file: Source, *names: str) -> bool:
    return any(f"blk.0.{name}" in file.tensors for name in names)


def _qk_norm(file: Source, family: Family, head_dim: int) -> Literal["", "head", "row"]:
    """Return what the file norms: a weight as long as a head is for each head."""
    weight = file.tensors.get("blk.0.attn_q_norm.weight")
    if weight is None or family.qk_norm:
        return family.qk_norm
    return "head" if weight.shape == (head_dim,) else "row"


def _rope(file: Source, n: Numbers, family: Family, head_dim: int) -> Rope:
    base = n.real("rope.freq_base", 1e6 if n.prefix == "gemma3." else 10_000.0)
    dimensions = n.integer("rope.dimension_count", head_dim, most=head_dim)
    old = n.real("rope.scale_linear", 1.0, least=1e-6)
    factor = n.real("rope.scaling.factor", old, least=1e-6)
    kind = n.get("rope.scaling.type") or ("linear" if factor != 1.0 else "none")
    if "rope_factors_long.weight" in file.tensors:
        return _longrope(file, n, base, dimensions)
    divisors = _divisors(file, "rope_freqs.weight", dimensions) if "rope_freqs.weight" in file.tensors else ()
    if kind == "none":
        return Rope(base, dimensions, divisors=divisors)
    if kind == "linear":
        return Rope(base, dimensions, "linear", factor, divisors=divisors)
    if kind != "yarn":
        raise UnsupportedModel(f"{file.path}: wanted RoPE scaling none, linear or yarn; got `{kind}`")
    # `yarn_attn_factor` is the whole factor, as configs have it; `attn_factor` comes on top of YaRN's own.
    own = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    attention = n.real(
        "rope.scaling.yarn_attn_factor", n.real("rope.scaling.attn_factor", 1.0, least=0.0) * own, least=0.0
    )
    return Rope(
        base,
        dimensions,
        "yarn",
        factor,
        n.integer("rope.scaling.original_context_length", n.integer("context_length")),
        n.real("rope.scaling.yarn_beta_fast", 32.0),
        n.real("rope.scaling.yarn_beta_slow", 1.0),
        1.0 if family.query_growth else attention,
        divisors=divisors,
    )


def _longrope(file: Source, n: Numbers, base: float, dimensions: int) -> Rope:
    """Read the two sets of divisors, for texts within the original context and for longer ones."""
    short, long = (_divisors(file, f"rope_factors_{name}.weight", dimensions) for name in ("short", "long"))
    context = n.integer("context_length", most=1 << 31)
    original = n.integer("rope.scaling.original_context_length", context, most=1 << 31)
    own = longrope_factor(context / original, original)
    attention = n.real("rope.scaling.attn_factor", own, least=0.0)
    return Rope(
        base,
        dimensions,
        "longrope",
        original_context=original,
        attention_factor=attention,
        divisors=short,
        long_divisors=long,
    )


def _divisors(file: Source, name: str, dimensions: int) -> tuple[float, ...]:
    table = file.tensors.get(name)
    shape = None if table is None else table.shape
    if table is None or shape != (dimensions // 2,):
        raise ModelFileError(f"{file.path}: wanted the shape ({dimensions // 2},) for `{name}`; got {shape}")
    divisors = tuple(dequantize(table).tolist())
    if not all(0 < divisor < math.inf for divisor in divisors):
        raise ModelFileError(f"{file.path}: wanted positive numbers in `{name}`; got {min(divisors)}")
    return divisors
