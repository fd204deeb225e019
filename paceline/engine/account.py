"""What a round says about itself: who guessed what, how much of it was kept, where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from paceline.engine.batch import Part
from paceline.types import Draft, Event, Ints, Round, Spent, Verdict


def sources_of(draft: Draft, verdict: Verdict, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return who guessed each committed token; "" is the target itself."""
    return (*(names[int(draft.source[node])] for node in verdict.nodes), "")


def round_of(
    event: Event,
    verdict: Verdict | None,
    share: Part,
    names: tuple[str, ...],
    *,
    rows: int,
    spent: Mapping[str, Spent],
    seconds: tuple[float, float, float],
) -> Round:
    """Return what a round did to one sequence; `seconds` are those of drafting, of the target, and the rest."""
    drafted = accepted = np.zeros(0, np.int32)
    by_source: dict[str, tuple[int, int]] = {}
    by_depth: dict[str, tuple[Ints, Ints]] = {}
    if verdict is not None:
        drafted = np.bincount(share.draft.tree.depths(), minlength=1)[1:].astype(np.int32)
        accepted = np.zeros_like(drafted)
        accepted[: len(verdict.nodes)] = 1
        guessed, kept = share.draft.source[1:], share.draft.source[list(verdict.nodes)]
        by_source = {
            name: (int((guessed == i).sum()), int((kept == i).sum()))
            for i, name in enumerate(names)
            if (guessed == i).any()
        }
        by_depth = outcomes(share.draft, verdict, names)
    is_cut = event.finish_reason is not None
    return Round(drafted, accepted, by_source, len(event.tokens), is_cut, rows, spent, *seconds, by_depth)


def outcomes(draft: Draft, verdict: Verdict, names: tuple[str, ...]) -> dict[str, tuple[Ints, Ints]]:
    """Return, by source, int32 [depth] of 0 and 1: where the target's choice was put to its guesses, and where it fell
    on one of them. A guess below a refused one was never put to the test.
    """
    kept = verdict.nodes
    place = {node: depth for depth, node in enumerate((0, *kept))}
    sources = draft.source.tolist()
    found: dict[str, tuple[Ints, Ints]] = {}
    for node, parent in enumerate(draft.tree.parents.tolist()):
        depth = place.get(parent)
        if depth is not None:
            pair = found.setdefault(
                names[sources[node]], (np.zeros(len(kept) + 1, np.int32), np.zeros(len(kept) + 1, np.int32))
            )
            pair[0][depth] = 1
            if depth < len(kept) and kept[depth] == node:
                pair[1][depth] = 1
    return found


@dataclass(slots=True)
class Tally:
    """The rounds of one request added up, under the names that CLI, server and metrics use.

    `acceptance_length` counts the bonus token: tokens committed per round of the target.
    """

    rounds: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    committed_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    single_seconds: list[float] = field(default_factory=list)  # of the target where its forward had one row

    def add(self, round: Round) -> None:
        """Add a round that committed tokens; rounds that only read a prompt say nothing of acceptance."""
        if round.committed == 0:
            return
        self.rounds += 1
        self.drafted_tokens += int(round.drafted.sum())
        self.accepted_tokens += int(round.accepted.sum())
        self.committed_tokens += round.committed
        missing = len(round.accepted) - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * max(missing, 0))
        for depth, count in enumerate(round.accepted.tolist()):
            self.accepted_per_position[depth] += count
        for name, (drafted, accepted) in round.by_source.items():
            sums = self.by_source.setdefault(name, {"drafted": 0, "accepted": 0})
            sums["drafted"] += drafted
            sums["accepted"] += accepted

    def add_seconds(self, round: Round) -> None:
        """Add a decode round's time; rounds before the first token count as prefill."""
        self.draft_seconds += round.draft_seconds
        self.verify_seconds += round.verify_seconds
        self.other_seconds += round.other_seconds
        if round.rows == 1:
            self.single_seconds.append(round.verify_seconds)

    @property
    def acceptance_rate(self) -> float:
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def acceptance_length(self) -> float:
        return self.committed_tokens / self.rounds if self.rounds else 0.0
