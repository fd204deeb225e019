"""llama.cpp in a process of its own, asleep while we measure: the same file, the same threads, the same token ids.

A process has one way of speculating, its `mode`, because llama.cpp sets that up with the model.
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
from paceline.core.aliases import Json

PACKAGE = "xllamacpp"
PLAIN, DRAFT = "plain", "draft"
MODES = {
    PLAIN: "NONE",
    DRAFT: "DRAFT_SIMPLE",
    "ngram-simple": "NGRAM_SIMPLE",
    "ngram-map-k": "NGRAM_MAP_K",
    "ngram-map-k4v": "NGRAM_MAP_K4V",
    "ngram-mod": "NGRAM_MOD",
    "ngram-cache": "NGRAM_CACHE",
}
"""What a peer may do, each as llama.cpp ships it, and the name its package has for it."""


class PeerError(Exception):
    """The peer cannot be measured; the suites go on without it."""


@dataclass(frozen=True, slots=True)
class Timings:
    """What the peer says of one reply. `decode_seconds` covers the tokens after the first, as ours does."""

    prompt_tokens: int
    prompt_seconds: float
    tokens: int
    decode_seconds: float
    drafted: int = 0
    accepted: int = 0

    @property
    def seconds_per_token(self) -> float:
        return self.decode_seconds / (self.tokens - 1) if self.tokens > 1 else 0.0


class Peer:
    """A running llama.cpp with one model; `draft` is the file of the one that drafts for it in mode "draft".

    Other engines are subclasses that name another child, which speaks the same lines.
    """

    name, package, child = "llama.cpp", PACKAGE, __name__
    cure = 'pip install "paceline[bench]"'

    def __init__(self, file: Path, threads: int, context: int, *, mode: str = PLAIN, draft: Path | None = None) -> None:
        if importlib.util.find_spec(self.package) is None:
            raise PeerError(f"{self.package} is not installed ({self.cure})")
        for path in (file, *([draft] if draft else [])):
            self.check(path)
        # Its own session: Ctrl-C is for us, and we end the child.
        self._child = subprocess.Popen(
            [sys.executable, "-m", self.child, str(file), str(threads), str(context), mode, str(draft or "")],
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

    def check(self, file: Path) -> None:
        """Refuse a file it cannot read."""
        if file.suffix != ".gguf":
            raise PeerError(f"{self.name} reads GGUF files, `{file.name}` is none")

    def complete(
        self,
        tokens: Sequence[int],
        count: int,
        *,
        keep: bool = False,
        temperature: float = 0.0,
        seed: int = 0,
        ignore_eos: bool = True,
    ) -> Timings:
        """Continue token ids by `count` tokens, or fewer if an end may come.

        Args:
            keep: let it reuse what its cache holds of them.
        """
        self._send(
            {
                "prompt": [int(token) for token in tokens],
                "max_tokens": count,
                "temperature": temperature,
                "seed": seed,
                "samplers": ["temperature"],  # the least work it can do per token
                "ignore_eos": ignore_eos,
                "cache_prompt": keep,
            }
        )
        answer = self._answer()
        self._wait_until_idle()
        return Timings(
            answer["prompt_n"],
            answer["prompt_ms"] / 1e3,
            answer["predicted_n"],
            answer["predicted_ms"] / 1e3,
            answer.get("draft_n", 0),
            answer.get("draft_n_accepted", 0),
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
            raise PeerError(f"{self.name} ended unexpectedly (exit code {self._child.poll()})") from error

    def _answer(self) -> Json:
        assert self._child.stdout
        line = self._child.stdout.readline()
        if not line:
            raise PeerError(f"{self.name} ended unexpectedly (exit code {self._child.wait()})")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
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


def serve(file: str, threads: int, context: int, mode: str, draft: str) -> None:
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
        if mode != PLAIN:
            speculative = params.speculative
            speculative.types = [getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{MODES[mode]}")]
            if draft:
                speculative.draft.mparams.path = draft
                speculative.draft.cpuparams.n_threads = speculative.draft.cpuparams_batch.n_threads = threads
        server = xllamacpp.Server(params)
        answer({"system": xllamacpp.get_system_info().strip(" |"), "package": PACKAGE})
        for line in sys.stdin:
            reply = server.handle_completions(json.loads(line))
            if "timings" not in reply:
                answer({"error": str(reply)[:300]})
                continue
            answer(reply["timings"])
    except Exception as error:  # the parent is told and decides; a traceback would go nowhere
        answer({"error": f"{type(error).__name__}: {error}"[:300]})
    answers.flush()
    os._exit(0)  # its server threads need no farewell


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
