"""A Hugging Face hub on 127.0.0.1, as much of it as a download needs, that fails when told to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from paceline.formats.catalog import Known

BODY = os.urandom(200_000)
KNOWN = Known("tiny", len(BODY), hashlib.sha256(BODY).hexdigest(), "MIT", "org/tiny-GGUF", "tiny.gguf")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Serve `repos`: {"org/name": {"file": bytes}}. The fields below `url` are for tests to read and set."""

    repos: dict[str, dict[str, bytes]]
    url: str = ""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Range
    cut_after: int | None = None  # break off each transfer after so many bytes
    serve_gets: int | None = None  # answer so many, 500 to all others
    corrupt: bool = False
    gated: bool = False
    ignore_range: bool = False

    def ranges(self) -> list[str | None]:
        return [wanted for method, path, wanted in self.requests if method == "GET" and "/resolve/" in path]


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.cut_after is not None and len(body) > hub.cut_after:
                self.wfile.write(body[: hub.cut_after])
                self.close_connection = True
            else:
                self.wfile.write(body)

        def fail(self, status: int, code: str) -> None:
            self.reply(status, headers={"X-Error-Code": code, "X-Error-Message": code})

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            hub.requests.append((self.command, self.path, self.headers.get("Range")))
            path = self.path.split("?")[0].strip("/")
            if path.startswith("api/models/"):
                repo = "/".join(path.split("/")[2:4])
                if repo not in hub.repos:
                    return self.fail(401, "RepoNotFound")
                siblings = [{"rfilename": name} for name in hub.repos[repo]]
                body = json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}).encode()
                return self.reply(200, body, {"Content-Type": "application/json"})
            repo, _, rest = path.partition("/resolve/")
            name = rest.partition("/")[2]
            if repo not in hub.repos:
                return self.fail(401, "RepoNotFound")
            if hub.gated:
                return self.fail(403, "GatedRepo")
            if name not in hub.repos[repo]:
                return self.fail(404, "EntryNotFound")
            body = hub.repos[repo][name]
            etag = hashlib.sha256(body).hexdigest()
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            if self.command == "GET" and hub.serve_gets is not None:
                if hub.serve_gets == 0:
                    return self.reply(500)
                hub.serve_gets -= 1
            if hub.corrupt:
                body = bytes(len(body))
            wanted = self.headers.get("Range")
            if wanted is None or hub.ignore_range:
                return self.reply(200, body, headers)
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            return self.reply(206, body[start:], headers)

    return Handler


@contextlib.contextmanager
def serve(repos: dict[str, dict[str, bytes]]) -> Iterator[FakeHub]:
    """Run a hub in a thread while the context lasts."""
    hub = FakeHub(repos)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def finals(home: Path) -> list[str]:
    """List what lies under final names."""
    return sorted(path.relative_to(home).as_posix() for path in home.rglob("*.gguf") if ".partial" not in path.parts)
