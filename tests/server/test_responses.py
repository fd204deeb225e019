"""`/v1/responses`: OpenAI's client gets a chat's reply as items and as events, whole and in a stream."""

import json

import openai
import pytest

from tests.server.test_openai import solo
from tests.server.test_tools import CALL, CITY

TOOL = {"type": "function", "name": "weather", "parameters": CITY | {"additionalProperties": False}}
DRAWN = {"model": "tiny", "temperature": 0.8, "max_output_tokens": 200}


def streamed(client, **body):
    """The final response of a stream, whose events were checked against it; equal to the whole one but for ids."""
    body = DRAWN | {"extra_body": {"seed": 5}} | body
    whole, events = client.responses.create(**body), list(client.responses.create(**body, stream=True))
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert [one.type for one in events[:2]] == ["response.created", "response.in_progress"]
    final = events[-1].response
    assert events[-1].type == f"response.{final.status}"
    texts, arguments = {}, {}
    for one in events:
        if one.type in ("response.output_text.delta", "response.reasoning_text.delta"):
            texts[one.output_index] = texts.get(one.output_index, "") + one.delta
        if one.type == "response.function_call_arguments.delta":
            arguments[one.output_index] = arguments.get(one.output_index, "") + one.delta
    for at, item in enumerate(final.output):
        if item.type == "function_call":
            assert arguments.get(at, "") == item.arguments
        else:
            assert texts[at] == item.content[0].text
    added = [one.item.id for one in events if one.type == "response.output_item.added"]
    done = [one.item.id for one in events if one.type == "response.output_item.done"]
    assert added == done == [item.id for item in final.output]
    assert [bare(item) for item in final.output] == [bare(item) for item in whole.output]
    assert final.usage.output_tokens == whole.usage.output_tokens
    return final


def bare(item):
    return {key: value for key, value in item.model_dump().items() if key not in ("id", "call_id")}


@pytest.fixture
def client(served):
    return served.client()


def test_a_reply_is_what_a_chat_says(client, alone):
    said = streamed(client, input="Say something.", temperature=0, max_output_tokens=40)
    assert said.output_text == solo(alone, max_tokens=40).text
    assert (said.status, said.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (said.usage.output_tokens, said.usage.output_tokens_details.reasoning_tokens) == (40, 0)
    assert said.speculation["rounds"] <= 40


def test_instructions_and_items_are_the_conversation(client, alone):
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "One."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]},
        {"role": "developer", "content": "Three."},
        {"role": "user", "content": "Four."},
    ]
    said = streamed(client, input=items, instructions="Short.", temperature=0, max_output_tokens=30)
    wanted = [("system", "Short."), ("user", "One."), ("assistant", "Two."), ("system", "Three."), ("user", "Four.")]
    messages = [{"role": role, "content": text} for role, text in wanted]
    assert said.output_text == solo(alone, messages, max_tokens=30).text


def test_a_call_is_an_item_and_its_output_goes_back(caller):
    form = {"seed": 5, "structured_outputs": {"regex": "ab\n" + CALL}}
    said = streamed(caller, input="How is it?", tools=[TOOL], extra_body=form)
    message, call = said.output
    assert (message.type, message.content[0].text) == ("message", "ab")
    assert (call.type, call.name, [*json.loads(call.arguments)]) == ("function_call", "weather", ["city"])
    assert said.status == "completed"
    back = [
        {"role": "user", "content": "How is it?"},
        *(item.model_dump() for item in said.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    assert streamed(caller, input=back, tools=[TOOL], max_output_tokens=5).output


def test_a_call_that_is_wanted_is_made(caller):
    for choice in ("required", {"type": "function", "name": "weather"}):
        (call,) = streamed(
            caller, input="How is it?", tools=[TOOL], tool_choice=choice, parallel_tool_calls=False
        ).output
        assert (call.type, call.name) == ("function_call", "weather")


def test_what_was_thought_is_an_item_of_its_own(thinker):
    form = {"seed": 5, "structured_outputs": {"regex": "hmm</think>\n\nyes"}}
    said = streamed(thinker, input="Well?", extra_body=form | {"chat_template_kwargs": {"enable_thinking": True}})
    thought, message = said.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "hmm")
    assert (message.content[0].text, said.usage.output_tokens_details.reasoning_tokens) == ("yes", 3)


def test_a_form_is_kept(client):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    assert set(json.loads(streamed(client, input="Well?", text=form).output_text)) == {"a"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"max_tokens": 3}, "max_tokens"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": [{"type": "image", "image_url": "x"}]}, "input"),
        ({"n": 2}, "n"),
        ({"background": True}, "background"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_wrong_calls_name_the_field(served, change, param):
    reply = served.post("/v1/responses", {"input": "x"} | change)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith(param), reply.json()


def test_an_error_in_the_middle_is_the_last_event(client, monkeypatch):
    from paceline.engine.sequence import Sequence

    real = Sequence.append

    def append(self, tokens):
        if self.params.seed == 13 and len(self) > self.prompt_length + 3:
            raise RuntimeError("broken")
        return real(self, tokens)

    monkeypatch.setattr(Sequence, "append", append)
    events = list(client.responses.create(model="tiny", input="x", stream=True, extra_body={"seed": 13}))
    assert (events[-1].type, "broken" in events[-1].message) == ("error", True)
    with pytest.raises(openai.InternalServerError, match="broken"):
        client.responses.create(model="tiny", input="x", extra_body={"seed": 13})
