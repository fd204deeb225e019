"""llama.cpp's own server, from xllamacpp, for `serving.py`. As a script: FILE SLOTS CONTEXT MODE DRAFT THREADS."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx

from paceline.formats.catalog import resolve

KINDS = {"draft": "DRAFT_SIMPLE", "ngram-mod": "NGRAM_MOD", "ngram-simple": "NGRAM_SIMPLE"}


@contextlib.contextmanager
def llama_server(model: str, mode: str, draft: str, slots: int) -> Iterator[str]:
    """Start the server in a process of its own; give its URL once it is ready."""
    files = [str(resolve(one)) if one else "" for one in (model, draft)]
    line = [sys.executable, __file__, files[0], str(slots), "2048", mode, files[1], str(os.cpu_count())]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if not said:
            sys.exit("error: llama.cpp's server did not start; is xllamacpp installed?")
        url = said if said.startswith("http") else f"http://{said}"
        while httpx.get(f"{url}/health").status_code != 200:
            time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def main() -> None:
    import xllamacpp

    file, slots, context, mode, draft, threads = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path, params.n_parallel, params.n_ctx = file, int(slots), int(slots) * int(context)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    params.verbosity = -1
    if mode in KINDS:
        kind = getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{KINDS[mode]}")
        params.speculative.types = [kind]
    if mode == "draft":
        own = params.speculative.draft
        own.mparams.path = draft
        own.cpuparams.n_threads = own.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
