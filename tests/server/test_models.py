"""Several models of one server: loaded when asked for, unloaded for others, never while a reply uses them."""

import concurrent.futures
import time
import weakref

import httpx
import pytest
from talker import write_talker

from paceline.errors import ModelNotFound
from paceline.service.llm import LLM
from tests.server.conftest import serving


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: write_talker(folder / f"{name}.gguf", seed=i) for i, name in enumerate("abc")}


def loads(files):
    return {name: lambda path=path: LLM(path, draft="off", context=1024, slots=2) for name, path in files.items()}


def ask(server, model, tokens=8):
    answer = server.post(
        "/v1/completions", {"model": model, "prompt": "x", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    return answer.json()["choices"][0]["text"]


def loaded(server):
    return [one["id"] for one in httpx.get(f"{server.url}/v1/models").json()["data"] if one["loaded"]]


def test_each_is_loaded_when_it_is_first_asked_for_and_says_what_it_says_alone(files):
    with serving(loads(files)) as server:
        assert loaded(server) == ["a"]
        for name, path in files.items():
            alone = LLM(path, draft="off", context=1024)
            assert ask(server, name) == alone.generate("x", _params(8)).text
        assert loaded(server) == ["a", "b", "c"]
        assert server.post("/v1/completions", {"model": "d", "prompt": "x"}).status_code == 404


def test_under_a_ceiling_the_one_longest_unused_makes_room(files):
    with serving(loads(files), most_bytes=2) as server:
        for name, wanted in (("b", ["a", "b"]), ("a", ["a", "b"]), ("c", ["a", "c"]), ("b", ["b", "c"])):
            ask(server, name)
            assert loaded(server) == wanted
        counters = httpx.get(f"{server.url}/metrics").text
        assert 'paceline:model_loads_total{model_name="b"} 2.0' in counters


def test_requests_of_all_models_at_once_under_a_ceiling_of_one(files):
    with serving(loads(files), most_bytes=1) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
        wanted = {name: ask(server, name, 40) for name in files}
        found = [(name, pool.submit(ask, server, name, 40)) for name in "abcabcaabbcc"]
        for name, said in found:
            assert said.result() == wanted[name]
        assert len(loaded(server)) == 1


def test_a_model_that_is_idle_is_unloaded_and_comes_back(files):
    with serving(loads(files), idle_seconds=0.2) as server:
        end = time.monotonic() + 20
        while loaded(server):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert httpx.get(f"{server.url}/ready").status_code == 200
        assert ask(server, "a")


def test_one_that_cannot_be_loaded_hinders_no_other(files):
    def missing():
        raise ModelNotFound("no such model: `z`")

    with serving({**loads(files), "z": missing}) as server:
        for _ in range(2):
            answer = server.post("/v1/completions", {"model": "z", "prompt": "x"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_loaded")
        assert ask(server, "b")


def _params(tokens):
    from paceline.core.request import SamplingParams

    return SamplingParams(max_tokens=tokens, ignore_eos=True)


def test_a_model_comes_back_with_the_tokenizer_it_had(talker):
    with serving(lambda: LLM(talker, draft="off", context=256), idle_seconds=0.2) as server:
        before = weakref.ref(server.host.loaded.tokenizer)
        while server.host.is_loaded:
            time.sleep(0.05)
        assert server.post("/v1/completions", {"prompt": "abc", "max_tokens": 2}).status_code == 200
        assert server.host.loaded.tokenizer is before()
