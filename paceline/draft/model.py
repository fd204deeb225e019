"""A smaller model as drafter: it continues the text with the target's own noise, so that its guesses coincide.

Keeps its own cache, one sequence behind each of the target's. It never forwards its last guess, so after a fully
accepted round it lags two tokens and forwards both; a refused branch is cropped by comparing tokens, not by counting.
A text longer than its context it reads from the middle on.
(Leviathan et al. 2211.17192; drawing with shared Gumbel noise: Daliri et al. 2408.07978.)
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import takewhile
from time import perf_counter

import numpy as np

from paceline.draft.base import empty_draft, named
from paceline.draft.chain import DEPTHS, RANKS, Confidence, Guesses, bin_of
from paceline.draft.drawn import pick_drawn
from paceline.draft.grow import prune
from paceline.draft.head import Head
from paceline.draft.steps import Job, is_native, run_native, run_plain
from paceline.errors import ContextOverflow
from paceline.model.base import Model
from paceline.model.cache import PagedCache
from paceline.model.extend import read_on
from paceline.model.flatten import CHUNK, SLACK
from paceline.model.native import NativeModel
from paceline.sample.drawn import Children
from paceline.types import Budget, Draft, Draws, Ints, Spent, TokenTree, Verified, View

LAG = 8  # so many tokens to read first, and a round says nothing of what a step takes

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _State:
    cache: int
    start: int  # the cache holds the text from here on
    guesses: Guesses = field(default_factory=Guesses)  # of the latest round


class ModelDrafter:
    """Drafts with `model`, whose vocabulary must be the target's.

    Args:
        context: how much of a text is read.
        slots: how many sequences at once.
        outputs: int32 [rows], the tokens worth guessing, most frequent first; `None` for all. Needs a native model.
        draws: what the verifier wants.
        native: False drafts step by step in Python; the guesses are the same.
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
    ) -> None:
        self.name = name
        self.sources: tuple[str, ...] = (name,)
        self.head: Head | None = None
        self.model, self._loop = model, None
        if outputs is not None:
            assert isinstance(model, NativeModel), model
            self.head = Head(model, outputs)
            self.model, self._loop = self.head.model, self.head.loop
        elif isinstance(model, NativeModel):
            self._loop = model.loop()
        if not native:
            self._loop = None
        self.draws = draws
        self.context = min(context, model.spec.context)
        self.cache: PagedCache = model.new_cache((self.context + SLACK) * slots)
        self.confidence = Confidence()
        self.experience = named(name, self.confidence.experience)
        self.spent: dict[str, Spent] = {}
        self.forward_seconds = 0.0  # of all rounds so far
        self._states: dict[int, _State] = {}
        self._is_warned = False

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Guess a chain for each sequence, all sequences side by side; runners-up too where prices say they may pay."""
        self.spent = {}
        jobs: dict[int, Job] = {}
        for i, (view, budget) in enumerate(zip(views, budgets, strict=True)):
            if min(budget.nodes, budget.depth) > 0 and (job := self._job(view, budget)):
                jobs[i] = job
            elif budget.nodes == 0 < budget.depth and math.isfinite(budget.step.get(self.name, 0.0)):
                self._prepare(view, budget)
        if not jobs:
            return [empty_draft(view) for view in views]
        started = perf_counter()
        children: list[list[Children]] = [[] for _ in views]
        found = self._run(jobs, budgets, children)
        steps = max(guesses.steps for guesses in found.values())
        drafts = dict[int, Draft]()
        for i, guesses in found.items():
            self._states[views[i].id].guesses = guesses
            if guesses.tokens:
                drafts[i] = self._draft(views[i], budgets[i], guesses, children[i])
        missed = max(len(job.feed) for job in jobs.values()) - 1
        self.spent = {self.name: Spent(steps, perf_counter() - started, missed if missed >= LAG else 0)}
        return [drafts.get(i) or empty_draft(view) for i, view in enumerate(views)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by depth and confidence, runners-up included."""
        state = self._states.get(view.id)
        if state is not None and draft.drafted:
            self.confidence.observe(state.guesses, verified.tokens.tolist())

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        state = self._states.pop(sequence_id, None)
        if state is not None:
            self.cache.release(state.cache)

    # ---- reading

    def _job(self, view: View, budget: Budget) -> Job | None:
        """Read all but the end of a text; return what is to be drafted, if that is wanted and finds room.

        Whether to begin is for who set the budget to say: whoever never begins never learns that he should.
        """
        limit = min(budget.nodes // self._width(budget), budget.depth, self.context // 2)
        step = budget.step.get(self.name, 0.0)
        if not math.isfinite(step):
            return None
        try:
            state = self._read(view, limit)
            feed = view.tokens[state.start + self.cache.length(state.cache) :].tolist()
            self.cache.extend(state.cache, len(feed) + limit - 1)
        except ContextOverflow:  # others hold the room: this one goes without a guess
            return None
        return Job(view, state.cache, feed, limit, budget.price, step, budget.floor)

    def _prepare(self, view: View, budget: Budget) -> None:
        """Read a prompt before it is drafted for, so that its first round waits for a step only."""
        with contextlib.suppress(ContextOverflow):
            state = self._read(view, min(budget.depth, self.context // 2))
            self.forward_seconds += read_on(self.model, self.cache, state.cache, view.tokens[state.start :])

    def _read(self, view: View, limit: int) -> _State:
        """Bring the cache to all of a sequence's tokens but the last few."""
        state = self._states.get(view.id)
        if state is None or len(view.tokens) - state.start + limit > self.context:
            state = self._open(view, limit)
        tokens = view.tokens[state.start :]
        cached = self.cache.length(state.cache)
        # What this model guessed last may differ from what was committed since.
        first = min(max(cached - len(state.guesses.tokens), 0), len(tokens) - 1)
        if self.head is not None:
            self.head.absorb(tokens[first:])
        both = zip(self.cache.tail(state.cache, first), tokens[first:-1].tolist(), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        self.cache.crop(state.cache, first + shared)
        state.guesses = Guesses()
        self.forward_seconds += read_on(self.model, self.cache, state.cache, tokens, left=CHUNK)
        return state

    def _open(self, view: View, limit: int) -> _State:
        """Start over with a text: from its beginning, or from where half this model's context is left to go on."""
        self.release(view.id)
        start = 0
        if len(view.tokens) + limit > self.context:
            start = len(view.tokens) - self.context // 2
            if not self._is_warned:
                log.warning(
                    "the draft model reads %d tokens only; request %d, %d tokens long, is drafted from its end",
                    self.context,
                    view.id,
                    len(view.tokens),
                )
            self._is_warned = True
        tokens = view.tokens[start:]
        state = self._states[view.id] = _State(self.cache.open(tokens.tolist()), start)
        if self.head is not None:
            self.head.absorb(tokens)
        return state

    # ---- drafting

    def _run(self, jobs: dict[int, Job], budgets: Seq[Budget], children: list[list[Children]]) -> dict[int, Guesses]:
        """Run every chain, those the native loop knows in one call."""
        rates, found = self.confidence.rates(), dict[int, Guesses]()
        fast = [i for i, job in jobs.items() if self._loop and self.draws == "shared" and is_native(job)]
        slow = [i for i in jobs if i not in fast]
        if fast:
            chains, seconds = run_native(self._loop, self.cache, [jobs[i] for i in fast], rates)
            found.update(zip(fast, chains, strict=True))
            self.forward_seconds += seconds
        whole = None if self.head is None else self.head.whole
        groups = {self._width(budgets[i]) for i in slow}
        for width in groups:
            same = [i for i in slow if self._width(budgets[i]) == width]
            place = {jobs[i].view.id: i for i in same}
            pick = None if self.draws == "shared" else pick_drawn(self.draws, width, children, place)
            some = [jobs[i] for i in same]
            chains, seconds = run_plain(self.model, self.cache, some, rates, whole=whole, pick=pick)
            found.update(zip(same, chains, strict=True))
            self.forward_seconds += seconds
        return found

    def _width(self, budget: Budget) -> int:
        """Return how many siblings to draw a step: decided before anything is drawn, and paid for with depth."""
        if self.draws not in ("tree", "greedy_tree"):
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
        laws = {node: found.law for node, found in enumerate(children) if found.drawn.any()}
        return Draft(tree, draft.guess, draft.source, laws, drawn)
