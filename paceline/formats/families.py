"""What each family of models is beyond the numbers in its files: a row each, for GGUF files and for configs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's files do not say.

    Attributes:
        interleaved: RoPE turns the pairs (0, 1), (2, 3), …; else halves.
        permuted: llama.cpp's converter reorders queries and keys, so that a GGUF file's pairs are interleaved.
        gemma: norms have weights around 0, embeddings are multiplied by the root of the width, GELU for SiLU.
        norms: where a layer's norms are: before attention and feed-forward part, behind them, or on both sides.
        qk_norm: what is normed of queries and keys: nothing, each head, or the whole row.
        windows: whether layers see a window: never, if a size is given, or if the config also asks for it.
        local: the layers that do, unless the file lists them: all, every other, all but every n-th, those from
            `max_window_layers` on, or those without RoPE.
        lists_layers: a list of the layers in a config counts.
        local_rope: the RoPE of those layers: that of all, one of its own, or the same without scaling.
        no_rope: the layers without RoPE: none, those that its config says, or those that see everything.
        names: tensors that a config's family calls otherwise than Llama does; `gguf_names` those of GGUF files.
    """

    name: str
    interleaved: bool = False
    permuted: bool = False
    gemma: bool = False
    norms: Literal["before", "behind", "both"] = "before"
    qk_norm: Literal["", "head", "row"] = ""
    qkv_bias: bool = False  # whatever the config says
    softcaps: bool = False  # of scores
    scalings: bool = False  # multipliers of embeddings, attention, branches and logits
    query_growth: bool = False  # queries far behind the original context are multiplied, see `ModelSpec`
    windows: Literal["never", "given", "asked"] = "never"
    local: Literal["all", "even", "pattern", "deep", "no rope"] = "all"
    every: int = 6  # of "pattern": the layers in between that see everything
    lists_layers: bool = True
    local_rope: Literal["", "own", "unscaled"] = ""
    no_rope: Literal["", "said", "global"] = ""
    names: tuple[tuple[str, str], ...] = ()
    gguf_names: tuple[tuple[str, str], ...] = ()


# With norms on both sides, the one after attention is no longer the one before the feed-forward part.
_BOTH_NAMES = (
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
)
_GLM_NAMES = (("post_self_attn_layernorm", "post_attention_norm"), ("post_mlp_layernorm", "post_ffw_norm"))

_LLAMA = Family("llama", permuted=True, windows="given", lists_layers=False)
_QWEN2 = Family("qwen2", qkv_bias=True, windows="asked", local="deep")
_QWEN3 = Family("qwen3", qk_norm="head", windows="asked", local="deep")
_GEMMA = Family("gemma", gemma=True)
_GEMMA2 = replace(_GEMMA, name="gemma2", norms="both", softcaps=True, windows="given", local="even", names=_BOTH_NAMES)
_GEMMA3 = replace(_GEMMA2, name="gemma3", qk_norm="head", softcaps=False, local="pattern", local_rope="own")
_SMOLLM3 = Family("smollm3", permuted=True, windows="asked", local="no rope", no_rope="said")
_ERNIE = Family("ernie4_5", interleaved=True)
_SEED = Family("seed_oss", gguf_names=(("post_attention_norm", "ffn_norm"),))
_PHI = Family("phi3", windows="given", lists_layers=False)
_GRANITE = Family("granite", permuted=True, scalings=True)
_GLM = Family("glm4", interleaved=True, norms="both", names=_GLM_NAMES)
_OLMO2 = Family("olmo2", norms="behind", qk_norm="row", names=_BOTH_NAMES)
_OLMO3 = replace(_OLMO2, windows="given", local="pattern", every=4, local_rope="unscaled")
_EXAONE = Family(
    "exaone4",
    norms="behind",
    qk_norm="head",
    windows="given",
    local="pattern",
    every=4,
    no_rope="global",
    names=_BOTH_NAMES,
)
_MINISTRAL3 = replace(_LLAMA, name="mistral3", query_growth=True)

# By `general.architecture`. In these files a window counts if its size is given.
ARCHITECTURES: dict[str, Family] = {
    "llama": _LLAMA,
    "qwen2": replace(_QWEN2, windows="never"),
    "qwen3": replace(_QWEN3, windows="never"),
    "gemma3": _GEMMA3,
    "smollm3": replace(_SMOLLM3, windows="never"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "qwen2vl": replace(_QWEN2, name="qwen2vl", windows="never"),
    "qwen3vl": replace(_QWEN3, name="qwen3vl", windows="never"),
    "ernie4_5": _ERNIE,
    "phi3": _PHI,
    "granite": _GRANITE,
    "glm4": _GLM,
    "olmo2": _OLMO3,  # one name for both
    "exaone4": _EXAONE,
    "mistral3": _MINISTRAL3,
    "seed_oss": _SEED,
}
# By `model_type`; of a model that sees, the text half.
MODEL_TYPES: dict[str, Family] = {
    "llama": replace(_LLAMA, windows="never"),
    "mistral": _LLAMA,
    "ministral": replace(_LLAMA, lists_layers=True),
    "ministral3": _MINISTRAL3,
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
    **{f"{name}{half}": _QWEN2 for name in ("qwen2_vl", "qwen2_5_vl") for half in ("", "_text")},
    **{f"qwen3_vl{half}": replace(_QWEN3, windows="never") for half in ("", "_text")},
    "smollm3": _SMOLLM3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "ernie4_5": _ERNIE,
    "seed_oss": _SEED,
    "phi3": _PHI,
    "granite": _GRANITE,
    "glm4": _GLM,
    "olmo2": _OLMO2,
    "olmo3": _OLMO3,
    "exaone4": _EXAONE,
}
