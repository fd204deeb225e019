"""What prompt lookup learns from its own past: how sure to be, when one token is match enough, where to stop."""

import numpy as np
import pytest
from views import outcome

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.lookup.ngram import NgramDrafter


def view(tokens):
    return View(0, np.asarray(tokens, np.int32), SamplingParams())


def play(drafter, tokens, budget):
    """Draft for the text before each token; return how many guesses were made and how many were right at once."""
    drafted = kept = 0
    for end in range(1, len(tokens)):
        (draft,) = drafter.propose([view(tokens[:end])], [budget])
        guesses = draft.tree.tokens[1:].tolist()
        right = 0
        while right < len(guesses) and end + right + 1 < len(tokens) and guesses[right] == tokens[end + right]:
            right += 1
        drafter.observe(view(tokens[:end]), draft, outcome(draft, right, tokens[end + right]))
        drafted, kept = drafted + len(guesses), kept + right
    return drafted, kept


def pairs(chance, count, keep):
    """A text in which token 2k is followed by 2k + 1 with odds `keep`, and pairs never recur together."""
    out = []
    for i in range(count):
        a = int(chance.integers(20)) * 2
        out += [a, a + 1 if chance.random() < keep else 1000 + i, 5000 + i]
    return out


def test_one_token_matches_only_where_it_proved_right():
    chance = np.random.default_rng(0)
    drafted, kept = play(NgramDrafter(), pairs(chance, 400, 1.0), Budget(1, 1))
    assert kept > 300, (drafted, kept)
    drafted, kept = play(NgramDrafter(), pairs(chance, 400, 0.05), Budget(1, 1))
    assert drafted < 20, (drafted, kept)


def test_deeper_guesses_count_as_longer_matches():
    drafter, text = NgramDrafter(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    for _ in range(60):  # the second guess is right whenever the first is; the first is right one time in three
        for kept in (0, 0, 3):
            (draft,) = drafter.propose([view(text)], [Budget(3, 3)])
            drafter.observe(view(text), draft, outcome(draft, kept))
    guess = drafter.propose([view(text)], [Budget(3, 3)])[0].acceptance_prob
    assert 0.2 < guess[1] < 0.45
    assert guess[2] > 0.9
    assert guess[3] > 0.9


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.3, 0.6, 0.999])
def test_a_path_less_likely_than_the_price_is_not_drafted(floor):
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    (whole,) = NgramDrafter().propose([view(text)], [Budget(7, 7)])
    (cut,) = NgramDrafter().propose([view(text)], [Budget(7, 7, floor * np.arange(8))])
    likely = np.cumprod(whole.acceptance_prob[1:]) >= floor
    assert cut.drafted == likely.sum()
    np.testing.assert_array_equal(cut.tree.tokens, whole.tree.tokens[: cut.drafted + 1])
    np.testing.assert_array_equal(cut.acceptance_prob, whole.acceptance_prob[: cut.drafted + 1])


def test_a_rewritten_text_is_read_anew_even_if_longer():
    drafter = NgramDrafter()
    drafter.propose([view([1, 2, 3, 4, 1, 2])], [Budget(2, 2)])
    (draft,) = drafter.propose([view([1, 2, 8, 9, 5, 6, 1, 2])], [Budget(2, 2)])
    assert draft.tree.tokens.tolist() == [2, 8, 9]
