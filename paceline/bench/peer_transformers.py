"""The other end of a transformers peer: a Hugging Face model in a process of its own, answering as `peer.serve` does.

Knows nothing of Paceline but the line it answers with. Weights of a GGUF file are unpacked to bfloat16.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

LOOKUP_TOKENS = 10  # what its documentation suggests


class Clock:
    """A streamer that notes when the first tokens came, and how many they were."""

    def __init__(self) -> None:
        self.started, self.first, self.count = time.perf_counter(), 0.0, 0
        self._is_prompt = True

    def put(self, tokens: Any) -> None:
        if self._is_prompt:
            self._is_prompt = False
        elif not self.first:
            self.first, self.count = time.perf_counter(), int(tokens.numel())

    def end(self) -> None:
        """Nothing is kept back."""


def serve(file: str, threads: int, context: int, mode: str, draft: str) -> None:
    """Answer requests from stdin until it closes; only our own lines reach stdout."""
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        torch.set_num_threads(threads)
        model = load(Path(file))
        options: dict[str, Any] = {}
        if mode == "draft":
            options["assistant_model"] = load(Path(draft))
        elif mode == "lookup":
            options["prompt_lookup_num_tokens"] = LOOKUP_TOKENS
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}, {model.dtype}"
        answer({"system": versions, "package": "transformers"})
        for line in sys.stdin:
            answer(reply(model.generate, json.loads(line), options))
    except Exception as error:  # the parent is told and decides; a traceback would go nowhere
        answer({"error": f"{type(error).__name__}: {error}"[:300]})
    answers.flush()
    os._exit(0)


def load(path: Path) -> Any:
    """Load a Hugging Face folder or a GGUF file."""
    of_file = {} if path.is_dir() else {"gguf_file": path.name}
    folder = path if path.is_dir() else path.parent
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **of_file).eval()


def reply(generate: Callable[..., Any], asked: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Continue the ids asked about; the first tokens that come, several if they were drafted, count as one."""
    prompt = torch.tensor([asked["prompt"]])
    clock = Clock()
    torch.manual_seed(asked["seed"])
    distribution: dict[str, Any] = {"do_sample": False}
    if asked["temperature"] > 0:
        distribution = {"do_sample": True, "temperature": asked["temperature"], "top_k": 0, "top_p": 1.0}
    with torch.inference_mode():
        out = generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=asked["max_tokens"],
            min_new_tokens=asked["max_tokens"] if asked["ignore_eos"] else None,
            streamer=clock,
            **distribution,
            **options,
        )
    ended = time.perf_counter()
    count = int(out.shape[1]) - len(asked["prompt"])
    return {
        "prompt_n": len(asked["prompt"]),
        "prompt_ms": 1e3 * (clock.first - clock.started),
        "predicted_n": count - clock.count + 1,
        "predicted_ms": 1e3 * (ended - clock.first),
    }


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
