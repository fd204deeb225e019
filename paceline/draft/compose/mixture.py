"""Chains drawn from one distribution: that of a single draft model, or a mixture of several.

The mixture sum w_i q_i is itself a draft distribution, so every verifier stays exact as long as guesses are drawn
from the mixture and the mixture is on record. Weights follow the probability that each member gave to committed
tokens. They change between rounds only, so no guess is ever chosen by its own value.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from time import perf_counter

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import View
from paceline.core.round import Budget, Spent, spent_on
from paceline.core.tree import Draft, Draws, Verified
from paceline.draft.base import Drafter, named
from paceline.draft.lengths import DepthRecord
from paceline.draft.model.proposal import draw_guess, draw_own, draw_shared
from paceline.draft.vocab.translated import TranslatedModel
from paceline.errors import NumericalError
from paceline.sample.coupled import distribution_fast
from paceline.sample.distribution import Distribution, check_logits

DECAY = 0.97  # weight of a token's evidence on the members, one token later
DOUBT = 1e-3  # the least probability a member counts as having given a token
LEAST = 0.02  # of the weight, for a member without evidence in its favour: a later text may suit it


class Weights:
    """The weight of each member's distribution: its discounted likelihood of the committed tokens."""

    def __init__(self, members: int) -> None:
        self._evidence = np.zeros(members)

    def current(self) -> Probabilities:
        """Return float64 [members], summing to one."""
        likely = np.exp(self._evidence - self._evidence.max())
        weights = np.maximum(likely / likely.sum(), LEAST)
        return np.asarray(weights / weights.sum())

    def observe(self, chances: Probabilities) -> None:
        """Learn from the probability that each member gave to a committed token."""
        self._evidence = DECAY * self._evidence + np.log(chances + DOUBT)


class MixtureDrafter(Drafter):
    """Drafts chains from the distributions of one or more voices."""

    def __init__(self, voices: Seq[TranslatedModel], *, draws: Draws = "shared", name: str) -> None:
        self.name, self.voices = name, tuple(voices)
        self.sources: tuple[str, ...] = (name,)
        self.spent: dict[str, Spent] = {}
        self.weights = Weights(len(self.voices))
        self._draws = draws
        self._record = DepthRecord()
        self.experience = named(name, self._record.experience)
        self._distributions: dict[int, list[Probabilities]] = {}  # of each sequence's last round: [members, V] by guess

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Draw a chain for each sequence, all sequences side by side."""
        started, before, steps = perf_counter(), self._tokens_read(), 0
        for voice in self.voices:
            voice.reader.allow(budgets)
        lengths = [self._length(view, budget) for view, budget in zip(views, budgets, strict=True)]
        active = [i for i, length in enumerate(lengths) if length and self._begin(views[i], length)]
        guesses: dict[int, list[int]] = {i: [] for i in active}
        distributions: dict[int, list[Probabilities]] = {i: [] for i in active}
        while active:
            chosen, paths = [views[i] for i in active], [guesses[i] for i in active]
            said = [voice.logits(chosen, paths) for voice in self.voices]
            steps += 1
            for row, i in enumerate(list(active)):
                try:
                    token, drawn_from = self._draw([logits[row] for logits in said], views[i], guesses[i])
                except NumericalError:  # a broken draft guesses nothing; the target goes on alone
                    active.remove(i)
                    continue
                guesses[i].append(token)
                distributions[i] += [] if drawn_from is None else [drawn_from]
            active = [i for i in active if len(guesses[i]) < lengths[i]]
        self.spent = spent_on(self.name, steps, perf_counter() - started, self._tokens_read() - before)
        return self._record.drafts(views, guesses, None if self._draws == "shared" else distributions)

    def check(self) -> None:
        """See `Drafter.check`."""
        for voice in self.voices:
            voice.reader.cache.check()

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        return {self.name: [sum(voice.unread(view) for voice in self.voices) for view in views]}

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right by depth, and move the weights of the members."""
        self._record.observe(draft, verified)
        guesses = draft.tree.tokens[1:]
        for depth, (token, members) in enumerate(
            zip(verified.tokens, self._distributions.pop(view.id, []), strict=False)
        ):
            self.weights.observe(members[:, token])
            if depth < len(guesses) and guesses[depth] != token:
                break

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self._distributions.pop(sequence_id, None)
        for voice in self.voices:
            voice.release(sequence_id)

    def _tokens_read(self) -> int:
        return sum(voice.reader.tokens_read for voice in self.voices)

    def _length(self, view: View, budget: Budget) -> int:
        length = self._record.length(budget, self.name)
        return min([length, *(voice.room(view) for voice in self.voices)]) if length else 0

    def _begin(self, view: View, length: int) -> bool:
        self._distributions[view.id] = []
        return all(voice.begin(view, length) for voice in self.voices)

    def _draw(self, rows: list[Floats], view: View, path: list[int]) -> tuple[int, Probabilities | None]:
        if len(rows) == 1:
            return draw_guess(rows[0], view, path, self._draws)
        members = np.stack([_chances(row, view, path) for row in rows])
        self._distributions[view.id].append(members)
        mixed = self.weights.current() @ members
        if view.params.is_greedy:
            token = int(mixed.argmax())
            return token, None if self._draws == "shared" else np.eye(1, len(mixed), token)[0]
        if self._draws == "shared":
            return draw_shared(mixed, view, path), None
        return draw_own(mixed, view, path, self._draws)


def _chances(logits: Floats, view: View, path: list[int]) -> Probabilities:
    """Return a member's distribution, float64 [V]; where the target is greedy, the distribution at temperature 1."""
    if not view.params.is_greedy:
        return distribution_fast(logits, view, path).probabilities(len(logits))
    check_logits(logits)
    return Distribution(np.arange(len(logits), dtype=np.int32), logits.astype(np.float64)).probabilities(len(logits))
