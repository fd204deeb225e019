"""The line that sums a reply up."""

import pytest

from paceline.cli.reply import summary
from paceline.cli.terminal import fold
from paceline.engine.account import Tally
from paceline.engine.completion import Completion, Setup, Timing


def completion(text, tokens, reason):
    return Completion(
        Setup("m", ("ngram",), "coupled", "fixed"), text, tokens, reason, 3, Tally(), Timing(0, 0.1, 0, 0, 0, 0)
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_a_reply_of_nothing_is_called_that(at_once):
    parts = summary(completion("", [2], "stop"), plain_seconds=None, ended_at_once=at_once)
    assert parts == ["1 token in 0.1 s", "the model ended at once" if at_once else "nothing to guess from"]


def test_lines_break_between_parts_only():
    parts = ["12 tokens in 0.4 s", "30.0 tokens/s", "\x1b[32mngram 1/2\x1b[0m", "a part that is longer than the line"]
    lines = fold(parts, 32).split("\n")
    assert lines == ["12 tokens in 0.4 s", "· 30.0 tokens/s · " + parts[2], "· " + parts[3]]
    assert fold(parts, 200) == " · ".join(parts)


def test_a_refusal_to_draft_says_why():
    reason = "drafting off: qwen is right 12 % of the time; break-even 31 %"
    for said, is_shown in ((reason, True), ("3 tokens a round: qwen is right 80 % of the time", False)):
        reply = Completion(
            Setup("m", ("qwen",), "coupled", "optimal"),
            "ab", [1, 2], "stop", 3, Tally(), Timing(0, 0.1, 0, 0, 0, 0), control_reason=said,
        )  # fmt: skip
        assert (said in summary(reply, plain_seconds=None)) is is_shown
        assert reply.to_json()["speculation"]["control_reason"] == said
