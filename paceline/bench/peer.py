"""llama.cpp in a process of its own, asleep while we measure: the same file, the same threads, the same token ids.

This file is both ends: `Peer` here, and the child it starts, which knows nothing of Paceline.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.bench.machine import cpu_seconds
from paceline.types import Json

PACKAGE = "xllamacpp"


class PeerError(Exception):
    """The peer cannot be measured; the suites go on without it."""


@dataclass(frozen=True, slots=True)
class Timings:
    """What the peer says of one reply. `decode_seconds` covers the tokens after the first, as ours does."""

    prompt_tokens: int
    prompt_seconds: float
    tokens: int
    decode_seconds: float

    @property
    def seconds_per_token(self) -> float:
        return self.decode_seconds / (self.tokens - 1) if self.tokens > 1 else 0.0


class Peer:
    """A running llama.cpp with one model."""

    def __init__(self, file: Path, threads: int, context: int) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise PeerError(f'{PACKAGE} is not installed (pip install "paceline[bench]")')
        if file.suffix != ".gguf":
            raise PeerError(f"llama.cpp reads GGUF files, `{file.name}` is none")
        # Its own session: Ctrl-C is for us, and we end the child.
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, str(file), str(threads), str(context)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._child.pid
        self.idle_cores = 0.0
        try:
            self.about: Json = self._answer()
        except BaseException:  # also Ctrl-C while the model loads
            self.close()
            raise

    def complete(self, tokens: Sequence[int], count: int, *, keep: bool = False) -> Timings:
        """Greedily continue token ids by `count` tokens; `keep` lets it reuse what its cache holds of them."""
        self._send({"tokens": [int(token) for token in tokens], "count": count, "keep": keep})
        answer = self._answer()
        self._wait_until_idle()
        return Timings(
            answer["prompt_n"], answer["prompt_ms"] / 1e3, answer["predicted_n"], answer["predicted_ms"] / 1e3
        )

    def close(self) -> None:
        """End the child."""
        if self._child.stdin:
            with contextlib.suppress(OSError):  # a lost child leaves a request unread
                self._child.stdin.close()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout:
            self._child.stdout.close()

    def _send(self, message: Json) -> None:
        assert self._child.stdin
        try:
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise PeerError(f"llama.cpp ended unexpectedly (exit code {self._child.poll()})") from error

    def _answer(self) -> Json:
        assert self._child.stdout
        line = self._child.stdout.readline()
        if not line:
            raise PeerError(f"llama.cpp ended unexpectedly (exit code {self._child.wait()})")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise PeerError(f"llama.cpp: {answer['error']}")
        return answer

    def _wait_until_idle(self, limit: float = 2.0) -> None:
        """Its threads may spin after a reply; wait until they sleep, and note what they still use if they do not."""
        step, ended = 0.03, time.perf_counter() + limit
        while True:
            before = cpu_seconds(self.pid)
            time.sleep(step)
            used = (cpu_seconds(self.pid) - before) / step
            if used == 0 or time.perf_counter() > ended:
                self.idle_cores = max(self.idle_cores, used)
                return


def serve(file: str, threads: int, context: int) -> None:
    """Answer requests from stdin until it closes; only our own lines reach stdout."""
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)

    def answer(message: Json) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = file
        params.n_ctx, params.n_parallel, params.verbosity = context, 1, -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        server = xllamacpp.Server(params)
        answer({"system": xllamacpp.get_system_info().strip(" |"), "package": PACKAGE})
        for line in sys.stdin:
            asked = json.loads(line)
            reply = server.handle_completions(
                {
                    "prompt": asked["tokens"],
                    "max_tokens": asked["count"],
                    "temperature": 0,
                    "samplers": ["temperature"],  # the least work it can do per token
                    "ignore_eos": True,
                    "cache_prompt": asked["keep"],
                }
            )
            if "timings" not in reply:
                answer({"error": str(reply)[:300]})
                continue
            answer(reply["timings"])
    except Exception as error:  # the parent is told and decides; a traceback would go nowhere
        answer({"error": f"{type(error).__name__}: {error}"[:300]})
    answers.flush()
    os._exit(0)  # its server threads need no farewell


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
