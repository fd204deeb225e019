"""The shapes of well-known models, from their published config.json: enough to count bytes and operations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a dense decoder; `tied` models have no output matrix of their own."""

    name: str
    layers: int
    width: int
    ffn_width: int
    heads: tuple[int, int]  # queries, keys
    head_dim: int
    vocab: int
    tied: bool

    @property
    def layer_parameters(self) -> int:
        queries, keys = self.heads
        attention = self.width * self.head_dim * (2 * queries + 2 * keys)
        return self.layers * (attention + 3 * self.width * self.ffn_width)

    @property
    def head_parameters(self) -> int:
        return self.vocab * self.width

    @property
    def parameters(self) -> int:
        """All that is stored, but for norms and biases."""
        return self.layer_parameters + self.head_parameters * (1 if self.tied else 2)

    @property
    def read_parameters(self) -> int:
        """What a token's forward reads: all but the embeddings, of which it looks one up."""
        return self.layer_parameters + self.head_parameters

    def kv_bytes(self, tokens: float, bytes_each: float = 2.0) -> float:
        """Return the bytes of keys and values behind `tokens` tokens."""
        return 2 * self.layers * self.heads[1] * self.head_dim * bytes_each * tokens


def _shape(
    name: str,
    layers: int,
    width: int,
    ffn: int,
    heads: int,
    keys: int,
    vocab: int,
    tied: bool = False,
    *,
    head_dim: int | None = None,
) -> Shape:
    return Shape(name, layers, width, ffn, (heads, keys), head_dim or width // heads, vocab, tied)


# By the vocabulary they share: each model's numbers, and the repository on the hub whose config.json has them.
PUBLISHED = {
    "Llama 2": (
        (_shape("llama-2-7b", 32, 4096, 11008, 32, 32, 32000), "meta-llama/Llama-2-7b-hf"),
        (_shape("llama-2-13b", 40, 5120, 13824, 40, 40, 32000), "meta-llama/Llama-2-13b-hf"),
        (_shape("llama-2-70b", 80, 8192, 28672, 64, 8, 32000), "meta-llama/Llama-2-70b-hf"),
        (_shape("tinyllama-1.1b", 22, 2048, 5632, 32, 4, 32000), "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    ),
    "Llama 3": (
        (_shape("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128256), "meta-llama/Llama-3.1-8B"),
        (_shape("llama-3.1-70b", 80, 8192, 28672, 64, 8, 128256), "meta-llama/Llama-3.1-70B"),
        (_shape("llama-3.2-1b", 16, 2048, 8192, 32, 8, 128256, tied=True), "meta-llama/Llama-3.2-1B"),
        (_shape("llama-3.2-3b", 28, 3072, 8192, 24, 8, 128256, tied=True), "meta-llama/Llama-3.2-3B"),
    ),
    "Mistral": ((_shape("mistral-7b", 32, 4096, 14336, 32, 8, 32768), "mistralai/Mistral-7B-v0.3"),),
    "Qwen 2.5": (
        (_shape("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 151936, tied=True), "Qwen/Qwen2.5-0.5B"),
        (_shape("qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 151936, tied=True), "Qwen/Qwen2.5-1.5B"),
        (_shape("qwen2.5-3b", 36, 2048, 11008, 16, 2, 151936, tied=True), "Qwen/Qwen2.5-3B"),
        (_shape("qwen2.5-7b", 28, 3584, 18944, 28, 4, 152064), "Qwen/Qwen2.5-7B"),
        (_shape("qwen2.5-14b", 48, 5120, 13824, 40, 8, 152064), "Qwen/Qwen2.5-14B"),
        (_shape("qwen2.5-32b", 64, 5120, 27648, 40, 8, 152064), "Qwen/Qwen2.5-32B"),
        (_shape("qwen2.5-72b", 80, 8192, 29568, 64, 8, 152064), "Qwen/Qwen2.5-72B"),
    ),
    "Qwen 3": (
        (_shape("qwen3-0.6b", 28, 1024, 3072, 16, 8, 151936, tied=True, head_dim=128), "Qwen/Qwen3-0.6B"),
        (_shape("qwen3-1.7b", 28, 2048, 6144, 16, 8, 151936, tied=True, head_dim=128), "Qwen/Qwen3-1.7B"),
        (_shape("qwen3-4b", 36, 2560, 9728, 32, 8, 151936, tied=True, head_dim=128), "Qwen/Qwen3-4B"),
        (_shape("qwen3-8b", 36, 4096, 12288, 32, 8, 151936), "Qwen/Qwen3-8B"),
        (_shape("qwen3-14b", 40, 5120, 17408, 40, 8, 151936), "Qwen/Qwen3-14B"),
        (_shape("qwen3-32b", 64, 5120, 25600, 64, 8, 151936, head_dim=128), "Qwen/Qwen3-32B"),
    ),
    "Gemma 3": (
        (_shape("gemma-3-1b", 26, 1152, 6912, 4, 1, 262144, tied=True, head_dim=256), "google/gemma-3-1b-it"),
        (_shape("gemma-3-4b", 34, 2560, 10240, 8, 4, 262208, tied=True, head_dim=256), "google/gemma-3-4b-it"),
        (_shape("gemma-3-12b", 48, 3840, 15360, 16, 8, 262208, tied=True, head_dim=256), "google/gemma-3-12b-it"),
        (_shape("gemma-3-27b", 62, 5376, 21504, 32, 16, 262208, tied=True, head_dim=128), "google/gemma-3-27b-it"),
    ),
    "SmolLM 2": (
        (_shape("smollm2-135m", 30, 576, 1536, 9, 3, 49152, tied=True), "HuggingFaceTB/SmolLM2-135M"),
        (_shape("smollm2-360m", 32, 960, 2560, 15, 5, 49152, tied=True), "HuggingFaceTB/SmolLM2-360M"),
        (_shape("smollm2-1.7b", 24, 2048, 8192, 32, 32, 49152, tied=True), "HuggingFaceTB/SmolLM2-1.7B"),
    ),
}
SHAPES = {shape.name: shape for models in PUBLISHED.values() for shape, _ in models}
SOURCES = {
    shape.name: f"https://huggingface.co/{repository}/blob/main/config.json"
    for models in PUBLISHED.values()
    for shape, repository in models
}
VOCABULARIES = {shape.name: name for name, models in PUBLISHED.items() for shape, _ in models}
# Short names.
ALIASES = {
    "1b": "llama-3.2-1b", "3b": "llama-3.2-3b", "7b": "llama-2-7b", "8b": "llama-3.1-8b", "13b": "llama-2-13b",
    "70b": "llama-3.1-70b", "qwen2.5-coder-0.5b": "qwen2.5-0.5b", "qwen2.5-coder-1.5b": "qwen2.5-1.5b",
    "qwen2.5-coder-7b": "qwen2.5-7b", "0.5b": "qwen2.5-0.5b", "1.5b": "qwen2.5-1.5b",
}  # fmt: skip
SMALLER = 3  # times: a draft must be that much smaller to be proposed


def drafts_for(target: Shape) -> list[str]:
    """Return the known models with the target's vocabulary that are enough smaller, the smallest first."""
    family = VOCABULARIES.get(target.name)
    sized = sorted((shape.read_parameters, name) for name, shape in SHAPES.items() if VOCABULARIES[name] == family)
    return [name for parameters, name in sized if parameters * SMALLER <= target.read_parameters]
