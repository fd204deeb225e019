"""Whatever a user's drafter hands in, it is refused by name and with a reason, or it is a draft."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree
from paceline.draft.base import Drafter
from paceline.draft.check import check
from paceline.draft.compose.mix import MixDrafter
from paceline.errors import UsageError

VIEW = View(1, np.array([3, 4, 5], np.int32), SamplingParams(), 1)
TREE = TokenTree(np.array([5, 1, 2, 3], np.int32), np.array([-1, 0, 0, 1], np.int32))
GOOD = Draft(TREE, np.full(4, 0.5, np.float32), np.zeros(4, np.int8))
DRAWN = replace(GOOD, drawn=np.array([False, True, False, False]), distributions={0: np.full(8, 1 / 8)})


def tree(tokens=TREE.tokens, parents=TREE.parents):
    return replace(GOOD, tree=TokenTree(tokens, parents))


BAD = {
    "no draft": (None, "a `Draft` of a `TokenTree`"),
    "no tree": (replace(GOOD, tree=None), "a `Draft` of a `TokenTree`"),
    "lists": (tree([5, 1, 2, 3], [-1, 0, 0, 1]), "`tokens` as a numpy array of whole numbers"),
    "NaN for a token": (tree(np.array([5, 1, np.nan, 3])), "`tokens` as a numpy array of whole numbers"),
    "half a parent": (tree(parents=np.array([-1, 0, 0.5, 1])), "`parents` as a numpy array of whole numbers"),
    "a table": (tree(TREE.tokens[None]), "`tokens` as a numpy array"),
    "a source that is none": (replace(GOOD, source=np.full(4, np.nan)), "`source` as a numpy array of whole numbers"),
    "one guess for all": (
        replace(GOOD, acceptance_prob=np.float32(0.5)),
        "`acceptance_prob` as a numpy array of floats",
    ),
    "nothing": (tree(TREE.tokens[:0], TREE.parents[:0]), "the sequence's last token at the root"),
    "another root": (tree(np.array([6, 1, 2, 3])), "the sequence's last token at the root"),
    "too few guesses": (replace(GOOD, acceptance_prob=GOOD.acceptance_prob[:2]), "each of its 4 nodes"),
    "a guess that is none": (
        replace(GOOD, acceptance_prob=np.array([1, 0.5, np.nan, 0.5])),
        "from 0 to 1, got `.0.5, nan, 0.5.`",
    ),
    "a guess beyond doubt": (
        replace(GOOD, acceptance_prob=np.array([1, 0.5, 0.5, 2.0])),
        "odds of each guess, from 0 to 1",
    ),
    "a guess below doubt": (
        replace(GOOD, acceptance_prob=np.array([1, -0.1, 0.5, 0.5])),
        "odds of each guess, from 0 to 1",
    ),
    "itself for a parent": (tree(parents=np.array([-1, 0, 2, 1])), "parents before their children"),
    "a child before its parent": (tree(parents=np.array([-1, 0, 3, 1])), "parents before their children"),
    "no such token": (tree(np.array([5, 1, 8, 3])), "tokens from 0 to 7"),
    "a token beyond 32 bits": (tree(np.array([5, 1, 2**32 + 3, 3])), "tokens from 0 to"),
    "another's source": (replace(GOOD, source=np.ones(4, np.int8)), "one of its own sources"),
    "drawn from nothing": (replace(DRAWN, distributions={}), "got none for node `0`"),
    "a distribution and nothing drawn": (replace(DRAWN, drawn=None), "whether it was `drawn`"),
    "no distributions at all": (replace(DRAWN, distributions=None), "the distributions by node"),
    "a distribution of another's node": (
        replace(DRAWN, distributions={0: np.ones(8), 99: np.ones(8)}),
        "distributions by node, from 0 to 3",
    ),
    "a distribution of no numbers": (
        replace(DRAWN, distributions={0: np.full(8, np.nan)}),
        "distribution of node 0 as float64",
    ),
    "a short distribution": (replace(DRAWN, distributions={0: np.full(3, 1 / 3)}), r"node 0 as float64 \[8\]"),
}
SHORTER = ("no such token", "a short distribution")  # what only the whole vocabulary tells


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_draft_is_refused_in_words(name):
    draft, said = BAD[name]
    with pytest.raises(UsageError, match=said) as error:
        check([draft], [VIEW], 8, ("mine",))
    assert "drafter `mine`" in str(error.value)


@pytest.mark.parametrize("name", [name for name in BAD if name not in SHORTER])
def test_in_a_mix_the_faulty_member_is_named(name):
    class Mine(Drafter):
        sources = ("mine",)

        def propose(self, views, budgets):
            return [BAD[name][0]]

    class Other(Mine):
        sources = ("other",)

        def propose(self, views, budgets):
            return [GOOD]

    with pytest.raises(UsageError, match="drafter `mine`"):
        MixDrafter([Other(), Mine()]).propose([VIEW], [Budget(8, 8)])


def test_drafts_are_taken_with_and_without_distributions():
    for draft in (GOOD, DRAWN, replace(GOOD, acceptance_prob=GOOD.acceptance_prob.astype(np.float64))):
        check([draft], [VIEW], 8, ("mine",))
    for drafts, said in (
        ([], "one draft per sequence, got `0` for 1"),
        (None, "list of drafts"),
        (iter(()), "a list of"),
    ):
        with pytest.raises(UsageError, match=said):
            check(drafts, [VIEW], 8, ("mine",))
