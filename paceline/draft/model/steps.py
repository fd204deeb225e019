"""Drafting chains with a model: all steps in one native call, or one by one in Python.

`run_native` and `run_plain` do the same to the bit: read what each cache lacks, draw, feed back, until the next guess
does not pay. The plain one also serves what native code does not: other settings of sampling, other models, and
verifiers that want draws with noise of their own. Both leave a cache with everything forwarded: all but the last
guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import SamplingParams, View
from paceline.core.round import Floor
from paceline.draft.model.chain import BINS, DEPTHS, EDGES, RANKS, Guesses, Rates, bin_of
from paceline.draft.model.state import TextState
from paceline.errors import NumericalError
from paceline.kernels.native import native
from paceline.model.cache import PagedCache
from paceline.model.extend import extend
from paceline.sample.coupled import draw


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence's chain: `feed` are the tokens its `cache` lacks; at most `limit` guesses, at these prices, or while
    the draft is as sure as `floor` says.
    """

    view: View
    cache: int
    feed: list[int]
    limit: int
    price: Probabilities | None = None
    step: float = 0.0
    floor: Floor | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Logits of one step: `own` float32 [rows], as the model put them out, and `whole` float32 [V]."""

    own: Floats
    whole: Floats


@dataclass(slots=True)
class Progress:
    """Where a chain stands: how likely it is accepted so far, and the bin of its last guess."""

    survival: float = 1.0
    bin: int = BINS


Pick = Callable[[Row, Job, Guesses, Progress, Rates], None]
"""Add a guess, its confidence and its runners-up; raises NumericalError when nothing can be drawn."""


_KNOWN = ("temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "stop", "ignore_eos", "logprobs")
_FOREIGN = [setting for setting in fields(SamplingParams) if setting.name not in _KNOWN]


def is_native(job: Job) -> bool:
    """Tell whether the native loop supports this job's sampling and stopping rule."""
    if job.floor is not None and job.floor.by_entropy:
        return False
    return all(getattr(job.view.params, other.name) == other.default for other in _FOREIGN)


def run_native(loop: Any, cache: PagedCache, jobs: Sequence[Job], rates: Rates) -> list[Guesses]:
    """Draft all chains in one call."""
    wishes, floor = [], jobs[0].floor
    assert all(job.floor == floor for job in jobs), [job.floor for job in jobs]
    for job in jobs:
        params, price = job.view.params, [] if job.price is None else job.price.tolist()
        price = price if floor is None else [0.0] * (job.limit + 1)
        distribution = (params.temperature, params.top_k, params.top_p, params.min_p, params.seed)
        wishes.append((*distribution, len(job.view.tokens), job.limit, price, 0.0 if floor else job.step))
    caches = [job.cache for job in jobs]
    lengths = np.array([cache.length(handle) for handle in caches], np.int32)
    starts = np.array([0, *accumulate(len(job.feed) for job in jobs)], np.int32)
    feed = np.array([token for job in jobs for token in job.feed], np.int32)
    tables = (np.array(EDGES), rates.kept, rates.ahead, rates.beside)
    if floor is not None:  # two bins: nothing is accepted after an unsure guess, everything after a sure one
        tables = (np.array([floor.least]), np.ones((1, 2)), np.array([[0.0, 1.0, 1.0]]), np.zeros((RANKS, 2)))
    got, _ = loop.run(cache.store, feed, starts, lengths, cache.table(caches), wishes, *tables)
    found = [Guesses(*one) for one in got]
    for job, guesses in zip(jobs, found, strict=True):
        forwarded = [*job.feed, *guesses.tokens[: guesses.steps - 1]]
        cache.commit(job.cache, range(len(forwarded)), forwarded)
        if floor is not None and guesses.tokens and guesses.confidences[-1] < floor.least:
            guesses.drop()
    return found


def run_plain(reader: TextState, jobs: Sequence[Job], rates: Rates, *, pick: Pick | None = None) -> list[Guesses]:
    """Do the same step by step; `pick` says how to draw, when not with the target's noise."""
    found = [Guesses() for _ in jobs]
    stand = [Progress() for _ in jobs]
    active = list(range(len(jobs)))
    while active:
        feeds = [found[i].tokens[-1:] if found[i].steps else jobs[i].feed for i in active]
        logits = extend(reader.model, reader.cache, [jobs[i].cache for i in active], feeds, wanted=1)
        left = []
        for own, i in zip(logits, active, strict=True):
            job, guesses, progress = jobs[i], found[i], stand[i]
            guesses.steps += 1
            row = Row(own, reader.whole(own))
            try:
                (pick or pick_shared)(row, job, guesses, progress, rates)
            except NumericalError:  # a broken draft guesses nothing; the target goes on alone
                continue
            if job.floor is not None:
                if not _is_sure(row, guesses, job):
                    if (
                        pick is None
                    ):  # dropping a guess with a distribution of its own by its value changes the distribution
                        guesses.drop()
                elif len(guesses.tokens) < job.limit:
                    left.append(i)
                continue
            depth = min(len(guesses.tokens), DEPTHS) - 1
            progress.bin = bin_of(guesses.confidences[-1])
            progress.survival *= float(rates.kept[depth, progress.bin])
            if len(guesses.tokens) < job.limit and rates.pays(
                len(guesses.tokens), progress.survival, progress.bin, job.price, job.step, job.limit
            ):
                left.append(i)
        active = left
    return found


def pick_shared(row: Row, job: Job, guesses: Guesses, progress: Progress, rates: Rates) -> None:
    """Draw with the target's own noise; runners-up are the next best of the same race (2408.07978, 2506.05632)."""
    token = draw(row.whole, job.view, guesses.tokens)
    confidence = probability(row.own, float(row.whole[token]), job.view.params)
    bin = bin_of(confidence)
    least = np.inf if job.price is None or job.floor else float(np.diff(job.price).min(initial=np.inf))
    others, left = list[int](), row.whole
    for rank in range(RANKS):
        if not progress.survival * float(rates.beside[rank, bin]) > least:
            break
        left = left.copy()
        left[[token, *others]] = -np.inf
        try:
            others.append(draw(left, job.view, guesses.tokens))
        except NumericalError:  # no token is left
            break
    guesses.tokens.append(token)
    guesses.confidences.append(confidence)
    guesses.beside.append(others)


def _is_sure(row: Row, guesses: Guesses, job: Job) -> bool:
    """Tell whether the draft was sure enough of its last guess."""
    assert job.floor is not None
    if not job.floor.by_entropy:
        return guesses.confidences[-1] >= job.floor.least
    return 1 - math.sqrt(0.2 * entropy(row.own, job.view.params)) >= job.floor.least


def entropy(logits: Floats, params: SamplingParams) -> float:
    """Return the entropy of the distribution of these, in nats, before any filter; at temperature 1 if greedy."""
    scaled = (logits - logits.max()).astype(np.float64) / (1.0 if params.is_greedy else params.temperature)
    weights = np.exp(scaled)
    total = float(weights.sum())
    known = weights > 0
    return max(math.log(total) - float(weights[known] @ scaled[known]) / total, 0.0)


def probability(logits: Floats, value: float, params: SamplingParams) -> float:
    """Return how likely a token with logit `value` is among these, before any filter; at temperature 1 if greedy."""
    return float(native.probability(logits, value, 1.0 if params.is_greedy else params.temperature))
