"""The guard: the losses of drafting are bounded in real seconds, and nothing else stops drafting."""

import itertools

import numpy as np
import pytest

from paceline.control.guard import AGE, DISTURBED, MOST, PROOF, SHARE, START, WIDE, Guard
from paceline.control.pending import Pending


def add(guard, sequences, tokens, seconds, *, drafted, rows=16):
    rows = rows * sequences if drafted else sequences
    guard.add(Pending(sequences, tokens=tokens, seconds=[0.0, seconds, 0.0]), rows, drafted=drafted)


def decode(guard, tokens, *, plain=1.0, took=1.5, brought=1, sequences=1, wants=lambda i: True, hiccup=lambda i: 1.0):
    """Return the seconds and the number of drafting rounds for `tokens`; each takes `took` and brings `brought` tokens.

    `plain`, `took` and `brought` may be functions of the round.
    """
    i = done = seconds = drafted = 0
    while done < tokens:
        one, long, many = (value(i) if callable(value) else value for value in (plain, took, brought))
        is_drafted = wants(i) and guard.allows(sequences)
        spent = (long if is_drafted else one) * hiccup(i)
        add(guard, sequences, sequences * (many if is_drafted else 1), spent, drafted=is_drafted)
        done, seconds, drafted = done + (many if is_drafted else 1), seconds + spent, drafted + is_drafted
        i += 1
    return seconds, drafted


@pytest.mark.parametrize("took", [1.01, 1.2, 1.5, 3.0, 5.0])
@pytest.mark.parametrize("sequences", [1, 8])
def test_what_drafting_loses_is_bounded_whatever_it_costs(took, sequences):
    seconds, drafted = decode(Guard(), 2000, took=took, sequences=sequences)
    assert seconds <= 2000 * (1 + SHARE) + START + took
    assert drafted >= 1


def test_a_loss_that_no_purse_could_hold_is_a_round_in_hundreds():
    _, drafted = decode(Guard(), 1000, took=20.0)
    assert drafted <= 4
    assert decode(Guard(), 80, took=20.0)[1] == 1


def test_the_first_rounds_of_all_are_plain():
    guard = Guard()
    for _ in range(PROOF):
        assert not guard.allows(1)
        add(guard, 1, 1, 1.0, drafted=False)
    assert guard.allows(1)
    assert not guard.allows(2), "two sequences are another round"


@pytest.mark.parametrize(("took", "brought"), [(1.0, 1.2), (1.5, 2), (6.0, 8)])
def test_drafting_that_gains_is_stopped_for_a_reference_only(took, brought):
    seconds, drafted = decode(Guard(), 3000, took=took, brought=brought)
    plain = 1 / (1 - 1 / AGE) - 1
    assert drafted >= 3000 / brought * (1 - 2 * plain) - 2
    assert seconds < 3000 * (took / brought * (1 - plain) + 2 * plain) + 2


def test_luck_seldom_stops_a_draft_that_gains_a_fifth():
    stopped = 0
    for seed in range(10):
        chance = np.random.default_rng(seed)
        luck = chance.random((4000, 4)) < 0.6
        brought = [1 + int(np.cumprod(row).sum()) for row in luck]  # 2.2 on average
        seconds, _ = decode(Guard(), 2000, took=1.8, brought=lambda i, b=brought: b[i])
        stopped += seconds > 2000 * 0.9
    assert stopped <= 1


def test_long_rounds_have_a_purse_to_match():
    chance = np.random.default_rng(0)
    brought = [1 + 15 * int(right) for right in chance.random(4000) < 0.5]  # 8.5 tokens in 7
    seconds, _ = decode(Guard(), 4000, took=7.0, brought=lambda i: brought[i])
    assert seconds < 4000 * 0.93


def test_a_machine_that_becomes_slower_as_a_whole_is_no_loss():
    guard = Guard()
    slow = lambda i: 3.0 if i >= 100 else 1.0  # noqa: E731
    _, drafted = decode(guard, 1000, plain=slow, took=lambda i: 1.5 * slow(i), brought=2)
    assert drafted > 0.93 * 500
    assert not guard.is_closed


def test_a_faster_machine_hides_a_loss_until_the_next_reference():
    fast = lambda i: 0.3 if i >= 50 else 1.0  # noqa: E731
    seconds, _ = decode(Guard(), 2000, plain=fast, took=0.6, brought=1)
    assert seconds <= 50 + 0.3 * 1950 * (1 + SHARE) + 0.3 * (2 * AGE + MOST + WIDE + 5)


def test_the_purse_pays_for_verifying_that_becomes_dear():
    seconds, _ = decode(Guard(), 1000, took=lambda i: 4.0 if i >= 100 else 1.5, brought=2)
    assert seconds <= 100 * 1.5 + 800 * (1 + SHARE) + MOST + WIDE * 4 + 4 + 3


def test_stalls_of_the_machine_alike_in_all_rounds_are_no_loss():
    for seed in range(5):
        stalls = np.random.default_rng(seed).random(4000) < 0.02
        _, drafted = decode(Guard(), 3000, took=1.4, brought=2, hiccup=lambda i, s=stalls: 10.0 if s[i] else 1.0)
        assert drafted > 0.9 * 1500, seed
    _, drafted = decode(Guard(), 500, took=1.5, brought=2, hiccup=lambda i: 1e6 if i == 20 else 1.0)
    assert drafted > 0.9 * 250, "nor is one that takes for ever"


def test_a_stall_in_the_first_short_draft_does_not_end_drafting():
    guard = Guard()
    for _ in range(PROOF):
        add(guard, 1, 1, 1.0, drafted=False)
    add(guard, 1, 1, 50.0, rows=2, drafted=True)
    assert guard.purse >= START - 2


def test_rounds_in_which_nothing_was_guessed_are_plain_ones():
    _, drafted = decode(Guard(), 2000, took=1.4, brought=2, wants=lambda i: i % 50 == 0)
    assert drafted >= 2000 // 50 - 3


def test_a_stopped_draft_is_tried_again_and_goes_on_once_it_gains():
    guard = Guard()
    decode(guard, 500, took=3.0, brought=1)
    assert guard.purse <= 1
    assert guard.speed < 0.5
    _, drafted = decode(guard, 1000, took=1.2, brought=2)
    assert drafted > 300


def test_any_loss_leaves_a_bounded_debt():
    guard = Guard()
    add(guard, 1, 1, 1.0, drafted=False)
    for _ in range(50):
        add(guard, 1, 1, 1e9, drafted=True)
    for _ in range(PROOF):
        add(guard, 1, 1, 1.0, drafted=False)
    assert guard.is_closed
    assert -DISTURBED <= guard.purse <= 0


# ---- planted bugs: each guard below is wrong in one way and breaks a bound that the true one keeps


class Predicting(Guard):
    """Trusts a prediction of drafting rounds: 1.3 plain rounds at most."""

    def add(self, step, rows, *, drafted):
        drafting, forward, other = step.seconds
        step.seconds = [drafting, min(forward, 1.3 * 0.9) if drafted else forward, other]
        super().add(step, rows, drafted=drafted)


class Forgetful(Guard):
    """Settles nothing."""

    def _settle(self):
        self._since.clear()
        self.purse = START


class Unmeasured(Guard):
    """Never plays a plain round for a reference."""

    def plain_seconds(self, sequences):
        return super().plain_seconds(sequences) or 10.0

    def allows(self, sequences):
        return self.purse > 0


class Generous(Guard):
    """Puts in a tenth of all time."""

    def _filled(self, purse, rounds):
        return super()._filled(purse, rounds * 10 if 0 < rounds < 0.1 else rounds)


class Pooled(Guard):
    """Counts the tokens of all sequences as one sequence's."""

    def add(self, step, rows, *, drafted):
        step.tokens *= step.sequences if drafted else 1
        super().add(step, rows, drafted=drafted)


@pytest.mark.parametrize("mutant", [Predicting, Forgetful, Unmeasured, Generous, Pooled])
def test_the_bound_catches_a_guard_that_is_wrong(mutant):
    broken = []
    for took, sequences in itertools.product((1.2, 1.5, 5.0), (1, 8)):
        seconds, _ = decode(mutant(), 2000, took=took, sequences=sequences)
        broken.append(seconds > 2000 * (1 + SHARE) + START + took)
    assert any(broken)


@pytest.mark.parametrize("sequences", [1, 4])
def test_guesses_beside_a_prompt_are_charged_what_the_table_says(sequences):
    guard = Guard()
    for _ in range(3):
        add(guard, sequences, sequences, 1.0, drafted=False)
    count = 0
    while guard.allows(sequences):
        guard.add_beside(sequences, 0.0, 0.5)
        count += 1
    assert count <= 2 * START + 2
    guard.add_beside(sequences, 1000.0, 0.5)
    assert guard.purse <= MOST + WIDE * 2
