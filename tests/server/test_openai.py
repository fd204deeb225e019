"""OpenAI's own client drives the server: what comes is what the model says alone, whatever runs beside it."""

import concurrent.futures
import json

import openai
import pytest

from paceline.core.request import SamplingParams

ASK = [{"role": "user", "content": "Say something."}]


@pytest.fixture
def client(served):
    return served.client()


def solo(alone, messages=ASK, **params):
    reply = alone.chat(messages, SamplingParams(**params))
    for _ in reply:
        pass
    return reply.completion


@pytest.mark.parametrize(("temperature", "seed"), [(0, 0), (0.9, 7)])
def test_a_chat_reply_is_what_the_model_says_alone(client, alone, temperature, seed):
    said = client.chat.completions.create(model="tiny", messages=ASK, temperature=temperature, seed=seed, max_tokens=40)
    wanted = solo(alone, temperature=temperature, seed=seed, max_tokens=40)
    assert said.choices[0].message.content == wanted.text
    assert said.choices[0].finish_reason == wanted.finish_reason == "length"
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (wanted.prompt_tokens, 40)
    assert said.speculation["rounds"] <= 40


def test_a_stream_adds_up_to_the_whole_reply(client):
    whole = client.chat.completions.create(model="tiny", messages=ASK, temperature=0, max_tokens=40)
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=ASK,
            temperature=0,
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 40
    assert len({c.id for c in chunks}) == 1


def test_neighbours_change_no_token(client, alone):
    def ask(i):
        said = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": f"Number {i % 5} please."}],
            temperature=0.8 * (i % 2),
            seed=i,
            max_tokens=10 + 5 * i,
        )
        return said.choices[0].message.content

    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        said = list(threads.map(ask, range(12)))
    for i, text in enumerate(said):
        messages = [{"role": "user", "content": f"Number {i % 5} please."}]
        assert text == solo(alone, messages, temperature=0.8 * (i % 2), seed=i, max_tokens=10 + 5 * i).text


def test_n_replies_have_seeds_of_their_own(client, alone):
    said = client.chat.completions.create(model="tiny", messages=ASK, temperature=1, seed=3, n=3, max_tokens=12)
    assert [one.index for one in said.choices] == [0, 1, 2]
    texts = [one.message.content for one in said.choices]
    assert texts == [solo(alone, temperature=1, seed=3 + i, max_tokens=12).text for i in range(3)]
    assert said.usage.completion_tokens == 36
    assert said.usage.prompt_tokens == solo(alone, max_tokens=1).prompt_tokens


def test_a_seed_is_drawn_unless_it_is_given(client):
    said = {
        client.chat.completions.create(model="tiny", messages=ASK, temperature=1, max_tokens=20)
        .choices[0]
        .message.content
        for _ in range(4)
    }
    assert len(said) > 1


def test_log_probabilities_have_text_and_bytes(client, alone):
    said = client.chat.completions.create(
        model="tiny", messages=ASK, temperature=0, max_tokens=5, logprobs=True, top_logprobs=2
    )
    entries = said.choices[0].logprobs.content
    wanted = solo(alone, max_tokens=5, logprobs=2).logprobs
    assert "".join(entry.token for entry in entries) == said.choices[0].message.content
    assert [bytes(entry.bytes).decode() for entry in entries] == [entry.token for entry in entries]
    assert [entry.logprob for entry in entries] == pytest.approx([one.logprob for one in wanted])
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


def test_completions_take_texts_and_tokens_and_echo_them(client, alone):
    said = client.completions.create(model="tiny", prompt=["abc", "xyz"], temperature=0, max_tokens=6, echo=True)
    by_tokens = client.completions.create(
        model="tiny", prompt=[alone.encode("abc"), alone.encode("xyz")], temperature=0, max_tokens=6
    )
    for i, prompt in enumerate(("abc", "xyz")):
        wanted = alone.generate(prompt, SamplingParams(max_tokens=6)).text
        assert said.choices[i].text == prompt + wanted
        assert by_tokens.choices[i].text == wanted
    assert said.usage.prompt_tokens == 6
    one = client.completions.create(model="tiny", prompt=alone.encode("abc"), temperature=0, max_tokens=6)
    assert one.choices[0].text == by_tokens.choices[0].text
    streamed = client.completions.create(
        model="tiny", prompt="abc", temperature=0, max_tokens=6, echo=True, stream=True, logprobs=1
    )
    chunks = list(streamed)
    assert "".join(chunk.choices[0].text for chunk in chunks) == said.choices[0].text
    offsets = [
        offset for chunk in chunks if chunk.choices[0].logprobs for offset in chunk.choices[0].logprobs.text_offset
    ]
    assert offsets == list(range(3, 9))


def test_stops_penalties_and_biases_reach_the_draw(client, alone):
    plain = solo(alone, max_tokens=30)
    stop = plain.text[5:8]
    said = client.chat.completions.create(model="tiny", messages=ASK, temperature=0, max_tokens=30, stop=stop)
    assert said.choices[0].message.content == plain.text[: plain.text.index(stop)]
    assert said.choices[0].finish_reason == "stop"
    token = plain.token_ids[0]
    said = client.chat.completions.create(
        model="tiny", messages=ASK, temperature=0, max_tokens=8, logit_bias={str(token): -100}, frequency_penalty=1.5
    )
    wanted = solo(alone, max_tokens=8, logit_bias={token: -100.0}, frequency_penalty=1.5)
    assert said.choices[0].message.content == wanted.text
    assert wanted.token_ids[0] != token


def test_content_parts_and_developers_are_read_as_text_and_system(client, served):
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "this."}]
    one = served.post(
        "/tokenize", {"messages": [{"role": "developer", "content": "Brief."}, {"role": "user", "content": parts}]}
    )
    two = served.post(
        "/tokenize", {"messages": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Say this."}]}
    )
    assert one.json() == two.json()
    assert served.post(
        "/detokenize", {"tokens": served.post("/tokenize", {"prompt": "héllo"}).json()["tokens"]}
    ).json() == {"prompt": "héllo"}


def test_a_prediction_is_counted_and_changes_nothing(client, alone):
    plain = solo(alone, max_tokens=40)
    said = client.chat.completions.create(
        model="tiny", messages=ASK, temperature=0, max_tokens=40, prediction={"type": "content", "content": plain.text}
    )
    assert said.choices[0].message.content == plain.text
    details = said.usage.completion_tokens_details
    assert (
        details.accepted_prediction_tokens + details.rejected_prediction_tokens
        == said.speculation["by_source"].get("predicted", {"drafted": 0})["drafted"]
    )


@pytest.mark.parametrize(
    ("wanted", "most", "sources"),
    [(False, 0, set()), ({"draft_tokens": 0}, 0, set()), ({"draft": "off"}, 0, set()),
     ({"draft": "suffix"}, 64, {"suffix"}), ({"draft": ["suffix"], "draft_tokens": 1}, 1, {"suffix"})],
)  # fmt: skip
def test_a_request_sets_its_own_speculation(client, alone, wanted, most, sources):
    said = client.chat.completions.create(
        model="tiny", messages=ASK, temperature=0, max_tokens=60, extra_body={"speculation": wanted}
    )
    assert said.choices[0].message.content == solo(alone, max_tokens=60).text
    assert set(said.speculation["by_source"]) <= sources
    assert said.speculation["drafted_tokens"] <= most * said.speculation["rounds"]


def test_a_traced_stream_tells_of_every_token_and_tree(served):
    body = {"messages": ASK, "temperature": 0, "max_tokens": 200, "stream": True, "speculation": {"trace": True}}
    lines = served.post("/v1/chat/completions", body).text.split("\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    traces = [chunk["paceline"] for chunk in chunks if "paceline" in chunk]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert "".join(token["text"] for trace in traces for token in trace["tokens"]) == text
    trees = [trace["tree"] for trace in traces if "tree" in trace]
    assert all(len(t["tokens"]) == len(t["parents"]) == len(t["sources"]) == len(t["probabilities"]) for t in trees)


def test_a_form_is_kept(client):
    said = client.chat.completions.create(
        model="tiny", messages=ASK, temperature=0.9, seed=1, max_tokens=200,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"],
            "additionalProperties": False}}},
    )  # fmt: skip
    assert set(json.loads(said.choices[0].message.content)) == {"a"}
    said = client.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=20, extra_body={"structured_outputs": {"choice": ["yes", "no"]}}
    )
    assert said.choices[0].message.content in ("yes", "no")


def test_a_closed_stream_is_cancelled(client, served):
    stream = client.chat.completions.create(
        model="tiny", messages=ASK, max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(wait_until_idle, served).result(20)


def wait_until_idle(served):
    import time

    while served.host.open_replies or not served.host.loaded.engine.is_idle:
        time.sleep(0.01)
    served.host.loaded.service.call(served.host.loaded.engine.parts.scheduler.check)


def test_the_model_is_listed_and_others_are_not_found(client):
    (one,) = client.models.list().data
    assert one.id == "tiny"
    assert client.models.retrieve("tiny").speculation["sources"] == ["predicted", "suffix"]
    with pytest.raises(openai.NotFoundError, match="this server has `tiny`"):
        client.chat.completions.create(model="other", messages=ASK)


def test_a_reply_whose_time_is_over_ends_with_what_it_has(served):
    body = {"messages": ASK, "temperature": 0, "max_tokens": 1900, "ignore_eos": True}
    whole = served.post("/v1/chat/completions", body).json()["choices"][0]
    cut = served.post("/v1/chat/completions", body | {"timeout": 0.05, "priority": 3}).json()["choices"][0]
    assert (whole["finish_reason"], cut["finish_reason"]) == ("length", "deadline")
    assert len(cut["message"]["content"]) < len(whole["message"]["content"])
    assert whole["message"]["content"].startswith(cut["message"]["content"])
