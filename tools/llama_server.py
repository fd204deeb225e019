"""Run llama.cpp's own server, from xllamacpp, for `serving.py`: FILE SLOTS CONTEXT MODE DRAFT THREADS."""

from __future__ import annotations

import sys
import time

import xllamacpp

KINDS = {"draft": "DRAFT_SIMPLE", "ngram-mod": "NGRAM_MOD", "ngram-simple": "NGRAM_SIMPLE"}


def main() -> None:
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
