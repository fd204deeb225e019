"""One round: budgets, drafts, one forward of the target, verdicts, events. The page to read first.

Prefill, decode and verification are the same thing here: a sequence is extended by a tree. A prompt is a chain, a
plain decode step a tree of one node, a verification a tree of guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from paceline.control.base import Controller
from paceline.core.aliases import Floats
from paceline.core.batch import Forward, Logits
from paceline.core.request import Event, Logprobs
from paceline.core.round import LAG, Budget, Load
from paceline.core.tree import Draft, Verdict, Verified
from paceline.draft.base import Drafter, unread_by
from paceline.draft.check import MOST_NODES, check
from paceline.draft.tree_ops import subtree
from paceline.engine.batch import Part, pack, trunk
from paceline.engine.metrics import round_of, sources_of
from paceline.engine.scheduler import ROWS, Scheduler
from paceline.engine.sequence import Sequence
from paceline.errors import NumericalError, PacelineError, reply_error
from paceline.model.base import Model
from paceline.model.cache import PagedCache
from paceline.sample.logprobs import logprobs_of
from paceline.verify.base import Verifier


@dataclass(frozen=True, slots=True)
class Parts:
    """What a round is played with. `owed`: events of an interrupted round, to be returned with the next.

    `clock` tells seconds; a replay has one of its own.
    """

    model: Model
    cache: PagedCache
    drafter: Drafter
    controller: Controller
    verifier: Verifier
    scheduler: Scheduler
    owed: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = field(default_factory=lambda: perf_counter)


def step(parts: Parts) -> list[Event]:
    """Play one round with the scheduler's choice of sequences and return its events, one per sequence."""
    started = parts.clock()
    turns = parts.scheduler.choose(parts.cache.free_pages, ROWS)
    chosen = [sequence for sequence, _ in turns]
    views = [sequence.view() for sequence in chosen]
    load = replace(parts.scheduler.load(), unread=unread_by(views, parts.drafter))
    reading, names = parts.scheduler.patience(len(turns), behind(load)), parts.drafter.sources
    budgets = [replace(budget, reading=reading) for budget in parts.controller.budgets(views, load)]
    budgets = [limit(budget, s, parts.cache, parts.model, names) for budget, s in zip(budgets, chosen, strict=True)]
    decided = parts.clock()
    drafts = parts.drafter.propose(views, budgets)
    check(drafts, views, parts.model.spec.vocab, parts.drafter.sources)
    drafts = [wanted(draft, s, names) for draft, s in zip(drafts, chosen, strict=True)]
    if not parts.model.capabilities.trees:
        drafts = [trunk(draft) for draft in drafts]
    drafted = parts.clock()
    batch, shares = pack(turns, drafts, parts.cache)
    packed = parts.clock()
    out = parts.model.forward(batch, parts.cache, taps=parts.drafter.taps)
    verified = parts.clock()
    parts.scheduler.saw(turns, verified - packed)
    settlements: list[tuple[Event, Verdict | None]] = []
    try:
        settlements = settle_all(parts, shares, out)
        ended = parts.clock()
        other = (decided - started) + (packed - drafted) + (ended - verified)
        n = len(shares)
        spent = ((drafted - decided) / n, (verified - packed) / n, other / n)
        rows, took = len(batch.tokens), parts.drafter.spent
        rounds = [
            round_of(e, verdict, s, names, rows=rows, spent=took, seconds=spent)
            for (e, verdict), s in zip(settlements, shares, strict=True)
        ]
        for share, round in zip(shares, rounds, strict=True):
            parts.controller.observe(share.sequence.id, round)
        return [replace(event, round=round) for (event, _), round in zip(settlements, rounds, strict=True)]
    except BaseException:
        parts.owed.extend(event for event, _ in settlements)
        raise


def behind(load: Load) -> int:
    """Return how many sequences have a text that some model must read on before it guesses."""
    return sum(max(each, default=0) > LAG for each in zip(*load.unread.values(), strict=False))


def limit(budget: Budget, sequence: Sequence, cache: PagedCache, model: Model, sources: tuple[str, ...]) -> Budget:
    """Cut a budget to what may still be committed and to what the request wants; while a text is read it is empty."""
    if len(sequence) - cache.length(sequence.cache) > 1:
        return replace(budget, nodes=0, depth=0)
    room = max(min(sequence.room - 1, model.spec.context - len(sequence) - 1), 0)
    wanted, step = sequence.speculation, budget.step
    if wanted.draft_tokens is not None:
        room = min(room, wanted.draft_tokens)
        budget = replace(budget, nodes=min(budget.nodes, wanted.draft_tokens))
    if wanted.sources is not None:
        if wanted.sources.isdisjoint(sources):
            room = 0
        step = {**step, **dict.fromkeys((name for name in sources if name not in wanted.sources), math.inf)}
    nodes, depth = min(budget.nodes, MOST_NODES) if room else 0, min(budget.depth, room)
    return replace(budget, nodes=nodes, depth=depth, step=step)


def wanted(draft: Draft, sequence: Sequence, names: tuple[str, ...]) -> Draft:
    """Drop the guesses of sources that a request leaves out, with all below them; a drafter may have several."""
    sources = sequence.speculation.sources
    if sources is None or not draft.drafted:
        return draft
    kept = {0}
    for node in range(1, len(draft.tree)):
        if int(draft.tree.parents[node]) in kept and names[int(draft.source[node])] in sources:
            kept.add(node)
    return draft if len(kept) == len(draft.tree) else subtree(draft, sorted(kept - {0}))


def settle_all(parts: Parts, shares: list[Part], out: Forward) -> list[tuple[Event, Verdict | None]]:
    """Settle every sequence; one that fails ends alone. After an interrupt the settled ones become `owed`."""
    settled: list[tuple[Event, Verdict | None]] = []
    try:
        for share in shares:
            settled.append(settle_alone(parts, share, out))
        return settled
    except BaseException:
        parts.owed.extend(event for event, _ in settled)
        for share in shares[len(settled) : len(settled) + 1]:
            lost = PacelineError("the reply was broken off in the middle of a round", hint="ask again")
            parts.owed.append(fail(parts, share.sequence, lost))
        raise


def settle_alone(parts: Parts, share: Part, out: Forward) -> tuple[Event, Verdict | None]:
    """Settle one sequence; an error of its tokenizer, processors, stops or verifier ends only this sequence."""
    try:
        return settle(parts, share, out)
    except Exception as error:
        return fail(parts, share.sequence, error), None


def settle(parts: Parts, share: Part, out: Forward) -> tuple[Event, Verdict | None]:
    """Verify one sequence's draft, commit what was kept, and end the sequence if it must end."""
    sequence, pending = share.sequence, list(range(share.pending))
    start = parts.cache.length(sequence.cache)
    known = sequence.tokens[start : start + share.pending].tolist()
    if not share.is_complete:
        refuse_beyond(out, share)
        parts.cache.commit(sequence.cache, pending, known)
        return Event(sequence.id, (), "", cached=sequence.cached or 0), None
    view, said = sequence.view(), part_of(out.logits, share.rows)
    verdict = parts.verifier.verify(share.draft, said, view)
    refuse_beyond(out, share, verdict.nodes)
    guesses = share.draft.tree.tokens.tolist()
    accepted = [guesses[node] for node in verdict.nodes]
    kept, text = sequence.append([*accepted, verdict.bonus])
    nodes = [share.pending - 1 + node for node in verdict.nodes[: kept - 1]]
    parts.cache.commit(sequence.cache, pending + nodes, known + accepted[: kept - 1])
    tokens = (*accepted, verdict.bonus)[:kept]
    logprobs: tuple[Logprobs, ...] = ()
    if sequence.params.logprobs is not None:
        after = (0, *verdict.nodes)[:kept]
        logprobs = logprobs_of(said, after, tokens, sequence.params.logprobs)
    verdict = Verdict(verdict.nodes[:kept], verdict.bonus)  # tokens behind a stop were not accepted
    taps = {layer: states[share.flat] for layer, states in out.taps.items()}
    verified = Verified(share.draft.tree, verdict.nodes, np.array(tokens, np.int32), said, taps)
    parts.drafter.observe(view, share.draft, verified)
    if sequence.finish_reason:
        end(parts, sequence)
    sources = sources_of(share.draft, verdict, parts.drafter.sources)[:kept]
    event = Event(
        sequence.id,
        tokens,
        text,
        sources,
        sequence.finish_reason,
        sequence.is_cut,
        logprobs=logprobs,
        draft=shown(share.draft),
        nodes=verdict.nodes,
        cached=sequence.cached or 0,
    )
    return event, verdict


def refuse_beyond(out: Forward, share: Part, nodes: Seq[int] = ()) -> None:
    """Refuse to keep rows whose keys or values the cache does not hold as they are; rejected guesses do not matter.

    Raises:
        NumericalError: there are some.
    """
    if not out.beyond:
        return
    first = share.flat.start - share.pending + 1
    for row in (*range(first, first + share.pending), *(share.flat.start + node for node in nodes)):
        if row in out.beyond:
            raise NumericalError(
                f"keys and values must be below 65504, as the cache has sixteen bits for each; layer {out.beyond[row]} "
                "has larger ones for this text",
                hint="another file of this model may have smaller ones; other requests are not affected",
            )


def shown(draft: Draft) -> Draft:
    """Return a draft without its distributions: an event may wait long to be read, and they are as long as a row."""
    return Draft(draft.tree, draft.acceptance_prob, draft.source)


def part_of(logits: Floats, rows: slice) -> Floats:
    """Return rows of logits with their extras."""
    return logits.part(rows) if isinstance(logits, Logits) else logits[rows]


def fail(parts: Parts, sequence: Sequence, error: Exception) -> Event:
    """End a sequence that cannot go on; return the event that says why."""
    if parts.scheduler.find(sequence.id) is not None:
        end(parts, sequence)
    return Event(sequence.id, (), "", finish_reason="error", error=reply_error(error))


def end(parts: Parts, sequence: Sequence) -> None:
    """Give back everything a sequence holds."""
    parts.scheduler.remove(sequence)
    if sequence.has_played:
        parts.drafter.release(sequence.id)
