"""The line that sums a reply up."""

import pytest

from paceline.cli.reply import estimate_plain, summary
from paceline.cli.terminal import fold
from paceline.engine.completion import Completion, Setup, Timing
from paceline.engine.metrics import SpeculationMetrics


def completion(text, tokens, reason):
    return Completion(
        Setup("m", ("ngram",), "coupled", "fixed"),
        text,
        tokens,
        reason,
        3,
        SpeculationMetrics(),
        Timing(0, 0.1, 0, 0, 0, 0),
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
            "ab", [1, 2], "stop", 3, SpeculationMetrics(), Timing(0, 0.1, 0, 0, 0, 0), control_reason=said,
        )  # fmt: skip
        assert (said in summary(reply, plain_seconds=None)) is is_shown
        assert reply.to_json()["speculation"]["control_reason"] == said


class Machine:
    """Takes so many seconds for a plain forward when asked after a reply."""

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, 0

    def plain_seconds_per_token(self, repeats):
        self.asked += 1
        return self.seconds


def drafted(*, single=()):
    """A reply of ten decode rounds, 0.1 s each to check, in which guesses were right half of the time."""
    metrics = SpeculationMetrics(11, 20, 10, 21, single_seconds=list(single))
    return Completion(
        Setup("m", ("ngram",), "coupled", "fixed"), "a", [1] * 21, "stop", 3, metrics, Timing(0, 0.1, 1.1, 0, 1.0, 0.1)
    )


@pytest.mark.parametrize(("after", "wanted"), [(0.05, 0.06), (0.1, 0.11), (5.0, 0.11)])
def test_plain_decoding_takes_at_most_a_rounds_time(after, wanted):
    machine = Machine(after)
    assert estimate_plain(machine, drafted()) == pytest.approx(wanted)
    assert machine.asked == 1


def test_a_replys_own_plain_rounds_time_plain_decoding():
    machine, single = Machine(5.0), [0.04, 0.04, 0.04, 0.04, 0.04, 0.04, 0.9, 0.01]
    assert estimate_plain(machine, drafted(single=single)) == pytest.approx(0.05)
    assert machine.asked == 0
    assert estimate_plain(machine, drafted(single=single[:7])) == pytest.approx(0.11)  # too few to tell


def test_the_gain_is_called_an_estimate():
    assert "~1.9× plain" in summary(drafted(), plain_seconds=0.103)
