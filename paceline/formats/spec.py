"""The numbers that describe an architecture, checked, whatever file they come from.

Reads a GGUF file's metadata or a Hugging Face `config.json`. Knows no weights beyond their names and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.defaults import DEFAULTS
from paceline.formats.numbers import Numbers
from paceline.formats.rope import Rope
from paceline.kernels.dequantize import dequantize
from paceline.kernels.tensor import Tensor

# What a GGUF file may name.
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3", "smollm3", "gemma", "gemma2", "qwen2vl", "qwen3vl", "ernie4_5")
# By `model_type`; of a model that sees, the text half.
_MODEL_TYPES = {
    **{name: name for name in ("llama", "qwen2", "qwen3", "smollm3", "gemma", "gemma2", "seed_oss", "ernie4_5")},
    "mistral": "llama",
    "ministral": "llama",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    **{f"{name}{half}": "qwen2" for name in ("qwen2_vl", "qwen2_5_vl") for half in ("", "_text")},
    **{f"qwen3_vl{half}": "qwen3" for half in ("", "_text")},
}
_DEFAULTS_OF = {"gemma3": "gemma3_text"} | {kind: kind + "_text" for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")}
_WINDOWLESS = ("llama", "seed_oss", "ernie4_5", "qwen3_vl", "qwen3_vl_text")
_GEMMAS = ("gemma", "gemma2", "gemma3")
_ACTIVATIONS: dict[object, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}


@dataclass(frozen=True)
class ModelSpec:
    """Describe a decoder. `windows` and `rope_tables` have one entry a layer.

    A window of 0 is full attention; a table of -1 is no RoPE, others index `ropes`. `rope_interleaved`: pairs are
    (0, 1), (2, 3), … instead of (0, n/2), (1, n/2 + 1), …. `norm_offset` is to be added to every norm's weight.
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
    qk_norm: bool = False
    post_norms: bool = False
    tied: bool = False
    padding: tuple[int, ...] = ()


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
    family = file.metadata.get("general.architecture")
    if family is None:
        raise ModelFileError(f"{file.path}: wanted the key `general.architecture`; it is missing")
    if not isinstance(family, str) or family not in FAMILIES:
        raise _unknown(file.path, family)
    n = Numbers(file.metadata, str(file.path), prefix=f"{family}.")
    if n.integer("expert_count", 0, least=0, most=1 << 16):
        raise UnsupportedModel(f"{file.path}: wanted a dense model; got one with experts (`{family}.expert_count`)")
    layers, heads = n.layers("block_count"), n.integer("attention.head_count", most=1 << 12)
    width = n.integer("embedding_length", most=1 << 17)
    head_dim = _head_dim(n, "attention.key_length", width, heads)
    if n.integer("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel(f"{file.path}: wanted keys and values of one length; got {head_dim} and another")
    rows = file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else None
    gemma = family in _GEMMAS
    window = n.integer("attention.sliding_window", 0, least=0) if family in ("llama", "gemma2", "gemma3") else 0
    local = [family != "gemma2" or layer % 2 == 0 for layer in range(layers)]
    if family == "gemma3":
        local = _pattern(n, "attention.sliding_window_pattern", layers)
    rope = _gguf_rope(file, n, head_dim)
    ropes = [rope]
    if family == "gemma3":
        ropes.append(Rope(n.real("rope.freq_base_swa", 10_000.0), rope.dimensions))
    # Both 27B divide by width / heads instead of the head's length; nothing in the file says so.
    scaled = width / heads if (family, layers) in (("gemma2", 46), ("gemma3", 62)) else head_dim
    return _checked(
        ModelSpec(
            architecture=family,
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=n.integer("attention.head_count_kv", heads, most=1 << 12),
            head_dim=head_dim,
            ffn_width=n.integer("feed_forward_length", most=1 << 20),
            vocab=n.integer("vocab_size", rows, most=1 << 24) if rows is None else rows,
            context=_reach(n.integer("context_length", most=1 << 31), rope),
            norm_eps=n.real("attention.layer_norm_rms_epsilon", least=0.0, most=1.0),
            activation="gelu_tanh" if gemma else "silu",
            rope_interleaved=family in ("llama", "smollm3", "ernie4_5"),
            windows=tuple(window if here else 0 for here in local),
            rope_tables=tuple(_rope_table(family, layer, bool(window) and local[layer]) for layer in range(layers)),
            ropes=tuple(ropes),
            attention_scale=n.real("attention.scale", scaled**-0.5, least=0.0),
            attention_softcap=n.real("attn_logit_softcapping", 50.0, least=0.0) if family == "gemma2" else 0.0,
            final_softcap=n.real("final_logit_softcapping", 30.0 if family == "gemma2" else 0.0, least=0.0),
            embed_scale=math.sqrt(width) if gemma else 1.0,
            qkv_bias=family in ("qwen2", "qwen2vl") or "blk.0.attn_q.bias" in file.tensors,
            qk_norm=family in ("qwen3", "qwen3vl", "gemma3") or "blk.0.attn_q_norm.weight" in file.tensors,
            post_norms=family in ("gemma2", "gemma3") or "blk.0.post_attention_norm.weight" in file.tensors,
            tied="output.weight" not in file.tensors,
        ),
        n.where,
    )


def spec_from_config(config: Mapping[str, object], where: str = "config.json") -> ModelSpec:
    """Read and check a Hugging Face config's numbers. Raises UnsupportedModel, ModelFileError."""
    text = config.get("text_config")
    if isinstance(text, Mapping):  # a multimodal model: its language half
        outer = (
            {} if config.get("tie_word_embeddings") is None else {"tie_word_embeddings": config["tie_word_embeddings"]}
        )
        config = {"model_type": "gemma3_text", **outer, **text}
    kind = config.get("model_type")
    family = _MODEL_TYPES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise _unknown(where, kind)
    gemma = family in _GEMMAS
    n = Numbers(DEFAULTS[_DEFAULTS_OF.get(str(kind), str(kind))] | dict(config), where)
    if n.flag("use_bidirectional_attention", False):
        raise UnsupportedModel(
            f"{where}: wanted a model that looks back only; got one that looks both ways, as for search"
        )
    layers, heads = n.layers("num_hidden_layers"), n.integer("num_attention_heads", most=1 << 12)
    width = n.integer("hidden_size", most=1 << 17)
    head_dim = _head_dim(n, "head_dim", width, heads)
    # The first Gemma's own files say `gelu` and mean the other one.
    asked = n.get("hidden_activation") or ("gelu_pytorch_tanh" if gemma else n.get("hidden_act"))
    if not isinstance(asked, str) or asked not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"{where}: wanted one of the activations {', '.join(map(str, _ACTIVATIONS))}; got {asked}"
        )
    with_rope = _with_rope(n, layers) if family == "smollm3" else [True] * layers
    windows = _config_windows(n, str(kind), layers, with_rope)
    rope = _config_rope(n, "full_attention", n.real("rope_theta"), head_dim)
    ropes = [rope]
    if family == "gemma3":
        local = _config_rope(n, "sliding_attention", n.real("rope_local_base_freq"), head_dim)
        ropes.append(local)
    tables = [1 if family == "gemma3" and windows[layer] else 0 if with_rope[layer] else -1 for layer in range(layers)]
    return _checked(
        ModelSpec(
            architecture=family,
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=n.integer("num_key_value_heads", heads, most=1 << 12),
            head_dim=head_dim,
            ffn_width=n.integer("intermediate_size", most=1 << 20),
            vocab=n.integer("vocab_size", most=1 << 24),
            context=_reach(n.integer("max_position_embeddings", most=1 << 31), rope),
            norm_eps=n.real("rms_norm_eps", least=0.0, most=1.0),
            activation=_ACTIVATIONS[asked],
            rope_interleaved=family == "ernie4_5",
            windows=windows,
            rope_tables=tuple(tables),
            ropes=tuple(ropes),
            attention_scale=n.real("query_pre_attn_scalar", head_dim) ** -0.5 if gemma else head_dim**-0.5,
            attention_softcap=n.real("attn_logit_softcapping", 0.0, least=0.0) if family == "gemma2" else 0.0,
            final_softcap=n.real("final_logit_softcapping", 0.0, least=0.0) if gemma else 0.0,
            embed_scale=math.sqrt(width) if gemma else 1.0,
            norm_offset=1.0 if gemma else 0.0,
            qkv_bias=family == "qwen2" or n.flag("attention_bias", False),
            qk_norm=family in ("qwen3", "gemma3"),
            post_norms=family in ("gemma2", "gemma3"),
            tied=n.flag("tie_word_embeddings", False),
        ),
        where,
    )


def _head_dim(n: Numbers, key: str, width: int, heads: int) -> int:
    if n.get(key) is None and width % heads:
        raise ModelFileError(
            f"{n.where}: wanted a width that {heads} heads divide, or `{n.prefix}{key}`; got a width of {width}",
            hint="the file describes no possible model",
        )
    return n.integer(key, width // heads, most=1 << 10)


def _rope_table(family: str, layer: int, local: bool) -> int:
    if family == "gemma3":
        return 1 if local else 0
    if family == "smollm3" and (layer + 1) % 4 == 0:
        return -1
    return 0


def _with_rope(n: Numbers, layers: int) -> list[bool]:
    """Say which layers of SmolLM 3 have RoPE."""
    every = n.integer("no_rope_layer_interval")
    said = n.flags("no_rope_layers", layers)
    return said if said is not None else [(layer + 1) % every != 0 for layer in range(layers)]


def _pattern(n: Numbers, key: str, layers: int) -> list[bool]:
    """Say which layers see a window only: all but every sixth, unless the file has a number or a list."""
    if isinstance(n.get(key), list):
        return [bool(flag) for flag in n.flags(key, layers) or ()]
    every = n.integer(key, 6)
    return [(layer + 1) % every != 0 for layer in range(layers)]


def _config_windows(n: Numbers, kind: str, layers: int, with_rope: Sequence[bool]) -> tuple[int, ...]:
    """Return each layer's window. Which key turns windows on, and for which layers, is the family's own affair."""
    window = n.integer("sliding_window", 0, least=0)
    always = kind in ("mistral", "ministral", "gemma2", "gemma3", "gemma3_text")
    if not window or not (always or n.flag("use_sliding_window", False)) or kind in _WINDOWLESS:
        return (0,) * layers
    kinds = n.get("layer_types")
    if isinstance(kinds, list) and kind != "mistral":
        unknown = [one for one in kinds if one not in ("sliding_attention", "full_attention")]
        if unknown or len(kinds) != layers:
            raise ModelFileError(f"{n.where}: wanted {layers} known `layer_types`; got {len(kinds)}, {unknown[:1]}")
        local = [one == "sliding_attention" for one in kinds]
    elif kind in ("gemma3", "gemma3_text"):
        local = _pattern(n, "sliding_window_pattern", layers)
    elif kind == "gemma2":
        local = [layer % 2 == 0 for layer in range(layers)]
    elif kind == "smollm3":
        local = [not used for used in with_rope]
    else:
        first = 0 if kind in ("mistral", "ministral") else n.integer("max_window_layers", least=0)
        local = [layer >= first for layer in range(layers)]
    return tuple(window if here else 0 for here in local)


def _gguf_rope(file: Source, n: Numbers, head_dim: int) -> Rope:
    base = n.real("rope.freq_base", 1e6 if n.prefix == "gemma3." else 10_000.0)
    dimensions = n.integer("rope.dimension_count", head_dim, most=head_dim)
    old = n.real("rope.scale_linear", 1.0, least=1e-6)
    factor = n.real("rope.scaling.factor", old, least=1e-6)
    kind = n.get("rope.scaling.type") or ("linear" if factor != 1.0 else "none")
    table = file.tensors.get("rope_freqs.weight")
    divisors: tuple[float, ...] = ()
    if table is not None:
        if table.shape != (dimensions // 2,):
            raise ModelFileError(
                f"{file.path}: wanted the shape ({dimensions // 2},) for `rope_freqs.weight`; got {table.shape}"
            )
        divisors = tuple(dequantize(table).tolist())
        if not all(0 < divisor < math.inf for divisor in divisors):
            raise ModelFileError(f"{file.path}: wanted positive numbers in `rope_freqs.weight`; got {min(divisors)}")
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
        attention,
        divisors=divisors,
    )


def _config_rope(n: Numbers, layers: str, base: float, head_dim: int) -> Rope:
    """Read `rope_scaling`, or transformers 5's `rope_parameters`, which may differ by the type of layer."""
    raw = n.get("rope_parameters") or n.get("rope_scaling") or {}
    nested = isinstance(raw, Mapping) and isinstance(raw.get(layers), Mapping)
    if nested and isinstance(raw, Mapping):
        raw = raw[layers]
    elif layers == "sliding_attention":
        raw = {}  # scaling is for the global layers only
    if not isinstance(raw, Mapping):
        raise ModelFileError(f"{n.where}: wanted a table for `rope_scaling`; got {raw!r:.80}")
    s = Numbers(raw, n.where, "", "rope_scaling.")
    base = s.real("rope_theta", base)
    dimensions = int(head_dim * n.real("partial_rotary_factor", 1.0, most=1.0))
    kind = s.get("rope_type") or s.get("type") or "default"
    if kind == "default":
        return Rope(base, dimensions)
    factor = s.real("factor", least=1e-6)
    if kind == "linear":
        return Rope(base, dimensions, "linear", factor)
    original = s.integer("original_max_position_embeddings", n.integer("max_position_embeddings"))
    if kind == "llama3":
        low, high = s.real("low_freq_factor"), s.real("high_freq_factor")
        if high <= low:
            raise ModelFileError(f"{n.where}: wanted `high_freq_factor` above `low_freq_factor`; got {high} and {low}")
        return Rope(base, dimensions, "llama3", factor, original, low_frequency_factor=low, high_frequency_factor=high)
    if kind == "yarn":
        if s.get("mscale") is not None or s.get("truncate") is False:
            raise UnsupportedModel(f"{n.where}: wanted YaRN without `mscale` and `truncate`; got one with")
        fast, slow = s.real("beta_fast", 32.0), s.real("beta_slow", 1.0)
        attention = None if s.get("attention_factor") is None else s.real("attention_factor")
        return Rope(base, dimensions, "yarn", factor, original, fast, slow, attention)
    raise UnsupportedModel(f"{n.where}: wanted RoPE scaling default, linear, yarn or llama3; got `{kind}`")


def _reach(context: int, rope: Rope) -> int:
    return max(context, int(rope.original_context * rope.factor)) if rope.kind == "yarn" else context


def _checked(spec: ModelSpec, where: str) -> ModelSpec:
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


def _unknown(where: object, got: object) -> UnsupportedModel:
    return UnsupportedModel(
        f"{where}: wanted one of the architectures {', '.join(FAMILIES)} (in a folder also "
        f"{', '.join(sorted(_MODEL_TYPES.keys() - set(FAMILIES)))}); got `{got}`",
        hint="mixtures of experts, hybrids and other families are not supported yet",
    )
