"""The decoder: what every supported family does between token ids and logits, written once.

Knows no family by name. A family differs by its `ModelSpec` (sizes, windows, rope tables, scales) and by which
optional weights its file has (biases, q/k norms, norms before or behind attention and feed-forward part).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.core.aliases import Floats
from paceline.formats.rope import inverse_frequencies
from paceline.formats.spec import ModelSpec
from paceline.kernels.ops import HeadShape, Linear, Ops, Rows


@dataclass(frozen=True, slots=True)
class LayerWeights:
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    gate: Linear
    up: Linear
    down: Linear
    attn_norm: Floats | None = None
    ffn_norm: Floats | None = None
    q_norm: Floats | None = None
    k_norm: Floats | None = None
    post_attn_norm: Floats | None = None
    post_ffn_norm: Floats | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    embedding: Any
    layers: tuple[LayerWeights, ...]
    norm: Floats
    head: Linear


def decode(ops: Ops, spec: ModelSpec, weights: DecoderWeights, *, outputs: int | None = None) -> Rows:
    """Write the whole forward pass in `ops`; return the rows that hold the logits [W, V].

    Args:
        outputs: the rows of the head, when it has not one for each token.
    """
    tables = [ops.rope(*inverse_frequencies(rope)) for rope in spec.ropes]
    x, h = ops.rows(spec.width), ops.rows(spec.width)
    q, a = ops.rows(spec.heads * spec.head_dim), ops.rows(spec.heads * spec.head_dim)
    k, v = ops.rows(spec.kv_heads * spec.head_dim), ops.rows(spec.kv_heads * spec.head_dim)
    f = ops.rows(spec.ffn_width)

    ops.embed(weights.embedding, scale=spec.embed_scale, out=x)
    for index, layer in enumerate(weights.layers):
        shape = head_shape(spec, index, tables)
        ops.linear(normed(ops, spec, x, layer.attn_norm, out=h), [(layer.q, q), (layer.k, k), (layer.v, v)])
        norms = layer.q_norm, layer.k_norm
        if spec.qk_norm == "row":
            normed(ops, spec, q, layer.q_norm, out=q)
            normed(ops, spec, k, layer.k_norm, out=k)
            norms = None, None
        ops.rotate_and_store(q, k, v, shape, q_norm=norms[0], k_norm=norms[1], eps=spec.norm_eps)
        ops.attention(q, shape, out=a)
        add_back(ops, spec, a, layer.o, layer.post_attn_norm, spare=h, x=x)

        ops.gated(normed(ops, spec, x, layer.ffn_norm, out=h), layer.gate, layer.up, spec.activation, out=f)
        add_back(ops, spec, f, layer.down, layer.post_ffn_norm, spare=h, x=x)
        ops.tap(x, index)

    last, logits = ops.rows(spec.width, wanted=True), ops.rows(outputs or spec.vocab, wanted=True)
    ops.gather(x, out=last)
    ops.rms_norm(last, weights.norm, spec.norm_eps, out=last)
    is_whole = outputs in (None, spec.vocab)
    if is_whole and not spec.final_softcap:
        ops.keep_peaks(logits)
    ops.linear(last, [(weights.head, logits)])
    if spec.final_softcap:
        ops.softcap(logits, spec.final_softcap)
    if is_whole and spec.padding:
        ops.forbid(logits, spec.padding)
    return logits


def normed(ops: Ops, spec: ModelSpec, x: Rows, norm: Floats | None, *, out: Rows) -> Rows:
    """Norm rows where the family does; return those to go on with."""
    if norm is None:
        return x
    ops.rms_norm(x, norm, spec.norm_eps, out=out)
    return out


def add_back(
    ops: Ops, spec: ModelSpec, branch: Rows, project: Linear, norm: Floats | None, *, spare: Rows, x: Rows
) -> None:
    """Project a branch and add it to the residual stream x, through a norm where the family has one."""
    if norm is None:
        ops.linear(branch, [(project, x)], accumulate=True)
    else:
        ops.linear(branch, [(project, spare)])
        ops.rms_norm(spare, norm, spec.norm_eps, out=x, accumulate=True)


def head_shape(spec: ModelSpec, layer: int, tables: list[int]) -> HeadShape:
    """Return the attention shape of one layer."""
    table = spec.rope_tables[layer]
    return HeadShape(
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        layer=layer,
        rope=-1 if table < 0 else tables[table],
        interleaved=spec.rope_interleaved,
        window=spec.windows[layer],
        scale=spec.attention_scale,
        softcap=spec.attention_softcap,
        growth=spec.query_growth,
        period=spec.query_period,
    )
