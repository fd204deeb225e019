"""Follow what the user expects the output to be, from its start on, and find the place again after a change.

Made for edits: the expected output is the text before the edit. After a token that is not the expected one, the reply
is looked up in the expectation, longest match first, then nearest ahead; where nothing matches, the change is guessed
to have replaced as many tokens as it has, or to have been put in between. (OpenAI's predicted outputs; LLMA
2304.04487.)
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, Setting, empty_draft
from paceline.draft.tree_ops import prune, tested_nodes
from paceline.estimate.acceptance import Acceptance

LONGEST = 12  # matches from here on are counted as one
TRIED = 64  # places looked at on either side of the present one
NEAR = 16  # a match of one token must be this near
LEAST = 0.15  # least value of a guess where nodes have no price
PATIENCE = 3  # tokens into a change after which nothing is guessed before something matches
REPLACED, INSERTED = LONGEST + 1, LONGEST + 1 + PATIENCE  # buckets of guesses about a change, by its tokens so far
PRIOR = [0.7, *np.linspace(0.5, 0.95, LONGEST), *[0.4] * PATIENCE, *[0.2] * PATIENCE]  # then by match length


@dataclass(slots=True)
class _Place:
    """How far into the expected output a reply is."""

    expected: list[int]
    where: dict[int, list[int]]  # of each token, ascending
    reply: list[int] = field(default_factory=list)
    next: int = 0  # the place of the next token if nothing was changed
    matched: int = LONGEST  # tokens in a row that were as expected; the start counts as sure
    changed: int = 0  # tokens since then

    def read(self, tokens: Seq[int]) -> None:
        for token in tokens:
            self.reply.append(token)
            if self.next < len(self.expected) and self.expected[self.next] == token and not self.changed:
                self.next, self.matched = self.next + 1, self.matched + 1
                continue
            length, place = self.find()
            if length:
                self.next, self.matched, self.changed = place, length, 0
            else:
                self.matched, self.changed = 0, self.changed + 1

    def find(self) -> tuple[int, int]:
        """Return (match length, place after it) of the best match of the reply's end; length 0 if there is none."""
        places = self.where.get(self.reply[-1], [])
        split = int(np.searchsorted(places, self.next))
        ahead, behind = places[split : split + TRIED], places[max(split - TRIED, 0) : split][::-1]
        best, found = 0, 0
        for place in (*ahead, *behind):
            length = 1
            while length < min(LONGEST, len(self.reply), place + 1):
                if self.expected[place - length] != self.reply[-1 - length]:
                    break
                length += 1
            if length > best and (length > 1 or 0 <= place - self.next < NEAR):
                best, found = length, place + 1
        return best, found

    def starts(self) -> list[tuple[int, int]]:
        """Return (place to go on from, bucket of the first guess), the likeliest first."""
        if not self.changed:
            return [(self.next, min(self.matched, LONGEST))]
        if self.changed > PATIENCE:
            return []
        step = self.changed - 1
        return [(self.next + self.changed, REPLACED + step), (self.next, INSERTED + step)]


class PredictedDrafter(Drafter):
    """Silent for requests that come without a prediction, and where the reply has left it.

    Args:
        is_chain: never guess two tokens for one place.
    """

    sources: tuple[str, ...] = ("predicted",)
    weighs = frozenset(sources)

    def __init__(self, *, is_chain: bool = False) -> None:
        self._is_chain = is_chain
        self._places: dict[int, _Place] = {}
        self._acceptance = Acceptance(PRIOR, decay=0.97)
        self.experience = {"predicted": self._acceptance}
        self._proposed: dict[int, tuple[TokenTree, list[int]]] = {}

    @staticmethod
    def of(setting: Setting, argument: str) -> PredictedDrafter:
        return PredictedDrafter(is_chain=setting.draws == "chain")

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Guess that each reply goes on as expected."""
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by how far the reply had been as expected."""
        tree, kinds = self._proposed.pop(view.id, (None, list[int]()))
        if tree is not None:
            for node, is_right in tested_nodes(tree, verified.tokens.tolist()):
                self._acceptance.observe(kinds[node], kept=is_right)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._places.pop(sequence_id, None)
        self._proposed.pop(sequence_id, None)

    def _propose(self, view: View, budget: Budget) -> Draft:
        self._proposed.pop(view.id, None)
        if view.prediction is None or min(budget.nodes, budget.depth) <= 0:
            return empty_draft(view)
        place = self._follow(view)
        tokens, parents, kinds = [int(view.tokens[-1])], [-1], [0]
        for start, kind in place.starts()[: 1 if self._is_chain else None]:
            expected, parent = place.expected[start : start + budget.depth], 0
            if len(tokens) > 1 and expected[:1] == tokens[1:2]:
                break  # both begin alike
            for depth, token in enumerate(expected):
                tokens.append(token)
                parents.append(parent)
                kinds.append(kind if depth == 0 else min((kind if kind <= LONGEST else 0) + depth, LONGEST))
                parent = len(tokens) - 1
        if len(tokens) == 1:
            return empty_draft(view)
        tree = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))
        self._proposed[view.id] = tree, kinds
        guess = self._acceptance.rates()[kinds].astype(np.float32)
        guess[0] = 1.0
        if budget.price is None:  # a reply that has left the prediction gets no guess
            budget = replace(budget, price=LEAST * np.arange(budget.nodes + 1, dtype=np.float64))
        return prune(Draft(tree, guess, np.zeros(len(tokens), np.int8)), budget)

    def _follow(self, view: View) -> _Place:
        """Move a sequence's place to its last token; a text of another sequence is read anew."""
        assert view.prediction is not None
        place, start = self._places.get(view.id), view.prompt_length
        read = 0 if place is None else len(place.reply)
        tail = min(read, 64)
        end = start + read
        if (
            place is None
            or end > len(view.tokens)
            or view.tokens[end - tail : end].tolist() != place.reply[-tail:][:tail]
        ):
            where: dict[int, list[int]] = {}
            expected = view.prediction.tolist()
            for at, token in enumerate(expected):
                where.setdefault(token, []).append(at)
            place = self._places[view.id] = _Place(expected, where)
        place.read(view.tokens[start + len(place.reply) :].tolist())
        return place
