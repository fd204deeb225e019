"""A prediction is followed from its start, found again after a change, and left alone where it is lost."""

import numpy as np
import pytest
from test_suffix import same, setting

from paceline.choices import DRAFTERS
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import Verified
from paceline.draft.lookup.predicted import LONGEST, PATIENCE, PredictedDrafter

PROMPT = [200, 201]


def view(output, expected, name=0):
    return View(
        name,
        np.array([*PROMPT, *output], np.int32),
        SamplingParams(),
        len(PROMPT),
        prediction=None if expected is None else np.array(expected, np.int32),
    )


def guess(output, expected, nodes=6, drafter=None, name=0):
    (draft,) = (drafter or PredictedDrafter()).propose([view(output, expected, name)], [Budget(nodes, nodes)])
    return draft


def first_path(draft):
    """The tokens of the first branch."""
    path, node = [], 0
    while children := draft.tree.children(node):
        node = children[0]
        path.append(int(draft.tree.tokens[node]))
    return path


EXPECTED = list(range(1, 100))


def test_followed_from_the_start_and_on():
    assert first_path(guess([], EXPECTED)) == [1, 2, 3, 4, 5, 6]
    assert first_path(guess([1, 2, 3], EXPECTED, 2)) == [4, 5]
    assert guess(EXPECTED, EXPECTED).drafted == 0, "at its end there is nothing more"
    assert guess([], []).drafted == 0
    assert guess([1, 2], None).drafted == 0
    assert guess([1, 2], EXPECTED, 0).drafted == 0


def test_after_a_change_replaced_and_inserted_are_both_tried():
    draft = guess([1, 2, 150], EXPECTED, 8)
    assert draft.tree.tokens[draft.tree.children(0)].tolist() == [4, 3]
    assert first_path(guess([1, 2, 150, 151], EXPECTED))[:2] == [5, 6]
    assert guess([1, 2, *[150] * (PATIENCE + 1)], EXPECTED).drafted == 0, "lost is silent"
    assert guess([7, *[150] * 20], EXPECTED).drafted == 0


@pytest.mark.parametrize(
    ("output", "goes_on"),
    [
        ([1, 2, 150, 4], 5),  # replaced by one
        ([1, 2, 150, 151, 152, 153, 3], 4),  # put in
        ([1, 2, 6], 7),  # left out, near
        ([1, 2, 80, 81], 82),  # left out, far
        ([1, 2, *[150] * 30, 9, 10], 11),
        ([*range(1, 30), 3, 4], 5),  # said again
    ],
)
def test_found_again_after_a_change(output, goes_on):
    assert first_path(guess(output, EXPECTED))[0] == goes_on


def test_the_longest_match_wins_then_the_nearest_ahead():
    expected = [1, 2, 50, 60, 8, 9, 61, 7, 8, 9, 62, 8, 9, 63]
    assert first_path(guess([1, 2, 99, 8, 9], expected))[0] == 61
    assert first_path(guess([1, 2, 99, 7, 8, 9], expected))[0] == 62
    assert first_path(guess([1, 2, 99, 98, 97, 96, 62, 8, 9], expected))[0] == 63


def test_of_equal_matches_one_ahead_wins_over_one_behind():
    expected = [8, 9, 61, 1, 2, 50, *range(20, 40), 8, 9, 62]  # too far for one token alone
    assert first_path(guess([8, 9, 61, 1, 2, 99, 8, 9], expected))[0] == 62


def test_one_token_far_away_is_no_match():
    assert guess([1, 2, *[150] * 5, 90], EXPECTED).drafted == 0


def test_an_edit_is_drafted_in_few_rounds():
    """A name replaced everywhere: all but a few of the 400 tokens come from the prediction."""
    chance = np.random.default_rng(0)
    expected = [7 if i % 20 == 5 else int(chance.integers(10, 190)) for i in range(400)]
    wanted = [9 if token == 7 else token for token in expected]
    drafter, output, rounds = PredictedDrafter(), [], 0
    while len(output) < len(wanted):
        draft = guess(output, expected, 12, drafter)
        path = draft.tree.follow(wanted[len(output) :])
        new = wanted[len(output) :][: len(path) + 1]
        drafter.observe(
            view(output, expected), draft, Verified(draft.tree, tuple(path), np.array(new), np.zeros((0, 0)))
        )
        output, rounds = output + new, rounds + 1
    assert rounds <= 65, rounds


@pytest.mark.parametrize("seed", range(8))
def test_after_any_schedule_the_place_equals_a_fresh_one(seed):
    chance = np.random.default_rng(seed)
    expected = chance.integers(6, size=60).tolist()
    drafter, output = PredictedDrafter(), []
    for _ in range(40):
        fresh = PredictedDrafter()
        fresh._acceptance = drafter._acceptance
        draft = guess(output, expected, 5, drafter)
        same(draft, guess(output, expected, 5, fresh))
        came = (
            expected[len(output) :][: int(chance.integers(4))]
            + chance.integers(7, size=int(chance.integers(3))).tolist()
        )
        drafter.observe(
            view(output, expected), draft, Verified(draft.tree, (), np.array(came, np.int32), np.zeros((0, 0)))
        )
        output += came
        if chance.random() < 0.1:
            output = output[: int(chance.integers(len(output) + 1))]
        if chance.random() < 0.1:
            drafter.release(0)


def test_confidence_follows_what_was_kept():
    sure, unsure = PredictedDrafter(), PredictedDrafter()
    for drafter, right in ((sure, True), (unsure, False)):
        for _ in range(40):
            draft = guess(EXPECTED[:10], EXPECTED, 3, drafter)
            came = np.array(EXPECTED[10:13] if right else [150])
            drafter.observe(view(EXPECTED[:10], EXPECTED), draft, Verified(draft.tree, (), came, np.zeros((0, 0))))
    assert guess(EXPECTED[:10], EXPECTED, 3, sure).acceptance_prob[1] > 0.9
    assert guess(EXPECTED[:10], EXPECTED, 3, unsure).drafted == 0
    assert LONGEST > 1
    assert isinstance(DRAFTERS["predicted"].make(setting(), ""), PredictedDrafter)
