"""A round's numbers: the source of each guess, how much of it was kept, where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.core.request import Event
from paceline.core.round import Round, Spent
from paceline.core.tree import Draft, Verdict
from paceline.engine.batch import Part


def sources_of(draft: Draft, verdict: Verdict, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the source of each committed token; "" is the target itself."""
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
    """Return one sequence's outcome of a round; `seconds` are those of drafting, of the target, and the rest."""
    drafted = accepted = tuple[int, ...]()
    by_source: dict[str, tuple[int, int]] = {}
    by_depth: dict[str, tuple[list[int], list[int]]] = {}
    if verdict is not None:
        depths, sources = share.draft.tree.depths(), share.draft.source.tolist()
        deepest, guessed, kept = max(depths), sources[1:], [sources[node] for node in verdict.nodes]
        drafted = tuple(depths.count(depth) for depth in range(1, deepest + 1))
        accepted = tuple(int(depth < len(kept)) for depth in range(deepest))
        by_source = {names[i]: (guessed.count(i), kept.count(i)) for i in sorted({*guessed})}
        by_depth = outcomes(share.draft, verdict, names)
    is_cut = event.finish_reason is not None
    return Round(drafted, accepted, by_source, len(event.tokens), is_cut, rows, spent, *seconds, by_depth)


def outcomes(draft: Draft, verdict: Verdict, names: tuple[str, ...]) -> dict[str, tuple[list[int], list[int]]]:
    """Return (tested, kept) by source, each 0 or 1 by depth: whether a guess of the source was tested there, and
    whether it was accepted. A guess below a refused one is not tested.
    """
    kept = verdict.nodes
    place = {node: depth for depth, node in enumerate((0, *kept))}
    sources = draft.source.tolist()
    found: dict[str, tuple[list[int], list[int]]] = {}
    for node, parent in enumerate(draft.tree.parents.tolist()):
        depth = place.get(parent)
        if depth is not None:
            tested, right = found.setdefault(names[sources[node]], ([0] * (len(kept) + 1), [0] * (len(kept) + 1)))
            tested[depth] = 1
            if depth < len(kept) and kept[depth] == node:
                right[depth] = 1
    return found


@dataclass(slots=True)
class SpeculationMetrics:
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
        """Add a round that committed tokens; rounds that only read a prompt do not count towards acceptance."""
        if round.committed == 0:
            return
        self.rounds += 1
        self.drafted_tokens += sum(round.drafted)
        self.accepted_tokens += sum(round.accepted)
        self.committed_tokens += round.committed
        missing = len(round.accepted) - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * max(missing, 0))
        for depth, count in enumerate(round.accepted):
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
