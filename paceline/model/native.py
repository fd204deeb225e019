"""The native backend: a model file repacked for the kernels, and the recorded forward pass over it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, cast

import numpy as np

from paceline.config import QUANTS
from paceline.core.aliases import Floats, Ints
from paceline.core.batch import Batch, Forward, Logits
from paceline.errors import UnsupportedModel
from paceline.formats.files import ModelFile
from paceline.formats.spec import ModelSpec
from paceline.kernels.dequantize import dequantize
from paceline.kernels.native import choose_isa, native
from paceline.kernels.ops import PAGE, Linear
from paceline.kernels.tape import Tape
from paceline.kernels.tensor import Tensor
from paceline.model.base import Capabilities
from paceline.model.cache import PagedCache
from paceline.model.decoder import DecoderWeights, LayerWeights, decode

HEAD_STEP, HEAD_MOST = 32, 512  # as in native/program.cpp


class NativeModel:
    """A decoder on this processor's kernels.

    Args:
        file: where the weights come from; it may be closed afterwards.
        pool: threads, shared by all models of the process.
        quant: "auto" keeps the file's precision; "q4", "q4s", "q8", "bf16", "f32" repack the linear layers.
        progress: called with the bytes read so far.
        padding: ids, ascending, that no token has though the output matrix has rows for them: they get no logit, those
            behind the last token are no ids of this model.
        context: tokens that it will read at most, which chooses between two sets of RoPE divisors where there are two.
    """

    capabilities = Capabilities(row_independent=True, trees=True, taps=True, native_loop=True)

    def __init__(
        self,
        file: ModelFile,
        pool: native.Pool,
        *,
        quant: str = "auto",
        isa: str = "",
        progress: Callable[[int], None] | None = None,
        padding: Sequence[int] = (),
        context: int | None = None,
    ) -> None:
        vocab = tokens_before(padding, file.spec.vocab)
        spec = replace(file.spec, vocab=vocab, padding=tuple(id for id in padding if id < vocab))
        self.spec: ModelSpec = spec.reading(context or spec.plain_reach)
        check_heads(self.spec, str(file.path))
        self.isa = isa or choose_isa()
        loader = _Loader(file, pool, quant, progress)
        self.weights = load_weights(file, loader.linear, loader.embedding, loader.floats)
        self.weight_bytes = loader.bytes_per_token()
        if self.spec.vocab < file.spec.vocab:
            self.weights = replace(self.weights, head=Linear(self.weights.head.weight.first(self.spec.vocab)))
        self._pool = pool
        self._record(self.spec.vocab)

    def _record(self, outputs: int) -> None:
        self._tape = Tape(self._pool, self.isa)
        self._logits = decode(self._tape, self.spec, self.weights, outputs=outputs)

    def with_outputs(self, ids: Ints) -> NativeModel:
        """Return this model with fewer outputs: logits [W, rows], row i that of token `ids[i]`, int32 [rows].

        The output matrix is a copy of those rows; all other weights are shared.
        """
        model = copy.copy(self)
        head = Linear(self.weights.head.weight.gather(np.ascontiguousarray(ids, np.int32)))
        model.weights = replace(self.weights, head=head)
        model.weight_bytes = self.weight_bytes - int(self.weights.head.weight.nbytes) + int(head.weight.nbytes)
        model._record(len(ids))
        return model

    def loop(self, ids: Ints | None = None) -> native.DraftLoop:
        """Return the native loop that lets chains go on by themselves; see native/draft.cpp.

        Args:
            ids: int32 [rows], the token of each output; `None` when they are all tokens in order.
        """
        tokens = np.zeros(0, np.int32) if ids is None else np.ascontiguousarray(ids, np.int32)
        return native.DraftLoop(self._tape.program, self._logits, self.spec.vocab, tokens)

    @property
    def page_bytes(self) -> int:
        """See `Model`: keys and values are numbers of 16 bits."""
        spec = self.spec
        return 2 * spec.layers * spec.kv_heads * spec.head_dim * PAGE * 2

    def new_cache(self, tokens: int) -> PagedCache:
        """Make a cache for `tokens` tokens; its memory is only touched as it fills."""
        spec = self.spec
        return PagedCache(native.KVStore(spec.layers, spec.kv_heads, spec.head_dim, -(-tokens // PAGE)))

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        """Run the batch; see `Model.forward`. Logits and taps are views that the next forward overwrites."""
        self._tape.run(batch, cast("native.KVStore", cache.store), taps=taps, vocab=self.spec.vocab)
        count = len(batch.wanted)
        return Forward(
            Logits.of(self._tape.read(self._logits, count), self._tape.read_peaks(self._logits, count)),
            self._tape.read_taps(taps, len(batch.tokens)) if taps else {},
            dict(self._tape.program.beyond()),
        )

    def first_layers(self, count: int) -> NativeModel:
        """Return the model of the first `count` layers under the same norm and head; the weights are shared."""
        spec, weights = self.spec, self.weights
        shallow = copy.copy(self)
        shallow.spec = replace(spec, layers=count, windows=spec.windows[:count], rope_tables=spec.rope_tables[:count])
        shallow.weights = replace(weights, layers=weights.layers[:count])
        shallow.weight_bytes = self.weight_bytes - sum(_layer_bytes(layer) for layer in weights.layers[count:])
        shallow._record(spec.vocab)
        return shallow

    def layer_bits(self) -> float:
        """Return how many bits a weight of the layers' matrices takes, scales included."""
        parts = [part.weight for layer in self.weights.layers for part in _linears(layer)]
        return 8 * sum(int(part.nbytes) for part in parts) / sum(int(part.rows) * int(part.cols) for part in parts)

    def products(self) -> int:
        """Return the products of one token in the layers' and the head's matrices."""
        parts = [part for layer in self.weights.layers for part in _linears(layer)]
        return sum(int(part.weight.rows) * int(part.weight.cols) for part in [*parts, self.weights.head])

    @property
    def threads(self) -> int:
        """How many threads a forward runs on."""
        return int(self._pool.threads)

    def floor_seconds(self, most: int, repeats: int = 3, limit: float = 0.1) -> float:
        """Return the least seconds to read the weights once, in proportion to reading at most `most` bytes.

        Args:
            limit: seconds after which it is not read once more.
        """
        started, found = perf_counter(), list[float]()
        probe = native.ReadProbe(self._pool, min(self.weight_bytes, most))
        while not found or (len(found) < repeats and perf_counter() - started < limit):
            found.append(float(probe.read()))
        return min(found) * self.weight_bytes / int(probe.nbytes)

    def kv_bytes(self, tokens: int) -> int:
        """Return how many bytes of keys and values a decode step reads behind `tokens` tokens."""
        spec = self.spec
        visible = sum(min(tokens, window) if window else tokens for window in spec.windows)
        return visible * 2 * spec.kv_heads * spec.head_dim * 2

    def profile(self, on: bool | None = None) -> dict[str, float]:
        """Return seconds by kind of op since profiling was turned on."""
        if on is not None:
            self._tape.program.set_profiling(on)
        return dict(self._tape.program.profile())


def tokens_before(padding: Sequence[int], rows: int) -> int:
    """Return how many of so many rows are left without those of padding at their end."""
    absent = set(padding)
    while rows - 1 in absent:
        rows -= 1
    return rows


def check_heads(spec: ModelSpec, where: str) -> None:
    """Raise UnsupportedModel unless the kernels' attention can hold a head; they take other sizes as they come."""
    if spec.head_dim % HEAD_STEP or spec.head_dim > HEAD_MOST:
        raise UnsupportedModel(
            f"{where}: wanted heads of a multiple of {HEAD_STEP} numbers, at most {HEAD_MOST}; got {spec.head_dim}",
            hint="no --quant changes that; most published models have heads of 64 or 128",
        )


def _linears(layer: LayerWeights) -> tuple[Linear, ...]:
    return layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down


def _layer_bytes(layer: LayerWeights) -> int:
    return sum(int(part.weight.nbytes) for part in _linears(layer))


class _Loader:
    """Turns a file's tensors into the kernels' forms, letting go of each tensor's pages when it is packed."""

    def __init__(self, file: ModelFile, pool: native.Pool, quant: str, progress: Callable[[int], None] | None) -> None:
        self.file, self.pool, self.quant, self.progress = file, pool, quant, progress
        self.read = 0
        self.packed: dict[str, native.Weight] = {}

    def linear(self, tensor: Tensor, bias: Floats | None) -> Linear:
        rows, cols = tensor.shape
        try:
            weight = native.pack(tensor.data, int(tensor.type), rows, cols, self.quant, self.pool)
        except ValueError as error:
            raise UnsupportedModel(
                f"tensor `{tensor.name}` ({tensor.type.name} {rows}x{cols}) cannot be packed as `{self.quant}`: "
                f"{error}",
                hint=f"choose another --quant ({', '.join(QUANTS)}), or --draft-quant if it is the draft's",
            ) from error
        self.packed[tensor.name] = weight
        self._done(tensor)
        return Linear(weight, bias)

    def embedding(self, tensor: Tensor) -> native.EmbedTable:
        packed = self.packed.get(tensor.name)
        if packed is not None:
            return native.EmbedTable.from_weight(packed)
        table = native.EmbedTable(tensor.data, int(tensor.type), *tensor.shape)
        self._done(tensor)
        return table

    def floats(self, tensor: Tensor) -> Floats:
        return np.ascontiguousarray(dequantize(tensor), np.float32).reshape(-1)

    def bytes_per_token(self) -> int:
        """Return the bytes of packed weights that one decode step reads."""
        return sum(weight.nbytes for weight in self.packed.values())

    def _done(self, tensor: Tensor) -> None:
        self.file.release(tensor)
        self.read += tensor.nbytes
        if self.progress:
            self.progress(self.read)


def load_weights(
    file: ModelFile,
    linear: Callable[[Tensor, Floats | None], Linear],
    embedding: Callable[[Tensor], Any],
    floats: Callable[[Tensor], Floats],
) -> DecoderWeights:
    """Collect a decoder's weights from a file, each in the form its makers give it."""

    def need(name: str) -> Tensor:
        tensor = file.tensor(name)
        if tensor is None:
            raise UnsupportedModel(
                f"`{file.path}` has no tensor `{name}`, which a {file.spec.architecture} model needs"
            )
        return tensor

    def project(name: str) -> Linear:
        bias = file.tensor(f"{name}.bias")
        return linear(need(f"{name}.weight"), None if bias is None else floats(bias))

    def norm(name: str) -> Floats:
        return floats(need(name)) + np.float32(file.spec.norm_offset)

    def optional(name: str) -> Floats | None:
        return norm(name) if file.has(name) else None

    layers = []
    for index in range(file.spec.layers):
        at = f"blk.{index}."
        layers.append(
            LayerWeights(
                q=project(at + "attn_q"),
                k=project(at + "attn_k"),
                v=project(at + "attn_v"),
                o=project(at + "attn_output"),
                gate=project(at + "ffn_gate"),
                up=project(at + "ffn_up"),
                down=project(at + "ffn_down"),
                attn_norm=optional(at + "attn_norm.weight"),
                ffn_norm=optional(at + "ffn_norm.weight"),
                q_norm=optional(at + "attn_q_norm.weight"),
                k_norm=optional(at + "attn_k_norm.weight"),
                post_attn_norm=optional(at + "post_attention_norm.weight"),
                post_ffn_norm=optional(at + "post_ffw_norm.weight"),
            )
        )
    # A file without an output matrix ties it to the embeddings: packed once, read by both.
    head = linear(file.tensor("output.weight") or need("token_embd.weight"), None)
    last = norm("output_norm.weight") * np.float32(file.spec.logit_scale)
    return DecoderWeights(embedding(need("token_embd.weight")), tuple(layers), last, head)
