"""Faults of other servers, tried on this one: padded rows, one request's error, cut characters, lost clients."""

import concurrent.futures
import json
import threading
import time

import httpx
import openai
import pytest
from talker import write_talker

from paceline.core.request import SamplingParams
from paceline.engine.sequence import Sequence
from paceline.service.llm import LLM
from tests.server.conftest import serving
from tests.server.test_openai import ASK, solo

GUILTY = 666


def stream_of(client, **settings):
    """Return a streamed reply's text and finish reason."""
    text, reason = "", None
    for chunk in client.chat.completions.create(model="tiny", messages=ASK, stream=True, **settings):
        for choice in chunk.choices:
            text, reason = text + (choice.delta.content or ""), choice.finish_reason or reason
    return text, reason


def test_prompts_of_all_lengths_in_one_call_are_replied_to_as_alone(served, alone):
    prompts = [[7 * i % 250 for i in range(length)] for length in (3, 17, 60, 200)]
    said = served.post("/v1/completions", {"prompt": prompts, "max_tokens": 40, "temperature": 0}).json()
    wanted = [alone.generate(prompt, SamplingParams(max_tokens=40)).text for prompt in prompts]
    assert [choice["text"] for choice in said["choices"]] == wanted
    stop = wanted[1][5:8]
    said = served.post("/v1/completions", {"prompt": prompts, "max_tokens": 40, "temperature": 0, "stop": stop}).json()
    assert [choice["text"] for choice in said["choices"]] == [text.partition(stop)[0] for text in wanted]


@pytest.mark.parametrize("text", ["한국어 좋아요", "नमस्ते दुनिया", "👩‍👩‍👧‍👦 🎉!"])
def test_no_delta_has_half_a_character_but_a_cut_last_one(served, text):
    client, whole = served.client(), text.encode()
    for most in range(1, len(whole) + 2):
        form = {"structured_outputs": {"choice": [text]}}
        said, reason = stream_of(client, max_tokens=most, extra_body=form)
        read = whole[:most].decode(errors="ignore")
        assert said in (read, read + "�")
        assert reason == ("length" if most <= len(whole) else "stop")
        same = served.post("/v1/chat/completions", {"messages": ASK, "max_tokens": most, **form})
        assert (same.status_code, same.json()["choices"][0]["message"]["content"]) == (200, said)


@pytest.mark.parametrize("draft", [False, {"draft": "suffix"}, {"draft": "predicted"}])
def test_a_form_is_the_same_whatever_is_drafted(served, draft):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}},
              "required": ["a", "b"], "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    said = set()
    for seed in range(10):
        body = {"messages": ASK, "max_tokens": 100, "seed": seed, "temperature": 1, "response_format": form}
        texts = {
            served.post("/v1/chat/completions", body | own).json()["choices"][0]["message"]["content"]
            for own in ({}, {"speculation": draft})
        }
        (text,) = texts
        assert set(json.loads(text)) == {"a", "b"}
        said.add(text)
    assert len(said) > 1


def test_clients_that_leave_keep_no_slot(talker):
    with serving(lambda: LLM(talker, draft="off", context=2048, slots=1)) as server:
        for _ in range(20):
            body = {"messages": ASK, "max_tokens": 2000, "stream": True, "ignore_eos": True}
            with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body) as reply:
                lines = reply.iter_lines()
                for _ in range(3):
                    next(lines)
            started = time.monotonic()
            assert server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 2}).status_code == 200
            assert time.monotonic() - started < 2
        page = httpx.get(f"{server.url}/metrics").text
    (count,) = [
        line for line in page.splitlines() if "request_success_total" in line and 'finished_reason="cancelled"' in line
    ]
    assert float(count.split()[-1]) == 20


def test_padded_rows_are_drawn_by_no_setting_and_refused_by_name(tmp_path):
    path = write_talker(tmp_path / "padded.gguf", padding=40)
    with serving(lambda: LLM(path, draft="suffix", context=512, slots=2)) as server:
        client = server.client()
        for seed in range(20):
            text, reason = stream_of(client, temperature=2, seed=seed, max_tokens=30, extra_body={"ignore_eos": True})
            assert reason == "length", text
        first = server.host.loaded.tokenizer.vocab_size
        wrong = server.post("/v1/chat/completions", {"messages": ASK, "logit_bias": {str(first + 3): 100}})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "logit_bias")
        wrong = server.post("/v1/completions", {"prompt": [1, 2, first + 3]})
        assert (wrong.status_code, str(first + 3) in wrong.json()["error"]["message"]) == (400, True)


def test_a_fault_in_one_request_ends_that_one_alone(served, alone, monkeypatch):
    real, begun = Sequence.append, threading.Event()

    def append(self, tokens):
        if self.params.seed == GUILTY and len(self) > self.prompt_length + 5:
            begun.set()
            raise RuntimeError("its decoder failed")
        return real(self, tokens)

    monkeypatch.setattr(Sequence, "append", append)
    wanted = solo(alone, max_tokens=200, ignore_eos=True)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        innocent = thread.submit(
            stream_of, served.client(), temperature=0, max_tokens=200, extra_body={"ignore_eos": True}
        )
        with pytest.raises(openai.APIError, match="decoder failed"):
            stream_of(served.client(), seed=GUILTY, max_tokens=50)
        assert innocent.result(60)[0] == wanted.text
    assert begun.is_set()
    whole = served.post("/v1/chat/completions", {"messages": ASK, "seed": GUILTY, "max_tokens": 50})
    assert (whole.status_code, "decoder failed" in whole.json()["error"]["message"]) == (500, True)


def test_a_conversation_that_ends_with_the_assistants_words_goes_on_from_them(served, alone):
    messages = [*ASK, {"role": "assistant", "content": "abc abc"}]
    said = served.post("/v1/chat/completions", {"messages": messages, "max_tokens": 20, "temperature": 0}).json()
    assert said["choices"][0]["message"]["content"] == solo(alone, messages, max_tokens=20).text
