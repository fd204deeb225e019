"""A wrong call from Python is answered in the words of the command line: what was wanted, what was got."""

import asyncio
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline import errors
from paceline.config import LLMConfig
from paceline.core.request import SamplingOptions, SamplingParams
from paceline.errors import UsageError


@pytest.fixture(scope="module")
def llm(talker):
    return paceline.load(talker, draft="off", context=256)


@pytest.mark.parametrize("prompt", [5, None, 1.5, [1.5], ["a", 5], b"abc", {"role": "user"}, [[1], [2]], np.array(5)])
def test_a_prompt_is_a_text_ids_or_texts(llm, prompt):
    with pytest.raises(UsageError, match="a prompt must be a text, a list of token ids or a list of texts, got"):
        llm.generate(prompt)


def test_ids_may_come_from_numpy(llm):
    ids, params = llm.encode("Once upon a time"), SamplingParams(max_tokens=2)
    wanted = llm.generate(ids, params).token_ids
    assert llm.generate(np.array(ids), params).token_ids == wanted
    assert llm.generate(list(np.array(ids)), params).token_ids == wanted


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ("hello", "a conversation must be a list of messages, got `hello`"),
        ({"role": "user", "content": "x"}, "a conversation must be a list"),
        (["hello"], "a message must be a mapping, got `hello`"),
        ([{"role": "user"}], "content must be a text, got none"),
        ([{"role": "user", "content": None}], "content must be a text, got `None`"),
        ([{"content": "x"}], "role must be one of system, user, assistant, tool, got none"),
        ([{"role": "usr", "content": "x"}], "got `usr`"),
        ([{"role": ["user"], "content": "x"}], "role must be one of"),
        ([{"role": np.array([1, 2]), "content": "x"}], "role must be one of"),
        ([], "at least one message"),
    ],
)
def test_a_message_has_a_role_and_a_content(llm, messages, said):
    with pytest.raises(UsageError, match=said):
        llm.chat(messages)


@pytest.mark.parametrize("params", [{"max_tokens": 3}, 3, SamplingParams(temperature="0"), SamplingParams(stop=5)])
def test_params_of_a_wrong_type_are_refused_before_a_round(llm, params):
    for reply in (llm.generate, llm.stream):
        with pytest.raises(UsageError):
            reply("Hi", params)


@pytest.mark.parametrize(
    ("prompt", "params"), [(["a", "b"], [SamplingParams()]), ("a", []), ("a", [SamplingParams()] * 2)]
)
def test_params_are_one_or_as_many_as_prompts(llm, prompt, params):
    with pytest.raises(UsageError, match="one for all prompts or one for each"):
        llm.generate(prompt, params)


def test_one_prompt_is_replied_to_for_each_of_a_list(llm):
    with pytest.raises(UsageError, match="must be a list of SamplingParams, got `5`"):
        llm.generate_each("a", 5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "a" * 5000}, "names none"),
        ({"model": "~no-such-user/x.gguf"}, "names none"),
        ({"draft": "a" * 5000}, "names none"),
        ({"draft": "suffix:" + "a" * 5000}, "names none"),
        ({"draft": "suffix:a\0b"}, "names none"),
        ({"control": np.array([1, 2])}, "control must be one of"),
    ],
)
def test_names_of_nothing_are_refused(talker, settings, said):
    with pytest.raises(paceline.PacelineError, match=said):
        paceline.LLM(**{"model": talker, "context": 256, **settings})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"draft": "off", "verify": "block"},
            "verify must not be set where draft `off` turns guessing off, got `block`",
        ),
        ({"draft": "off", "control": "fixed"}, "control must not be set"),
        ({"draft_tokens": 0, "verify": "tree"}, "draft_tokens `0` turns guessing off, got `tree`"),
        ({"draft": "ngram,suffix", "draft_head": 9}, "draft `ngram,suffix` loads no model, got `9`"),
    ],
)
def test_what_would_be_set_in_vain_is_refused(settings, said):
    with pytest.raises(UsageError, match=said) as error:
        paceline.LLM(**settings)
    assert error.value.hint.startswith("drop --")


@pytest.mark.parametrize(
    "settings",
    [
        {"draft": "off", "draft_tokens": 4},  # at most so many
        {"draft_tokens": 0},
        {"draft_tokens": 0, "control": "optimal", "verify": "coupled"},
        {"draft": "auto", "draft_head": 9, "draft_quant": "q8"},
        {"draft": "ngram,m.gguf", "draft_head": 9, "verify": "block", "control": "ema"},
        {"draft": "mine", "draft_quant": "q8"},
        {"draft": "self:q4", "draft_head": 9},
        *({"draft": name} for name in ("ngram", "suffix:f", "recycle,lookahead", "self", "m.gguf")),
    ],
)
def test_settings_that_agree_are_taken(settings):
    LLMConfig.of(**settings)


@pytest.mark.parametrize("settings", [{"draft": None}, {"draft": True}, {"model": 5}])
def test_a_model_and_a_drafter_have_names(settings):
    with pytest.raises(UsageError, match="must be a name or a path"):
        paceline.LLM(**settings)


def test_a_raw_prompts_control_tokens_are_read_when_asked(llm):
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    plain, read = llm.encode(text), llm.encode(text, special=True)
    assert read == llm.encode_chat([{"role": "user", "content": "Hi"}])
    assert not any(map(llm.tokenizer.is_special, plain))
    params = SamplingParams(max_tokens=2)
    wanted = llm.generate(read, params).token_ids
    assert llm.generate(text, params, special=True).prompt_tokens == len(read)
    assert llm.generate(text, params, special=True).token_ids == wanted
    assert [one.token_ids for one in llm.generate([text] * 2, params, special=True)] == [wanted] * 2
    assert [one.token_ids for one in llm.generate_each(text, [params] * 2, special=True)] == [wanted] * 2
    reply = llm.stream(text, params, special=True)
    assert [token for event in reply for token in event.tokens] == wanted
    assert llm.generate(text, params).prompt_tokens == len(plain)


@pytest.mark.parametrize(("prompt", "settings"), [("a", {"chat": True}), ([1, 2], {})])
def test_reading_control_tokens_where_there_is_no_text_is_refused(llm, prompt, settings):
    with pytest.raises(UsageError, match="special=True reads control tokens in a text, got") as caught:
        llm.generate(prompt, special=True, **settings)
    assert caught.value.hint


def test_help_for_load_names_every_setting():
    from dataclasses import fields

    from paceline.config import LLMConfig

    for field in fields(LLMConfig):
        assert field.name in paceline.load.__doc__


def test_an_unread_or_non_text_prediction_is_refused(llm):
    with pytest.raises(UsageError, match="a drafter that reads it, got draft `off`"):
        llm.generate("Once", prediction="upon a time")
    with pytest.raises(UsageError, match="a prediction must be a text"):
        llm.stream("Once", prediction=[1, 2])


def test_a_prediction_makes_fewer_rounds_of_the_same_reply(talker, llm):
    params = SamplingParams(max_tokens=12)
    plain = llm.generate("Once upon a time", params)
    fast = paceline.load(talker, draft="predicted", control="fixed", context=256)
    for said in (
        fast.generate("Once upon a time", params, prediction=plain.text),
        fast.generate(["Once upon a time"], params, prediction=plain.text)[0],
    ):
        assert said.token_ids == plain.token_ids
        assert said.metrics.rounds < plain.metrics.rounds / 2


def test_a_file_of_a_user_is_typed_and_runs(talker):
    file = Path(__file__).with_name("user_file.py")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    done = subprocess.run([sys.executable, str(file), str(talker)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("LLM(")
    assert lines[1].startswith("5 ")
    assert lines[1].endswith("True")
    assert len(lines[3]) == 2
    first, second = lines[4].split()
    assert first == second
    assert lines[5].startswith("UsageError max_tokens must be")


def test_every_setting_is_a_keyword_too():
    assert set(SamplingOptions.__annotations__) == {field.name for field in fields(SamplingParams)}


def test_settings_as_keywords_come_on_top(llm):
    params = SamplingParams(max_tokens=9)
    assert len(llm.generate("abc", params, max_tokens=3, ignore_eos=True).token_ids) == 3
    assert params.max_tokens == 9
    replies = llm.generate(["a", "b"], [params, params], max_tokens=2, ignore_eos=True)
    assert [len(reply.token_ids) for reply in replies] == [2, 2]
    with pytest.raises(UsageError, match="unknown setting `max_token`") as caught:
        llm.generate("abc", max_token=3)
    assert caught.value.hint == "did you mean `max_tokens`?"
    assert caught.value.__notes__ == ["hint: did you mean `max_tokens`?"]


def test_a_seed_of_none_is_drawn_and_kept():
    assert SamplingParams(seed=None).seed != SamplingParams(seed=None).seed


def test_every_error_is_public():
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert kinds <= set(paceline.__all__)


def test_a_model_ends_with_its_with(talker):
    with paceline.load(talker, draft="off", context=128) as llm:
        assert llm.generate("abc", max_tokens=2).text
    with pytest.raises(UsageError, match="was closed"):
        llm.generate("abc", max_tokens=2)


def test_a_reply_that_is_left_early_by_a_task_is_cancelled(llm):
    async def leave():
        async for event in llm.stream("abc", max_tokens=100, ignore_eos=True):
            if event.tokens:
                break
        return await llm.generate_async("abc", max_tokens=2)

    assert asyncio.run(leave()).text
