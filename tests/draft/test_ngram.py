"""Prompt lookup copies what followed before: longest match, then latest, at the same cost however long the text."""

from time import perf_counter

import numpy as np
import pytest
from views import outcome

from paceline.choices import DRAFTERS
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.lookup.ngram import LONGEST, PREFETCHED, SHORTEST, NgramDrafter


def view(tokens, name=0):
    return View(name, np.asarray(tokens, np.int32), SamplingParams())


def guess(tokens, count=4, drafter=None):
    (draft,) = (drafter or NgramDrafter()).propose([view(tokens)], [Budget(count, count)])
    assert draft.tree.tokens[0] == tokens[-1]
    assert draft.tree.parents.tolist() == list(range(-1, draft.drafted))
    return draft.tree.tokens[1:].tolist()


def brute(tokens, count):
    """What the drafter promises, by looking everywhere."""
    for n in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[len(tokens) - n :]:
                period, copied = len(tokens) - end, tokens[end : end + count]
                while len(copied) < count:
                    copied.append(copied[len(copied) - period])
                return copied
    return []


def test_copies_what_followed():
    assert guess([1, 2, 3, 4, 5, 6, 1, 2], 3) == [3, 4, 5]


def test_the_longest_match_wins_over_a_later_one():
    assert guess([9, 1, 2, 3, 50, 8, 2, 3, 60, 9, 1, 2, 3], 1) == [50]


def test_of_equal_matches_the_latest_wins():
    assert guess([1, 2, 50, 1, 2, 60, 1, 2], 1) == [60]


def test_a_copy_that_meets_the_end_repeats_its_period():
    assert guess([7, 1, 2, 3, 1, 2, 3, 1, 2], 8) == [3, 1, 2, 3, 1, 2, 3, 1]
    assert guess([5, 5, 5], 4) == [5, 5, 5, 5]


@pytest.mark.parametrize("tokens", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4, 5], [1, 1], [1, 2, 3, 2]])
def test_nothing_is_guessed_without_a_match(tokens):
    assert guess(tokens) == []


def test_no_more_than_asked():
    text = [1, 2, 3] * 60
    for count in (0, 1, 2, 5, 64, 200):
        assert len(guess(text, count)) == min(count, PREFETCHED)
    (draft,) = NgramDrafter().propose([view(text)], [Budget(nodes=3, depth=9)])
    assert draft.drafted == 3
    (draft,) = NgramDrafter().propose([view(text)], [Budget(nodes=9, depth=3)])
    assert draft.drafted == 3


@pytest.mark.parametrize("seed", range(30))
def test_growing_a_text_finds_what_looking_everywhere_finds(seed):
    chance = np.random.default_rng(seed)
    vocab, drafter, tokens = int(chance.integers(2, 6)), NgramDrafter(), chance.integers(2, size=3).tolist()
    for _ in range(40):
        tokens += chance.integers(vocab, size=int(chance.integers(1, 5))).tolist()
        count = int(chance.integers(1, 9))
        assert guess(tokens, count, drafter) == brute(tokens, count), tokens


def test_a_text_that_was_cut_back_is_read_anew():
    drafter = NgramDrafter()
    guess([1, 2, 3, 4, 1, 2, 9, 9], 2, drafter)
    assert guess([1, 2, 3, 4, 1, 2], 2, drafter) == [3, 4]


def test_sequences_do_not_see_each_other():
    drafter = NgramDrafter()
    drafts = drafter.propose([view([1, 2, 3, 1, 2], 0), view([1, 2, 7, 1, 2], 1)], [Budget(1, 1)] * 2)
    assert [draft.tree.tokens[1] for draft in drafts] == [3, 7]


def test_release_forgets():
    drafter = NgramDrafter()
    guess([1, 2, 3, 1, 2], 1, drafter)
    drafter.release(0)
    assert guess([4, 4, 3, 1, 2], 1, drafter) == []
    drafter.release(0)
    drafter.release(123)
    assert not drafter._indexes
    assert not drafter._matched


def test_a_finished_request_id_may_come_again_with_another_text():
    drafter = NgramDrafter()
    guess([1, 2, 3, 1, 2], 1, drafter)
    drafter.release(0)
    assert guess([8, 9, 5, 6, 7, 8, 9], 2, drafter) == [5, 6]


def test_confidence_follows_what_was_kept():
    tokens, estimates = [1, 2, 3, 4, 5, 6, 7, 8] * 3, {}
    for kept in (0, 4):
        drafter = NgramDrafter()
        for _ in range(30):
            (draft,) = drafter.propose([view(tokens)], [Budget(4, 4)])
            drafter.observe(view(tokens), draft, outcome(draft, kept))
        estimates[kept] = float(drafter.propose([view(tokens)], [Budget(4, 4)])[0].acceptance_prob[1])
    assert 0 <= estimates[0] < 0.1
    assert 0.9 < estimates[4] <= 1


def test_a_round_costs_the_same_behind_50_000_tokens():
    """Generous for busy machines; on an idle one it is about 10 us."""
    tokens = np.random.default_rng(0).integers(1000, size=50_400).astype(np.int32)
    drafter, seconds = NgramDrafter(), []
    for end in range(50_000, 50_400, 2):
        one = View(0, tokens[:end], SamplingParams())
        started = perf_counter()
        drafter.propose([one], [Budget(4, 4)])
        seconds.append(perf_counter() - started)
    assert np.median(seconds) < 200e-6, np.median(seconds)


def test_known_by_name():
    assert isinstance(DRAFTERS["ngram"].make(None, ""), NgramDrafter)
    assert {"auto", "ngram", "off"} <= set(DRAFTERS)
    assert DRAFTERS.split("no such drafter") == (None, "")
