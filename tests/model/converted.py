"""A reference's weights as llama.cpp's converter would write them, for the families whose files are read by name."""

import numpy as np
from make_references import weight_of

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
BEHIND = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OWN_NAMES = {
    "gemma2": BEHIND, "olmo2": BEHIND, "exaone4": BEHIND,
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
}  # fmt: skip
PERMUTED = ("llama", "granite", "mistral3")
YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 32, "yarn_attn_factor": 1.3}
# The reference's name: the file's architecture, and the keys that the converter adds to the common ones.
FILES = {
    "llama": ("llama", {}),
    "mistral": ("llama", {"attention.sliding_window": 8}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {
        "attention.sliding_window": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
        "attention.scale": 20**-0.5}),
    "seed_oss": ("seed_oss", {}),
    "ernie4_5": ("ernie4_5", {"rope.freq_base": 5e5}),
    "qwen2_5_vl": ("qwen2vl", {"rope.dimension_sections": [4, 6, 6, 0], "rope.freq_base": 1e6}),
    "qwen3_vl": ("qwen3vl", {"rope.dimension_sections": [6, 5, 5, 0], "rope.freq_base": 5e5}),
    "phi3 with windows": ("phi3", {"attention.sliding_window": 8}),
    "phi3 within its first context": ("phi3", {
        "rope.dimension_count": 16, "rope.scaling.original_context_length": 64}),
    "phi3 beyond its first context": ("phi3", {"rope.scaling.original_context_length": 32}),
    "granite": ("granite", {
        "embedding_scale": 12.0, "attention.scale": 0.05, "residual_scale": 0.22, "logit_scale": 3.0}),
    "glm4": ("glm4", {"rope.dimension_count": 16}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo2", {
        "attention.sliding_window": 8, "attention.sliding_window_pattern": [True, True, True, False],
        "rope.freq_base": 5e5, "context_length": 128} | {f"rope.scaling.{key}": value for key, value in YARN.items()}),
    "exaone4": ("exaone4", {}),
    "exaone4 with windows": ("exaone4", {
        "attention.sliding_window": 8, "attention.sliding_window_pattern": [True, True, True, False]}),
    "ministral3 far behind its first context": ("mistral3", {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 16,
        "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1, "context_length": 128}),
}  # fmt: skip


def as_gguf(name, case):
    """Return a GGUF file's metadata and tensors."""
    config, (family, own) = case["config"], FILES[name]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    numbers = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": 1e4,
        **own,
    }
    metadata = {"general.architecture": family, **{f"{family}.{key}": value for key, value in numbers.items()}}
    tensors, known = {}, NAMES | OWN_NAMES.get(family, {})
    for key, shape in case["shapes"].items():
        weight = weight_of(key, tuple(shape))
        if family.startswith("gemma") and "norm" in key:
            weight = weight + np.float32(1)
        if family in PERMUTED and ("q_proj" in key or "k_proj" in key):
            weight = permuted(weight, heads if "q_proj" in key else kv_heads)
        tensors[gguf_name(key, known)] = weight
    scaling = config.get("rope_scaling") or {}
    for kind in ("short", "long"):
        if f"{kind}_factor" in scaling:
            tensors[f"rope_factors_{kind}.weight"] = np.array(scaling[f"{kind}_factor"], np.float32)
    return metadata, tensors


def permuted(weight, heads):
    """Put the two halves of each head's rows in turns."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def gguf_name(key, known):
    if "layers." not in key:
        return {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[
            key.split(".")[-2]
        ] + ".weight"
    layer, part = key.split("layers.")[1].split(".", 1)
    part, kind = part.rsplit(".", 1)
    return f"blk.{layer}.{known[part]}.{kind}"
