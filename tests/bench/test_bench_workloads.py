"""The workloads are there, large enough, and ask for what they say."""

import random

import pytest

from paceline.bench.workloads import WORKLOADS, asks, load_workload
from paceline.errors import UsageError


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_has_ten_different_prompts(name):
    found = load_workload(name)
    assert len(set(found.prompts)) == len(found.prompts) >= 10
    assert found.about
    assert 64 <= found.max_tokens <= 1024
    assert all(prompt == prompt.strip() or name == "summarise" for prompt in found.prompts)


def test_edits_give_a_whole_file_and_questions_a_long_text():
    for prompt in load_workload("edit").prompts:
        assert 55 <= len(prompt.splitlines()) <= 150
        assert prompt.endswith("```")
    for prompt in load_workload("rag").prompts:
        assert 650 <= len(prompt.split()) <= 1400


def test_workloads_take_turns():
    found = asks(("code", "chat"), 2, None)
    assert [(ask.workload, ask.index) for ask in found] == [("code", 0), ("chat", 0), ("code", 1), ("chat", 1)]
    assert found[0].max_tokens == load_workload("code").max_tokens
    assert {ask.max_tokens for ask in asks(("code", "chat"), 1, 9)} == {9}
    assert len(asks(("summarise",), 99, None)) == len(load_workload("summarise").prompts)


def test_no_two_fresh_prompts_are_alike():
    (ask,) = asks(("chat",), 1, None)
    rng = random.Random(1)
    assert len({ask.fresh(rng) for _ in range(50)}) == 50


def test_an_unknown_workload_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="got `summarize`") as wrong:
        load_workload("summarize")
    assert wrong.value.hint == "did you mean `summarise`?"
