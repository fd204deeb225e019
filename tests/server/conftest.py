"""A server in a thread with a tiny model, or with the default one, and OpenAI's own client for it."""

import contextlib
import socket
import threading
import time

import httpx
import openai
import pytest
import uvicorn
from talker import write_talker

from paceline.server.app import Limits, create_app
from paceline.server.bridge import Host
from paceline.server.metrics import Metrics
from paceline.server.shelf import Shelf
from paceline.service.llm import LLM


class Served:
    """A running server."""

    def __init__(self, load, *, most_waiting=64, most_bytes=None, idle_seconds=None, **limits):
        self._clients, metrics = [], Metrics()
        loads = load if isinstance(load, dict) else {"tiny": load}
        self.hosts = [
            Host(name, one, metrics.of(name), most_waiting=most_waiting, size=lambda: 1) for name, one in loads.items()
        ]
        self.host = self.hosts[0]
        self.shelf = Shelf(self.hosts, most_bytes=most_bytes, idle_seconds=idle_seconds)
        self.app = create_app(self.shelf, Limits(drain_seconds=5, **limits), metrics)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="error", timeout_graceful_shutdown=10))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def ready(self):
        end = time.monotonic() + 60
        while httpx.get(f"{self.url}/ready").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.02)
        return self

    def client(self, **settings):
        self._clients.append(openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **settings))
        return self._clients[-1]

    def post(self, path, body, **settings):
        return httpx.post(f"{self.url}{path}", json=body, timeout=60, **settings)

    def end(self):
        for client in self._clients:
            client.close()
        self.server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def served(talker):
    """One server of the tiny model for all tests that change nothing of it."""
    with serving(lambda: LLM(talker, draft="predicted,suffix", context=2048, slots=4)) as server:
        yield server


@contextlib.contextmanager
def serving(load, **settings):
    server = Served(load, **settings)
    try:
        yield server.ready()
    finally:
        server.end()


@pytest.fixture(scope="session")
def alone(talker):
    """The same model without a server."""
    return LLM(talker, draft="off", context=2048)


# ---- models that call tools, and that think

TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }} <tool_call>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.city }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>' if enable_thinking }}{% endif %}</think>"
)


@pytest.fixture(scope="session")
def caller(tmp_path_factory):
    path = write_talker(tmp_path_factory.mktemp("caller") / "caller.gguf", template=TEMPLATE.replace("</think>", "", 1))
    with serving(lambda: LLM(path, draft="suffix", context=2048, slots=4)) as server, server.client() as client:
        yield client


@pytest.fixture(scope="session")
def thinker(tmp_path_factory):
    path = write_talker(
        tmp_path_factory.mktemp("thinker") / "thinker.gguf",
        template=TEMPLATE.removesuffix("</think>") + "{# </think> #}",
    )
    with serving(lambda: LLM(path, draft="suffix", context=2048, slots=4)) as server, server.client() as client:
        yield client
