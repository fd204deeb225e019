"""One name for each of a decoder's tensors, GGUF's, and the shape each must have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.families import ARCHITECTURES, MODEL_TYPES
from paceline.formats.spec import ModelSpec
from paceline.kernels.tensor import Tensor

_LAYER = re.compile(r"layers\.(\d{1,5})\.(.+)\.(weight|bias)")
_IN_FILE = re.compile(r"(blk\.\d{1,5}\.)(.+)\.(weight|bias)")
_TOP = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NOT_LANGUAGE = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
_PREFIXES = ("language_model.model.", "model.language_model.", "language_model.", "model.")
_IGNORED = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight|blk\.\d+\.attn_rot_embd\.weight")


def is_language(name: str) -> bool:
    """Say whether the decoder may need a tensor of a Hugging Face folder."""
    return not name.startswith(_NOT_LANGUAGE) and not name.endswith("rotary_emb.inv_freq")


def canonical(name: str, model_type: str = "llama") -> str | None:
    """Translate a Hugging Face tensor name; None for one that the decoder does not need, itself if unknown."""
    if not is_language(name):
        return None
    short = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
    match = _LAYER.fullmatch(short)
    if match is None:
        return _TOP.get(short, name)
    layer, part, kind = match.groups()
    known = _IN_LAYER | dict(MODEL_TYPES[model_type].names)
    return f"blk.{int(layer)}.{known[part]}.{kind}" if part in known else name


def separate(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a model's tensors with those apart that some files keep in one: query, key and value; gate and up.

    The parts are views, for a matrix lies by rows.
    """
    family = ARCHITECTURES.get(spec.architecture)
    renamed = dict(family.gguf_names) if family else {}
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = _IN_FILE.fullmatch(name)
        if match is None or not tensor.shape:
            found[name] = tensor
            continue
        layer, part, kind = match.groups()
        parts = {renamed.get(part, part): tensor.shape[0]}
        if part == "attn_qkv" and tensor.shape[0] == queries + 2 * keys:
            parts = {"attn_q": queries, "attn_k": keys, "attn_v": keys}
        elif part == "ffn_up" and tensor.shape[0] == 2 * spec.ffn_width:
            parts = {"ffn_gate": spec.ffn_width, "ffn_up": spec.ffn_width}
        names = {f"{layer}{own}.{kind}": rows for own, rows in parts.items()}
        if not (names.keys() - {name}).isdisjoint(tensors):  # the file has such a part beside it
            names = {name: tensor.shape[0]}
        start = 0
        for ours, rows in names.items():
            found[ours] = tensor.rows_of(ours, start, rows)
            start += rows
    return found


def shapes_of(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """List every tensor that the decoder reads."""
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_q.weight": (queries, spec.width),
        "attn_k.weight": (keys, spec.width),
        "attn_v.weight": (keys, spec.width),
        "attn_output.weight": (spec.width, queries),
        "ffn_gate.weight": (spec.ffn_width, spec.width),
        "ffn_up.weight": (spec.ffn_width, spec.width),
        "ffn_down.weight": (spec.width, spec.ffn_width),
    }
    if spec.pre_norms:
        layer |= {"attn_norm.weight": (spec.width,), "ffn_norm.weight": (spec.width,)}
    if spec.qkv_bias:
        layer |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if spec.qk_norm:
        normed = (spec.head_dim, spec.head_dim) if spec.qk_norm == "head" else (queries, keys)
        layer |= {"attn_q_norm.weight": normed[:1], "attn_k_norm.weight": normed[1:]}
    if spec.post_norms:
        layer |= {"post_attention_norm.weight": (spec.width,), "post_ffw_norm.weight": (spec.width,)}
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (spec.vocab, spec.width)}
    for number in range(spec.layers):
        shapes |= {f"blk.{number}.{name}": shape for name, shape in layer.items()}
    shapes["output_norm.weight"] = (spec.width,)
    if not spec.tied:
        shapes["output.weight"] = (spec.vocab, spec.width)
    return shapes


def check_shapes(spec: ModelSpec, found: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Raise ModelFileError or UnsupportedModel unless a file has the decoder's tensors and no others."""
    wanted = shapes_of(spec)
    biases = {f"blk.{layer}.attn_output.bias": (spec.width,) for layer in range(spec.layers)}
    wanted |= {name: shape for name, shape in biases.items() if name in found}
    for name, shape in wanted.items():
        if name not in found:
            raise ModelFileError(
                f"{path}: wanted tensor `{name}` of shape {shape}; it is missing",
                hint="the file is incomplete, or of another architecture than it says",
            )
        if found[name] != shape:
            raise ModelFileError(
                f"{path}: wanted shape {shape} for tensor `{name}`; got {found[name]}",
                hint="the file's numbers and its tensors do not belong together",
            )
    for name in found:
        if name not in wanted and not _IGNORED.fullmatch(name):
            # Leaving a weight out would change the model's output without an error.
            raise UnsupportedModel(
                f"{path}: wanted the tensors of a dense {spec.architecture} decoder; got also `{name}`",
                hint="this variant of the architecture is not supported",
            )
