"""Write reference.json: what llama.cpp makes of corpus.txt, as one checksum a line.

Needs `pip install paceline[bench]` and the models. `python tests/text/make_reference.py MODEL.gguf...`
Each model must be given under the name it has in Paceline's cache. Only the given ones are renewed.
"""

import base64
import hashlib
import json
import struct
import sys
import urllib.request
import zlib
from pathlib import Path

HERE = Path(__file__).parent
MODES = ("plain", "special")


def texts() -> list[str]:
    lines = (HERE / "corpus.txt").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def checksum(ids: list[int]) -> bytes:
    return struct.pack("<I", zlib.crc32(struct.pack(f"<{len(ids)}I", *ids)))


def corpus_digest() -> str:
    return hashlib.sha256((HERE / "corpus.txt").read_bytes()).hexdigest()


def ask(url: str, text: str, *, parse_special: bool) -> list[int]:
    body = {"content": text, "add_special": False, "parse_special": parse_special}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def reference(path: str) -> dict[str, str]:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 64, 1, False, 0
    server = Server(params)
    url = server.listening_address + "/tokenize"
    return {
        mode: base64.b64encode(
            b"".join(checksum(ask(url, text, parse_special=mode == "special")) for text in texts())
        ).decode()
        for mode in MODES
    }


if __name__ == "__main__":
    target = HERE / "reference.json"
    kept = json.loads(target.read_text()) if target.exists() else {}
    if kept.get("corpus") != corpus_digest():
        kept = {"corpus": corpus_digest(), "models": {}}
    for argument in sys.argv[1:]:
        kept["models"][Path(argument).stem] = reference(argument)
    target.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
