# Written by tools/write_stub.py from the compiled module; change native/*.cpp instead.
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


class KVStore:
    def __init__(self, layers: int, kv_heads: int, head_dim: int, pages: int) -> None: ...

    @property
    def pages(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def copy_tokens(self, arg0: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> None: ...

    def copy_page(self, arg0: int, arg1: int, /) -> None: ...

    def token(self, layer: int, slot: int) -> list[int]:
        """f16 bits of one token's keys and values, interleaved; for tests"""

PAGE: int = 32

def isas() -> list[str]: ...

class Pool:
    def __init__(self, threads: int) -> None: ...

    @property
    def threads(self) -> int:
        """the most that are used"""

    @property
    def active(self) -> int:
        """how many the latest job used"""

    def contention(self) -> tuple[float, float]:
        """
        (wall, lost): thread seconds within jobs since the last call, and of these, ready to run but off core
        """

    def hold(self, threads: int) -> None:
        """use this many; 0 as many as pay"""

    def jitter(self, microseconds: int) -> None:
        """delay threads at random where order matters; for tests"""

    def run(self, phases: Sequence[tuple[int, int]], run: Callable[[int, int, int, int], None]) -> None:
        """phases of (tasks, grain), run(phase, begin, end, thread); for tests"""

class Governor:
    def __init__(self, most: int) -> None: ...

    @property
    def threads(self) -> int: ...

    def saw(self, kind: int, threads: int, seconds: float, lost: float, now: float) -> None: ...

class Weight:
    """A weight matrix packed for the kernels; layout.h says how."""

    @property
    def kind(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def cols(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def data(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]: ...

    def unpack_rows(self, begin: int, end: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]: ...

    def gather(self, rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Weight:
        """These rows as a matrix of their own."""

    def first(self, rows: int) -> Weight:
        """The first rows, at the same bytes."""

    def copy_row(self, row: int, source: Weight, source_row: int) -> None: ...

class EmbedTable:
    """Rows of embeddings, by token id."""

    def __init__(self, source: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ggml_type: int, rows: int, cols: int) -> None: ...

    @staticmethod
    def from_weight(weight: Weight) -> EmbedTable: ...

    @property
    def rows(self) -> int: ...

    @property
    def cols(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def lookup(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]: ...

def pack(source: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ggml_type: int, rows: int, cols: int, kind: str, pool: Pool) -> Weight:
    """
    Pack rows of a model file into tiles; ValueError when bytes, type and shape do not fit.
    """

def dequantize(source: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ggml_type: int, rows: int, cols: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
    """Rows of a model file as float32 [rows, cols]."""

def adjust(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], path: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], prompt_length: int, repetition: float, presence: float, frequency: float, bias_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], allowed: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, banned: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ban_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
    """write the adjusted row into `out`, float32 [V]"""

def draw(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, top_k: int, top_p: float, typical_p: float, min_p: float, seed: int, position: int, peaks: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> int: ...

def draw_among(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int) -> int:
    """`draw` where only these tokens, ascending, have logits"""

def survivors(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, top_k: int, top_p: float, min_p: float, typical_p: float = 1.0) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """int32 [n], best first: the tokens of the distribution"""

def kept(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], temperature: float, top_k: int, top_p: float, typical_p: float, min_p: float) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """int32 [n]: the same by id"""

def probability(logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: float, temperature: float) -> float:
    """how likely a token with logit `value` is, before any filter"""

def reaching(block: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], floor: float, end: float, first: int, group: int, isa: str = '') -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """
    int32 [n]: where, from `first` on, those groups of a block's logits begin of which one is in [floor, end)
    """

def philox(seed: int, stream: int, position: int, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], isa: str = '') -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """uint32 [n]: the words of these tokens"""

class ReadProbe:
    def __init__(self, pool: Pool, bytes: int) -> None: ...

    @property
    def nbytes(self) -> int: ...

    def read(self) -> float: ...

def dot_rate(pool: Pool, seconds: float) -> float: ...

class NgramIndex:
    def __init__(self, longest: int) -> None: ...

    def __len__(self) -> int: ...

    def follow(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """read a text's new tokens, or all of them if it is another text"""

    def find(self) -> tuple[int, int]:
        """(match length, position of what followed), or (0, 0)"""

    def copy(self, position: int, count: int) -> list[int]: ...

class Automaton:
    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def extend(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def follow(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """read a text's new tokens, or all of them if it is another text"""

    def count(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
        """how often these few tokens occurred"""

    def grow(self, shared: Sequence[Automaton], rates: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], nodes: int, depth: int, chain: bool) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None, None))], Annotated[NDArray[numpy.float32], dict(shape=(None, None))]]:
        """
        int32 [3, n]: token, parent, kind; float32 [2, n]: rate, value; the root first, then best first
        """

CONTEXT: int = 32

def top(logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: int, peaks: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None))]:
    """
    int32 [n, k]: the ids of each row's largest logits, best first; -1 where there are fewer
    """

class Program:
    def __init__(self, pool: Pool, isa: str = '') -> None: ...

    @property
    def isa(self) -> str: ...

    def buffer(self, width: int, wanted: bool = False) -> int: ...

    def rope(self, inverse_frequencies: Sequence[float], multiplier: float) -> int: ...

    def embed(self, table: EmbedTable, scale: float, out: int) -> None: ...

    def rms_norm(self, x: int, weight: Sequence[float], eps: float, out: int, accumulate: bool = False) -> None: ...

    def linear(self, x: int, parts: Sequence[tuple[Weight, Sequence[float], int]], accumulate: bool = False) -> None: ...

    def gated(self, x: int, gate: Weight, up: Weight, gelu: bool, out: int) -> None: ...

    def rotate_and_store(self, q: int, k: int, v: int, heads: int, kv_heads: int, head_dim: int, layer: int, rope: int, interleaved: bool, q_norm: Sequence[float], k_norm: Sequence[float], eps: float, growth: float = 0.0, period: int = 1) -> None: ...

    def attention(self, q: int, out: int, heads: int, kv_heads: int, head_dim: int, layer: int, window: int, scale: float, softcap: float) -> None: ...

    def keep_peaks(self, x: int) -> None: ...

    def gather(self, x: int, out: int) -> None: ...

    def softcap(self, x: int, cap: float) -> None: ...

    def forbid(self, x: int, ids: Sequence[int]) -> None: ...

    def tap(self, x: int, layer: int) -> None: ...

    def run(self, store: KVStore, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], taps: Sequence[int], vocab: int) -> None: ...

    def rows(self, id: int, count: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]:
        """f32 [count, width], valid until the next run"""

    def peaks(self, id: int, count: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C')] | None:
        """i32 [count, blocks] or None, valid until the next run"""

    def taps(self) -> list[tuple[int, int]]: ...

    def beyond(self) -> list[tuple[int, int]]:
        """
        (row of the last run, layer) of keys or values that sixteen bits cannot hold
        """

    def profile(self) -> list[tuple[str, float]]: ...

    def set_profiling(self, arg: bool, /) -> None: ...

class DraftLoop:
    """Drafts chains with a recorded forward pass."""

    def __init__(self, program: Program, logits: int, vocab: int, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def assign(self, row: int, id: int) -> None: ...

    def run(self, store: KVStore, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], wishes: Sequence[tuple[float, int, float, float, int, int, int, Sequence[float], float]], edges: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], kept: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], ahead: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], beside: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> object: ...
