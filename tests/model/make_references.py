"""Write references.json and references.npz: small random models of many families, and what transformers says with them.

    pip install torch transformers; python tests/model/make_references.py

Weights are functions of their names and shapes (`weight_of`), so only logits are kept. Each case is a config.json as a
repository may have it: with keys left out, stray or contradicting ones.
"""

from __future__ import annotations

import copy
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
TOKENS = np.random.default_rng(7).integers(0, 96, size=48)
SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}
WIDE = SIZES | {"head_dim": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.3}
SHORT, FAR = [[round(1 + k / 20, 2) for k in range(16)], [round(1 + k * k / 10, 2) for k in range(16)]]
LONG = {"hidden_act": "silu", "max_position_embeddings": 128}
CASES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES},
    "llama with a stray window": {"model_type": "llama", **SIZES, "sliding_window": 8},
    "llama with YaRN": {"model_type": "llama", **SIZES, **LONG, "rope_scaling": YARN},
    "mistral without a window": {"model_type": "mistral", **SIZES, "sliding_window": None},
    "mistral": {"model_type": "mistral", **SIZES, "sliding_window": 8},
    "qwen2 with windows from a layer on": {
        "model_type": "qwen2", **SIZES, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2,
    },
    "qwen2 tied, but with a head": {"model_type": "qwen2", **SIZES, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **WIDE},
    "smollm3 with nothing but sizes": {"model_type": "smollm3", **SIZES},
    "smollm3 with windows": {"model_type": "smollm3", **SIZES, "use_sliding_window": True, "sliding_window": 8},
    "gemma3 with a cap it has not": {
        "model_type": "gemma3_text", **WIDE, "num_hidden_layers": 6, "sliding_window": 8, "attn_logit_softcapping": 5.0,
    },
    "gemma": {"model_type": "gemma", **WIDE},
    "gemma2": {
        "model_type": "gemma2", **WIDE, "sliding_window": 8, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 20,
    },
    "seed_oss": {"model_type": "seed_oss", **WIDE, "attention_bias": True},
    "ernie4_5": {"model_type": "ernie4_5", **WIDE},
    "ministral": {
        "model_type": "ministral", **WIDE, "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "phi3 with windows": {"model_type": "phi3", **SIZES, "sliding_window": 8},
    "phi3 within its first context": {
        "model_type": "phi3", **SIZES, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64,
        "rope_scaling": {"type": "longrope", "short_factor": SHORT[:8], "long_factor": FAR[:8]},
    },
    "phi3 beyond its first context": {
        "model_type": "phi3", **SIZES, "original_max_position_embeddings": 32,
        "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": FAR},
    },
    "granite": {
        "model_type": "granite", **SIZES, "embedding_multiplier": 12.0, "attention_multiplier": 0.05,
        "residual_multiplier": 0.22, "logits_scaling": 3.0,
    },
    "glm4": {"model_type": "glm4", **WIDE},
    "olmo2": {"model_type": "olmo2", **SIZES},
    "olmo3": {"model_type": "olmo3", **SIZES, **LONG, "sliding_window": 8, "rope_scaling": YARN},
    "exaone4 with windows": {"model_type": "exaone4", **SIZES, "sliding_window": 8, "sliding_window_pattern": 4},
    "exaone4": {
        "model_type": "exaone4", **SIZES, "sliding_window": None, "layer_types": ["full_attention"] * 4,
    },
    "ministral3 far behind its first context": {
        "model_type": "ministral3", **WIDE, **LONG,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16,
            "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        },
    },
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl_text", **SIZES, "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
    },
    "qwen3_vl": {
        "model_type": "qwen3_vl_text", **WIDE, "rope_scaling": {"rope_type": "default", "mrope_section": [6, 5, 5]},
    },
}  # fmt: skip
OWN_HEAD = ("qwen2 tied, but with a head",)  # cases whose file has an output matrix that the config denies


def weight_of(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a tensor that its name and shape decide, float32."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if len(shape) == 1:
        return (0.1 * random.standard_normal(shape) + ("norm" in name)).astype(np.float32)
    return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def main() -> None:
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM

    told: dict[str, Any] = {"transformers": transformers.__version__, "tokens": TOKENS.tolist(), "cases": {}}
    logits = {}
    for name, config in CASES.items():
        own = copy.deepcopy(config) | ({"tie_word_embeddings": False} if name in OWN_HEAD else {})
        kind = own.pop("model_type")
        own |= {f"{token}_token_id": None for token in ("pad", "bos", "eos")}
        made = AutoConfig.for_model(kind, **own)
        model = model_of(made, kind, AutoModelForCausalLM).float().eval()
        state = {key: torch.from_numpy(weight_of(key, tuple(value.shape))) for key, value in model.state_dict().items()}
        if getattr(made, "tie_word_embeddings", False):
            state.pop("lm_head.weight", None)
        model.load_state_dict(state, strict=False)
        model.tie_weights()
        with torch.no_grad():
            said = model(torch.from_numpy(TOKENS)[None], use_cache=False).logits[0]
        logits[name] = said.numpy().astype(np.float32)
        shapes = {key: list(value.shape) for key, value in state.items() if not key.endswith("inv_freq")}
        told["cases"][name] = {"config": config, "shapes": shapes}
        print(f"{name}: spread {logits[name].std():.2f}")
    (HERE / "references.json").write_text(json.dumps(told, indent=1) + "\n")
    np.savez_compressed(HERE / "references.npz", **logits)


def model_of(config: Any, kind: str, auto: Any) -> Any:
    """Return a model; the text half of one that sees is wrapped by hand."""
    if not kind.endswith("_vl_text"):
        return auto.from_config(config, attn_implementation="eager")
    import torch
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

    config._attn_implementation = "eager"
    inner = {"qwen2_5_vl_text": Qwen2_5_VLTextModel, "qwen3_vl_text": Qwen3VLTextModel}[kind](config)

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def tie_weights(self) -> None:
            if getattr(config, "tie_word_embeddings", False):
                self.lm_head.weight = self.model.embed_tokens.weight

        def forward(self, ids: Any, use_cache: bool) -> Any:
            class Out:
                logits = self.lm_head(self.model(input_ids=ids, use_cache=use_cache).last_hidden_state)

            return Out

    return Text()


if __name__ == "__main__":
    main()
