"""A decoder's numbers from a Hugging Face `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.defaults import DEFAULTS
from paceline.formats.families import MODEL_TYPES, Family
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

_ACTIVATIONS: dict[object, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_SCALINGS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")


def spec_from_config(config: Mapping[str, object], where: str = "config.json") -> ModelSpec:
    """Read and check a Hugging Face config's numbers. Raises UnsupportedModel, ModelFileError."""
    config = language_half(config)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise unknown_family(where, kind)
    family = MODEL_TYPES[kind]
    n = Numbers(DEFAULTS[kind] | dict(config), where)
    if n.flag("use_bidirectional_attention", False):
        raise UnsupportedModel(
            f"{where}: wanted a model that looks back only; got one that looks both ways, as for search"
        )
    layers, heads = n.layers("num_hidden_layers"), n.integer("num_attention_heads", most=1 << 12)
    width = n.integer("hidden_size", most=1 << 17)
    head_dim = head_length(n, "head_dim", width, heads)
    # The first Gemma's own files say `gelu` and mean the other one.
    asked = n.get("hidden_activation") or ("gelu_pytorch_tanh" if family.gemma else n.get("hidden_act"))
    if not isinstance(asked, str) or asked not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"{where}: wanted one of the activations {', '.join(map(str, _ACTIVATIONS))}; got {asked}"
        )
    with_rope = _with_rope(n, layers) if family.no_rope == "said" else [True] * layers
    windows = _windows(n, family, layers, with_rope)
    rope = _rope(n, "full_attention", n.real("rope_theta"), head_dim)
    ropes = [rope]
    if family.local_rope:
        base = n.real("rope_local_base_freq" if family.local_rope == "own" else "rope_theta")
        ropes.append(_rope(n, "sliding_attention", base, head_dim))
    spec = ModelSpec(
        architecture=family.name,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=n.integer("num_key_value_heads", heads, most=1 << 12),
        head_dim=head_dim,
        ffn_width=n.integer("intermediate_size", most=1 << 20),
        vocab=n.integer("vocab_size", most=1 << 24),
        context=reach(n.integer("max_position_embeddings", most=1 << 31), rope),
        norm_eps=n.real("rms_norm_eps", least=0.0, most=1.0),
        activation=_ACTIVATIONS[asked],
        rope_interleaved=family.interleaved,
        windows=windows,
        rope_tables=rope_tables(family, windows, with_rope),
        ropes=tuple(ropes),
        attention_scale=n.real("query_pre_attn_scalar", head_dim) ** -0.5 if family.gemma else head_dim**-0.5,
        attention_softcap=n.real("attn_logit_softcapping", 0.0, least=0.0) if family.softcaps else 0.0,
        final_softcap=n.real("final_logit_softcapping", 0.0, least=0.0) if family.gemma else 0.0,
        embed_scale=math.sqrt(width) if family.gemma else 1.0,
        norm_offset=1.0 if family.gemma else 0.0,
        qkv_bias=family.qkv_bias or n.flag("attention_bias", False),
        qk_norm=family.qk_norm,
        pre_norms=family.norms != "behind",
        post_norms=family.norms != "before",
        query_growth=_scaling(n).real("llama_4_scaling_beta", 0.0, least=0.0) if family.query_growth else 0.0,
        query_period=max(rope.original_context, 1),
        tied=n.flag("tie_word_embeddings", False),
    )
    return checked(scaled(spec, n, _SCALINGS) if family.scalings else spec, where)


def language_half(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the config of the model that reads text, where another one sees for it."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        return config
    tied = config.get("tie_word_embeddings")
    outer = {} if tied is None else {"tie_word_embeddings": tied}
    return {"model_type": "gemma3_text", **outer, **text}


def _with_rope(n: Numbers, layers: int) -> list[bool]:
    """Say which layers of SmolLM 3 have RoPE."""
    every = n.integer("no_rope_layer_interval")
    said = n.flags("no_rope_layers", layers)
    return said if said is not None else [(layer + 1) % every != 0 for layer in range(layers)]


def _windows(n: Numbers, family: Family, layers: int, with_rope: Sequence[bool]) -> tuple[int, ...]:
    """Return each layer's window."""
    window = n.integer("sliding_window", 0, least=0)
    is_on = family.windows == "given" or (family.windows == "asked" and n.flag("use_sliding_window", False))
    if not window or not is_on:
        return (0,) * layers
    kinds = n.get("layer_types")
    if not isinstance(kinds, list) or not family.lists_layers:
        return tuple(window if here else 0 for here in local_layers(family, n, layers, with_rope))
    unknown = [one for one in kinds if one not in ("sliding_attention", "full_attention")]
    if unknown or len(kinds) != layers:
        raise ModelFileError(f"{n.where}: wanted {layers} known `layer_types`; got {len(kinds)}, {unknown[:1]}")
    return tuple(window if one == "sliding_attention" else 0 for one in kinds)


def _scaling(n: Numbers, layers: str = "full_attention") -> Numbers:
    """Read `rope_scaling`, or transformers 5's `rope_parameters`, which may differ by the type of layer."""
    raw = n.get("rope_parameters") or n.get("rope_scaling") or {}
    nested = isinstance(raw, Mapping) and isinstance(raw.get(layers), Mapping)
    if nested and isinstance(raw, Mapping):
        raw = raw[layers]
    elif layers == "sliding_attention":
        raw = {}  # scaling is for the global layers only
    if not isinstance(raw, Mapping):
        raise ModelFileError(f"{n.where}: wanted a table for `rope_scaling`; got {raw!r:.80}")
    return Numbers(raw, n.where, "", "rope_scaling.")


def _rope(n: Numbers, layers: str, base: float, head_dim: int) -> Rope:
    s = _scaling(n, layers)
    base = s.real("rope_theta", base)
    dimensions = int(head_dim * s.real("partial_rotary_factor", n.real("partial_rotary_factor", 1.0), most=1.0))
    kind = s.get("rope_type") or s.get("type") or "default"
    if kind in ("default", "mrope"):  # the axes of a picture's positions are one in a text
        return Rope(base, dimensions)
    original = s.integer(
        "original_max_position_embeddings",
        n.integer("original_max_position_embeddings", n.integer("max_position_embeddings")),
    )
    if kind in ("longrope", "su") or s.get("long_factor") is not None:
        return _longrope(n, s, base, dimensions, original)
    factor = s.real("factor", least=1e-6)
    if kind == "linear":
        return Rope(base, dimensions, "linear", factor)
    if kind == "llama3":
        low, high = s.real("low_freq_factor"), s.real("high_freq_factor")
        if high <= low:
            raise ModelFileError(f"{n.where}: wanted `high_freq_factor` above `low_freq_factor`; got {high} and {low}")
        return Rope(base, dimensions, "llama3", factor, original, low_frequency_factor=low, high_frequency_factor=high)
    if kind == "yarn":
        if s.get("truncate") is False:
            raise UnsupportedModel(f"{n.where}: wanted YaRN with `truncate`; got one without")
        fast, slow = s.real("beta_fast", 32.0), s.real("beta_slow", 1.0)
        return Rope(base, dimensions, "yarn", factor, original, fast, slow, _yarn_attention(s, factor))
    raise UnsupportedModel(f"{n.where}: wanted RoPE scaling default, linear, yarn, longrope or llama3; got `{kind}`")


def _yarn_attention(s: Numbers, factor: float) -> float | None:
    """Return what cosine and sine are multiplied by, `None` for YaRN's own."""
    if s.get("attention_factor") is not None:
        return s.real("attention_factor")
    one, other = s.get("mscale"), s.get("mscale_all_dim")
    if not one or not other:
        return None
    grown = [0.1 * s.real(key) * math.log(max(factor, 1.0)) + 1.0 for key in ("mscale", "mscale_all_dim")]
    return grown[0] / grown[1]


def _longrope(n: Numbers, s: Numbers, base: float, dimensions: int, original: int) -> Rope:
    """Read the two sets of divisors, for texts within the original context and for longer ones."""
    longest = n.integer("max_position_embeddings", most=1 << 31)
    sets = []
    for key in ("short_factor", "long_factor"):
        said = s.get(key)
        if not isinstance(said, list) or len(said) != dimensions // 2 or not all(map(_is_positive, said)):
            raise ModelFileError(f"{n.where}: wanted {dimensions // 2} positive numbers for `rope_scaling.{key}`")
        sets.append(tuple(map(float, said)))
    factor = s.real("factor", longest / original)
    return Rope(
        base,
        dimensions,
        "longrope",
        original_context=original,
        attention_factor=s.real("attention_factor", longrope_factor(factor, original)),
        divisors=sets[0],
        long_divisors=sets[1],
    )


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
