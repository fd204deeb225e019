"""A smaller model as drafter: it continues the text with the target's own noise, so that its guesses coincide.

Keeps its own cache, one sequence behind each of the target's. It never forwards its last guess, so after a fully
accepted round it lags two tokens and forwards both; a refused branch is cropped by comparing tokens, not by counting.
(Leviathan et al. 2211.17192; drawing with shared Gumbel noise: Daliri et al. 2408.07978.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from paceline.control.acceptance import Acceptance
from paceline.draft.base import empty_draft
from paceline.errors import NumericalError
from paceline.model.base import Model
from paceline.model.cache import PagedCache
from paceline.model.flatten import CHUNK, SLACK, flatten
from paceline.sample.draw import draw
from paceline.sample.drawn import draw_children
from paceline.sample.law import law
from paceline.types import Budget, Draft, Draws, Ints, Probabilities, Spent, TokenTree, Verified, View

DEEPEST = 15  # guesses from here on are counted as one

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _State:
    cache: int
    guesses: list[int] = field(default_factory=list)
    laws: list[Probabilities] = field(default_factory=list)  # of the guesses, if they are drawn independently
    is_full: bool = False  # the text has outgrown this model's context


class ModelDrafter:
    """Drafts chains with `model`, whose vocabulary must be the target's."""

    def __init__(
        self, model: Model, *, context: int, slots: int = 8, name: str = "model", draws: Draws = "shared"
    ) -> None:
        self.name = name
        self.sources: tuple[str, ...] = (name,)
        self.model = model
        self.context = min(context, model.spec.context)
        self.cache: PagedCache = model.new_cache((self.context + SLACK) * slots)
        self._draws: Draws = draws
        self._states: dict[int, _State] = {}
        self.spent: dict[str, Spent] = {}
        self._acceptance = Acceptance(np.full(DEEPEST + 1, 0.7))

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Guess a chain of up to `budget.depth` tokens for each sequence, all sequences side by side."""
        started, steps = perf_counter(), 0
        active = [i for i, budget in enumerate(budgets) if min(budget.nodes, budget.depth) > 0]
        active = [i for i in active if self._has_room(views[i], min(budgets[i].nodes, budgets[i].depth))]
        for i in active:
            self._read(views[i])
        guesses: dict[int, list[int]] = {i: [] for i in active}
        while active:
            broken = self._guess_one(views, active, guesses)
            steps += 1
            active = [
                i for i in active if i not in broken and len(guesses[i]) < min(budgets[i].nodes, budgets[i].depth)
            ]
        self.spent = {self.name: Spent(steps, perf_counter() - started)} if steps else {}
        return [self._draft(view, guesses[i]) if guesses.get(i) else empty_draft(view) for i, view in enumerate(views)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by depth."""
        for depth, (guess, token) in enumerate(zip(draft.tree.tokens[1:], verified.tokens, strict=False)):
            self._acceptance.observe(min(depth, DEEPEST), kept=bool(guess == token))
            if guess != token:
                break

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        state = self._states.pop(sequence_id, None)
        if state is not None:
            self.cache.release(state.cache)

    def _has_room(self, view: View, depth: int) -> bool:
        state = self._states.get(view.id)
        if len(view.tokens) + depth <= self.context and (state is None or not state.is_full):
            return True
        if state is None or not state.is_full:
            log.warning(
                "the draft model reads %d tokens only; request %d goes on without it from token %d",
                self.context,
                view.id,
                len(view.tokens),
            )
            self.release(view.id)
            self._states[view.id] = _State(self.cache.open(), is_full=True)
        return False

    def _read(self, view: View) -> None:
        """Bring the cache to all of a sequence's tokens but the last."""
        state = self._states.get(view.id)
        if state is None:
            state = self._states[view.id] = _State(self.cache.open(view.tokens.tolist()))
        cached = self.cache.length(state.cache)
        # What this model guessed last may differ from what was committed since.
        first = min(max(cached - len(state.guesses), 0), len(view.tokens) - 1)
        known = np.asarray(self.cache.tail(state.cache, first), np.int32)
        committed = view.tokens[first : len(view.tokens) - 1]
        shared = min(len(known), len(committed))
        differs = np.flatnonzero(known[:shared] != committed[:shared])
        self.cache.crop(state.cache, first + (int(differs[0]) if len(differs) else shared))
        state.guesses, state.laws = [], []
        while len(view.tokens) - 1 - self.cache.length(state.cache) > CHUNK:
            start = self.cache.length(state.cache)
            self._extend([state.cache], [view.tokens[start : start + CHUNK]], wanted=0)

    def _guess_one(self, views: Seq[View], active: Seq[int], guesses: dict[int, list[int]]) -> list[int]:
        """Add a token to each active sequence's guesses; return those for which none could be drawn."""
        broken = list[int]()
        states = [self._states[views[i].id] for i in active]
        feeds = []
        for i, state in zip(active, states, strict=True):
            committed = views[i].tokens[self.cache.length(state.cache) :] if not guesses[i] else guesses[i][-1:]
            feeds.append(np.asarray(committed, np.int32))
        logits = self._extend([state.cache for state in states], feeds, wanted=1)
        for row, (i, state) in enumerate(zip(active, states, strict=True)):
            try:
                if self._draws == "shared":
                    token = draw(logits[row], views[i], guesses[i])
                else:
                    children = draw_children(
                        law(logits[row], views[i], guesses[i]),
                        1,
                        self._draws,
                        views[i],
                        guesses[i],
                        vocab=logits.shape[1],
                    )
                    token = int(children.tokens[0])
                    state.laws.append(children.law)
            except NumericalError:  # a broken draft guesses nothing; the target goes on alone
                broken.append(i)
                continue
            guesses[i].append(token)
            state.guesses.append(token)
        return broken

    def _extend(self, caches: list[int], feeds: list[Ints], *, wanted: int) -> np.ndarray:
        trees = [TokenTree.chain(feed) for feed in feeds]
        batch = flatten(self.cache, caches, trees, [wanted] * len(trees))
        logits = self.model.forward(batch, self.cache).logits
        for cache, feed in zip(caches, feeds, strict=True):
            self.cache.commit(cache, range(len(feed)), feed.tolist())
        return logits

    def _draft(self, view: View, guesses: list[int]) -> Draft:
        count = len(guesses)
        guess = np.ones(count + 1, np.float32)
        guess[1:] = self._acceptance.rates()[np.minimum(np.arange(count), DEEPEST)]
        tree, source = TokenTree.chain([int(view.tokens[-1]), *guesses]), np.zeros(count + 1, np.int8)
        laws = dict(enumerate(self._states[view.id].laws))
        return Draft(tree, guess, source, laws, np.arange(count + 1) > 0 if laws else None)
