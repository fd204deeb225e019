"""Wrong calls, keys, full queues, the end: each with its status and OpenAI's body of an error."""

import concurrent.futures
import re
import threading
import time
from pathlib import Path

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import ModelNotFound
from paceline.service.llm import LLM
from tests.server.conftest import Served, serving

ASK = [{"role": "user", "content": "Say something."}]


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"max_token": 3}, "max_token", "did you mean `max_tokens`?"),
        ({"speculation": {"draft_token": 3}}, "speculation", "draft_token"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"n": 99}, "n", "less than or equal to 16"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role", "'user'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
         "messages.0.content", "text"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"max_tokens": 3, "max_completion_tokens": 3}, "max_tokens", "give one"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "99999"),
        ({"speculation": {"draft": "magic"}}, "speculation.draft", "predicted, suffix"),
        ({"speculation": {"verify": "rejection"}}, "speculation.verify", "`coupled`"),
        ({"speculation": False, "prediction": {"type": "content", "content": "x"}}, "prediction", "turns off"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "needs json_schema.schema"),
        ({"structured_outputs": {"regex": "(a"}}, "grammar", "can be read"),
        ({"structured_outputs": {}}, "structured_outputs", "got none"),
        ({"tool": []}, "tool", "did you mean `tools`"),
        ({"tools": [{"type": "function"}]}, "tools.0.function", "Field required"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "match"),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "tools", "template"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"chat_template_kwargs": {"think": True}}, "chat_template_kwargs", "reads"),
        ({"timeout": 0}, "timeout", "greater than 0"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, "messages", "context holds"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_call_is_400_and_names_the_field(served, change, param, said, stream):
    answer = served.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 2, "stream": stream} | change)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), answer.text
    assert said in error["message"]
    assert error["param"].startswith(param), error


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[]", 400), (b"", 400), (b"\xff", 400), (b'{"messages": 1}', 400)]
)
def test_a_body_that_is_no_request_is_400(served, body, status):
    answer = httpx.post(f"{served.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_other_paths_and_methods_have_errors_of_the_same_shape(served):
    assert httpx.get(f"{served.url}/v2").json()["error"]["code"] == "not_found"
    assert httpx.get(f"{served.url}/v1/completions").status_code == 405


NAMES = ["model", "messages", "prompt", "n", "stream", "temperature", "stop", "logit_bias", "seed", "prediction"]
NAMES += ["speculation", "response_format", "structured_outputs", "logprobs", "max_tokens", "top_k", "echo"]
INNER = ["role", "content", "type", "text", "user", "regex", "draft", "x"]
FIELDS = st.dictionaries(
    st.sampled_from(NAMES),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FIELDS, st.sampled_from(["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"]))
def test_no_body_makes_the_server_fail(served, body, path):
    usual = (
        {"messages": ASK, "max_tokens": 1}
        if "chat" in path
        else {"prompt": "x", "max_tokens": 1}
        if "comp" in path
        else {}
    )
    answer = served.post(path, usual | body | {"max_tokens": 1} if usual else body)
    assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text)


def test_unknown_fields_are_left_out_where_the_server_tolerates_them(talker):
    with serving(lambda: LLM(talker, draft="off", context=512), allows_unknown=True) as server:
        body = {"messages": ASK, "max_tokens": 2, "tools": [], "service_tier": "auto"}
        assert server.post("/v1/chat/completions", body).status_code == 200
        assert server.post("/v1/chat/completions", body | {"temperature": -1}).status_code == 400


def test_only_known_keys_are_let_in(talker):
    with serving(lambda: LLM(talker, draft="off", context=512), keys=["one", "two"]) as server:
        body = {"messages": ASK, "max_tokens": 1}
        for key, status in ((None, 401), ("x", 401), ("three", 401), ("one", 200), ("two", 200)):
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            answer = server.post("/v1/chat/completions", body, headers=headers)
            assert answer.status_code == status, answer.text
        assert answer.json()["choices"]
        assert httpx.get(f"{server.url}/metrics").status_code == 401
        assert [httpx.get(f"{server.url}{path}").status_code for path in ("/", "/health", "/page.js")] == [200] * 3
        with pytest.raises(openai.AuthenticationError):
            server.client().models.list()


def test_large_bodies_are_refused_with_and_without_a_length(talker):
    with serving(lambda: LLM(talker, draft="off", context=512), body_bytes=1000) as server:
        answer = server.post("/v1/completions", {"prompt": "x" * 2000})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        chunks = iter([b'{"prompt": "' + b"x" * 900, b"x" * 900 + b'"}'])
        answer = httpx.post(
            f"{server.url}/v1/completions", content=chunks, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413


def test_a_full_queue_says_when_to_come_back(talker):
    with serving(lambda: LLM(talker, draft="off", context=4096, slots=1), most_waiting=1) as server:
        body = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "temperature": 0}
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda _: server.post("/v1/completions", body), range(12)))
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 2
        refused = answers[statuses.index(429)]
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["Retry-After"]) >= 1
        texts = {answer.json()["choices"][0]["text"] for answer in answers if answer.status_code == 200}
        assert len(texts) == 1


def test_until_the_model_is_there_requests_are_told_to_wait(talker):
    go = threading.Event()

    def slow():
        go.wait()
        return LLM(talker, draft="off", context=512)

    server = Served(slow)
    try:
        wait_for(f"{server.url}/health")
        assert httpx.get(f"{server.url}/ready").status_code == 503
        answer = server.post("/v1/chat/completions", {"messages": ASK})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
        assert "Retry-After" in answer.headers
        go.set()
        server.ready()
        assert server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 1}).status_code == 200
    finally:
        go.set()
        server.end()


def test_a_model_that_cannot_be_loaded_is_told_of():
    def fail():
        raise ModelNotFound("no such model: `x`")

    server = Served(fail)
    try:
        wait_for(f"{server.url}/v1/models")
        answer = server.post("/v1/chat/completions", {"messages": ASK})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_loaded")
        assert httpx.get(f"{server.url}/health").status_code == 500
    finally:
        server.end()


def test_the_end_waits_for_open_replies(talker):
    server = Served(lambda: LLM(talker, draft="off", context=4096)).ready()
    body = {"prompt": "x", "max_tokens": 2500, "ignore_eos": True, "temperature": 0}
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        answer = thread.submit(server.post, "/v1/completions", body)
        while not server.host.open_replies:
            time.sleep(0.005)
        server.end()
        assert answer.result().json()["usage"]["completion_tokens"] == 2500
    with pytest.raises(httpx.ConnectError):
        server.post("/v1/completions", body)


def test_many_clients_share_a_small_cache_and_all_end(talker):
    def load():
        llm = LLM(talker, draft="predicted,suffix", context=256, slots=8)
        whole = llm.engine.cache.store.pages // 8
        return LLM(talker, draft="predicted,suffix", context=256, slots=8,
                   cache_bytes=2 * whole * llm.target.model.page_bytes)  # fmt: skip

    with serving(load, most_waiting=40) as server:
        alone = {}

        def ask(i):
            body = {
                "prompt": f"prompt {i % 8}",
                "max_tokens": 100 + i % 8,
                "seed": i % 8,
                "temperature": 0.7 * (i % 2),
                "ignore_eos": True,
            }
            answer = server.post("/v1/completions", body)
            return i % 8, answer.status_code, answer.json()["choices"][0]["text"]

        with concurrent.futures.ThreadPoolExecutor(32) as threads:
            for which, status, text in threads.map(ask, range(32)):
                assert status == 200
                assert alone.setdefault(which, text) == text
        assert server.host.open_replies == 0
        server.host.loaded.service.call(server.host.loaded.engine.parts.scheduler.check)


def test_metrics_count_what_was_generated(talker):
    with serving(lambda: LLM(talker, draft="suffix", context=1024, control="fixed")) as server:
        said = server.post("/v1/completions", {"prompt": "abab" * 20, "max_tokens": 300, "temperature": 0}).json()
        lines = dict(
            line.rsplit(" ", 1)
            for line in httpx.get(f"{server.url}/metrics").text.splitlines()
            if not line.startswith("#")
        )

        def value(name):
            return float(lines[f'paceline:{name}{{model_name="tiny"}}'])

        assert value("generation_tokens_total") == 300
        assert value("prompt_tokens_total") == said["usage"]["prompt_tokens"]
        assert value("spec_decode_num_draft_tokens_total") == said["speculation"]["drafted_tokens"] > 0
        assert value("spec_decode_num_accepted_tokens_total") == said["speculation"]["accepted_tokens"]
        assert value("time_to_first_token_seconds_count") == 1
        assert value("inter_token_latency_seconds_count") == 299
        assert value("num_requests_running") == value("kv_cache_usage_perc") == 0


def wait_for(url):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            return httpx.get(url)
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError(url)


@pytest.mark.parametrize("shares", [False, True])
def test_keys_find_each_others_prefixes_only_if_they_share(talker, shares):
    with serving(lambda: LLM(talker, draft="off", context=512), keys=["one", "two"], shares_prefixes=shares) as server:

        def cached(key, salt=None):
            body = {"prompt": "x" * 200, "max_tokens": 1} | ({"cache_salt": salt} if salt else {})
            said = server.post("/v1/completions", body, headers={"Authorization": f"Bearer {key}"}).json()
            return said["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert [cached("one"), cached("one"), cached("two"), cached("two")] == [0, 192, 192 * shares, 192]
        assert [cached("one", "a"), cached("one", "a"), cached("one", "b"), cached("one")] == [0, 192, 0, 192]


def test_the_dashboard_asks_for_counters_that_exist(served):
    served.post("/v1/completions", {"prompt": "abab" * 20, "max_tokens": 200, "temperature": 0})
    known = httpx.get(f"{served.url}/metrics").text
    dashboard = (Path(__file__).parents[2] / "docs" / "guides" / "grafana.json").read_text()
    asked = set(re.findall(r"paceline:\w+", dashboard))
    assert len(asked) > 10
    for name in asked:
        assert f"# TYPE {name.removesuffix('_bucket')} " in known, name
