"""A smaller model as drafter: it continues the text with the target's own noise, so that its guesses coincide.

It never forwards its last guess, so after a fully accepted round it lags two tokens and forwards both.
(Leviathan et al. 2211.17192; drawing with shared Gumbel noise: Daliri et al. 2408.07978.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from paceline.core.aliases import Ints
from paceline.core.request import View
from paceline.core.round import Budget, Spent, spent_on
from paceline.core.tree import Draft, Draws, TokenTree, Verified
from paceline.draft.base import Drafter, empty_draft, named
from paceline.draft.model.chain import DEPTHS, RANKS, Confidence, Guesses, bin_of
from paceline.draft.model.proposal import pick_drawn
from paceline.draft.model.state import TextState
from paceline.draft.model.steps import Job, is_native, run_native, run_plain
from paceline.draft.tree_ops import prune
from paceline.model.base import Model, packed
from paceline.sample.proposal import Children

if TYPE_CHECKING:
    from paceline._native import DraftLoop

TREES = ("tree", "greedy_tree")  # draws with siblings


class ModelDrafter(Drafter):
    """Drafts with `model`, which must have the target's vocabulary.

    Args:
        context, slots, outputs: see `TextState`.
        draws: the kind of draws that the verifier needs.
        native: False drafts step by step in Python; the guesses are the same.
        clock: tells seconds; perf_counter if none is given.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int,
        slots: int = 8,
        name: str = "model",
        outputs: Ints | None = None,
        draws: Draws = "shared",
        native: bool = True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name, self._clock = name, clock or perf_counter
        self.sources: tuple[str, ...] = (name,)
        self.reader = TextState(model, context=context, slots=slots, name=name, outputs=outputs, clock=self._clock)
        self.cache = self.reader.cache
        self._loop: DraftLoop | None = None
        if self.reader.head is not None:
            self._loop = self.reader.head.loop
        elif (own := packed(model)) is not None:
            self._loop = own.loop()
        if not native:
            self._loop = None
        self.draws = draws
        # The number of siblings in a drawn tree depends on its depth.
        self.weighs = frozenset(() if draws in TREES else self.sources)
        self.confidence = Confidence()
        self.experience = named(name, self.confidence.experience)
        self.spent: dict[str, Spent] = {}
        self._guesses: dict[int, Guesses] = {}  # of each sequence's latest round

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Guess a chain for each sequence, all sequences side by side; runners-up too where prices say they may pay."""
        self.spent = {}
        started, before = self._clock(), self.reader.tokens_read
        self.reader.allow(budgets)
        jobs: dict[int, Job] = {}
        for i, (view, budget) in enumerate(zip(views, budgets, strict=True)):
            if min(budget.nodes, budget.depth) > 0 and (job := self._job(view, budget)):
                jobs[i] = job
        read = self.reader.tokens_read - before
        if not jobs:
            self.spent = spent_on(self.name, 0, self._clock() - started, read)
            return [empty_draft(view) for view in views]
        children: list[list[Children]] = [[] for _ in views]
        found = self._run(jobs, budgets, children)
        steps = max(guesses.steps for guesses in found.values())
        drafts = dict[int, Draft]()
        for i, guesses in found.items():
            self._guesses[views[i].id] = guesses
            if guesses.tokens:
                drafts[i] = self._draft(views[i], budgets[i], guesses, children[i])
        self.spent = spent_on(self.name, steps, self._clock() - started, read)
        return [drafts.get(i) or empty_draft(view) for i, view in enumerate(views)]

    def check(self) -> None:
        """See `Drafter.check`."""
        self.reader.cache.check()

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        return {self.name: [self.reader.lag(view.id, view.tokens, view.cache_salt) for view in views]}

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by depth and confidence, runners-up included."""
        if draft.drafted:
            self.confidence.observe(self._guesses[view.id], verified.tokens.tolist())

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self.reader.release(sequence_id)
        self._guesses.pop(sequence_id, None)

    def _job(self, view: View, budget: Budget) -> Job | None:
        """Read all but the end of a text; return the job, or `None` without a budget or room.

        The controller decides whether to draft; a drafter that refused would never be re-evaluated.
        """
        room = self.reader.room(view.id, view.tokens)
        limit = min(budget.nodes // self._width(budget), budget.depth, room)
        step = budget.step.get(self.name, 0.0)
        if not math.isfinite(step):
            return None
        rest = self.reader.read(view.id, view.tokens, limit, salt=view.cache_salt)
        if rest is None:  # other texts hold the room, or there is no time to read on: this one gets no guess
            return None
        return Job(view, self.reader.handle(view.id), rest.tolist(), limit, budget.price, step, budget.floor)

    # ---- drafting

    def _run(self, jobs: dict[int, Job], budgets: Seq[Budget], children: list[list[Children]]) -> dict[int, Guesses]:
        """Run every chain; one native call takes those that the native loop supports."""
        rates, found = self.confidence.rates(), dict[int, Guesses]()
        fast = [i for i, job in jobs.items() if self._loop and self.draws == "shared" and is_native(job)]
        slow = [i for i in jobs if i not in fast]
        if fast:
            chains = run_native(self._loop, self.cache, [jobs[i] for i in fast], rates)
            found.update(zip(fast, chains, strict=True))
        groups = {self._width(budgets[i]) for i in slow}
        for width in groups:
            same = [i for i in slow if self._width(budgets[i]) == width]
            place = {jobs[i].view.id: i for i in same}
            pick = None if self.draws == "shared" else pick_drawn(self.draws, width, children, place)
            chains = run_plain(self.reader, [jobs[i] for i in same], rates, pick=pick)
            found.update(zip(same, chains, strict=True))
        return found

    def _width(self, budget: Budget) -> int:
        """Return how many siblings to draw a step: decided before anything is drawn; more siblings mean less depth."""
        if self.draws not in TREES:
            return 1
        return min(max(budget.nodes // max(budget.depth, 1), 1 + (budget.nodes > 3)), RANKS + 1)

    def _draft(self, view: View, budget: Budget, guesses: Guesses, children: list[Children]) -> Draft:
        rates, count = self.confidence.rates(), len(guesses.tokens)
        bins = [bin_of(confidence) for confidence in guesses.confidences]
        tokens, parents = [int(view.tokens[-1]), *guesses.tokens], list(range(-1, count))
        guess = [1.0, *(float(rates.kept[min(i, DEPTHS - 1), bin]) for i, bin in enumerate(bins))]
        for depth, (bin, others) in enumerate(zip(bins, guesses.beside, strict=True)):
            tokens += others
            parents += [depth] * len(others)
            guess += [float(rates.beside[rank, bin]) for rank in range(len(others))]
        tree = TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))
        draft = Draft(tree, np.array(guess, np.float32), np.zeros(len(tokens), np.int8))
        if self.draws == "shared":
            return draft if budget.price is None or budget.floor else prune(draft, budget)
        drawn = np.zeros(len(tokens), np.bool_)
        for node, found in enumerate(children):
            drawn[tree.children(node)] = found.drawn
        distributions = {node: found.distribution for node, found in enumerate(children) if found.drawn.any()}
        return Draft(tree, draft.acceptance_prob, draft.source, distributions, drawn)
