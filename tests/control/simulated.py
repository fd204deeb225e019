"""An engine without a model: chance decides what is accepted, a formula gives the seconds."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from paceline.core.request import SamplingParams, View
from paceline.core.round import LAG, Load, Round, Spent
from paceline.draft.tree_ops import best_prefix

PLAIN = 0.02  # seconds of a forward of one row


@dataclass
class Source:
    """A drafter of chains. `alpha` maps a depth from 0 on to how often it is right there; `step` is in plain tokens.

    `heeds` prices: the source makes another guess only if it pays by `alpha`; else it drafts to the budget's depth.
    `there` is the share of rounds in which it has a guess. `others` maps sequences to an `alpha` of their own.
    """

    name: str
    alpha: Callable[[int], float]
    step: float = 0.0
    heeds: bool = False
    there: float = 1.0
    others: dict = field(default_factory=dict)
    reading: float = 0.0  # plain tokens that reading a token takes
    read: dict = field(default_factory=dict)  # tokens of each sequence's text that were read

    def right(self, sequence):
        return self.others.get(sequence, self.alpha)

    def unread(self, view):
        return len(view.tokens) - self.read.get(view.id, 0)

    def catch_up(self, views):
        """Read these texts; return the number of tokens beyond those that steps read anyway."""
        missed = sum(self.unread(view) for view in views if self.unread(view) > LAG) if self.reading else 0
        self.read.update((view.id, len(view.tokens)) for view in views)
        return missed


@dataclass
class Simulated:
    """Plays rounds; times are in seconds, with `noise` (log-normal) and occasional stalls of ten times."""

    sources: list
    v: Callable[[int], float]
    noise: float = 0.0
    hiccups: float = 0.0
    beside: int = 0  # rows of prompts that each round reads as well
    hidden: float = 0.0  # seconds of a drafting round that no part reports, as a share of a plain token
    seed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    depths: list = field(default_factory=list)
    counts: list = field(default_factory=list)  # guesses, by sequence

    def __post_init__(self):
        self.chance = np.random.default_rng(self.seed)
        self.ran = Counter()

    def play(self, controller, tokens, *, sequences=1, rounds_from=0, prompt=20, most=10**6):
        """Play until every sequence has `tokens` more; return the speed-up over plain decoding."""
        views = [
            View(rounds_from + i, np.zeros(prompt, np.int32), SamplingParams(max_tokens=most), prompt)
            for i in range(sequences)
        ]
        done, spent_before, tokens_before = 0, self.seconds, self.tokens
        while done < tokens * sequences:
            unread = {s.name: [s.unread(view) for view in views] for s in self.sources if s.reading}
            budgets = controller.budgets(views, Load(sequences, 0, unread))
            drafts = [self.draft(budget, view.id) for budget, view in zip(budgets, views, strict=True)]
            rows = sum(1 + count for count, _ in drafts) + self.beside
            steps = {
                s.name: max(n for _, n in [(0, 0), *[(c, d.get(s.name, 0)) for c, d in drafts]]) for s in self.sources
            }
            asked = {s.name: [v for v, d in zip(views, drafts, strict=True) if s.name in d[1]] for s in self.sources}
            missed = {s.name: s.catch_up(asked[s.name]) for s in self.sources}
            spent = {
                s.name: Spent(
                    steps[s.name], self.time(s.step * steps[s.name] + s.reading * missed[s.name]), missed[s.name]
                )
                for s in self.sources
                if s.step and steps[s.name]
            }
            drafting = sum(one.seconds for one in spent.values())
            verifying = self.time(self.v(rows))
            other = 0.01 * PLAIN
            self.seconds += drafting + verifying + other + self.hidden * PLAIN * (rows > sequences + self.beside)
            self.rounds += 1
            for i, (count, by_source) in enumerate(drafts):
                kept, by_depth = self.verify(count, by_source, views[i].id)
                round = Round(
                    (1,) * count,
                    tuple(int(depth < kept) for depth in range(count)),
                    {name: (nodes, kept) for name, nodes in by_source.items()},
                    kept + 1,
                    False,
                    rows,
                    spent,
                    drafting / sequences,
                    verifying / sequences,
                    (other + self.hidden * PLAIN * (rows > sequences + self.beside)) / sequences,
                    by_depth,
                )
                done += kept + 1
                views[i] = View(
                    i + rounds_from, np.zeros(len(views[i].tokens) + kept + 1, np.int32), views[i].params, prompt
                )
                controller.observe(views[i].id, round)
            self.depths.append(max(count for count, _ in drafts))
            self.counts.append([count for count, _ in drafts])
        self.tokens += done
        disturbed = np.exp(self.noise**2 / 2) * (1 + 9 * self.hiccups)
        plain = (self.v(sequences) * disturbed + 0.01) * PLAIN
        return (self.tokens - tokens_before) / sequences * plain / (self.seconds - spent_before)

    def time(self, plain_tokens):
        factor = np.exp(self.noise * self.chance.standard_normal()) if self.noise else 1.0
        if self.hiccups and self.chance.random() < self.hiccups:
            factor *= 10
        return plain_tokens * PLAIN * factor

    def draft(self, budget, sequence=0):
        """Return a chain by the first source that has a guess: (nodes, steps by source)."""
        for source in self.sources:
            price = budget.step.get(source.name, 0.0)
            most = min(budget.nodes, budget.depth)
            if most == 0 or price == np.inf or self.chance.random() >= source.there:
                continue
            count = most
            if source.heeds:
                survival = np.cumprod([source.right(sequence)(d) for d in range(most)])
                cost = None if budget.price is None else budget.price + price * np.arange(len(budget.price))
                if cost is not None and budget.plain:  # as a mix does
                    earned = (1 + np.append(0.0, np.cumsum(survival)))[: len(cost)]
                    cost = cost * min(1.0, (earned / (budget.plain + cost[: len(earned)])).max())
                count, _ = best_prefix(survival, cost)
            if count:
                self.ran[source.name] += 1
                return count, {source.name: count}
        return 0, {}

    def verify(self, count, by_source, sequence=0):
        by_depth, kept = {}, 0
        for name, nodes in by_source.items():
            alpha = next(s for s in self.sources if s.name == name).right(sequence)
            while kept < nodes and self.chance.random() < alpha(kept):
                kept += 1
            by_depth[name] = [int(d < nodes) for d in range(kept + 1)], [int(d < kept) for d in range(kept + 1)]
        return kept, by_depth


def play_plain(controller, views, v=1.0, unread=None):
    """Play a round without drafts: the first one of a process, which measures plain rounds."""
    controller.budgets(views, Load(len(views), 0, unread or {}))
    for view in views:
        controller.observe(view.id, Round((), (), {}, 1, False, len(views), {}, 0.0, PLAIN * v / len(views), 0.0))


def flat(alpha):
    return lambda depth: alpha


def linear(slope):
    """v(M) that rises by `slope` with every row."""
    return lambda rows: 1 + slope * (rows - 1)


def cliff(rows):
    """OpenBLAS fp32 of the performance notes: 2.75 at two rows, then nearly flat."""
    return float(
        np.interp(rows, [1, 2, 3, 4, 6, 8, 12, 16, 32, 64], [1, 2.75, 2.95, 2.95, 3.2, 3.21, 3.6, 3.7, 4.6, 7])
    )


def best_fixed(source, v, *, most=16, sequences=1):
    """The speed-up of the best length, 0 included, by the formulas: E / T."""
    found = []
    for g in range(most + 1):
        brought = 1 + sum(np.prod([source.alpha(d) for d in range(k)]) for k in range(1, g + 1))
        found.append(brought * (v(sequences) + 0.01) / (v(sequences * (1 + g)) + g * source.step + 0.01))
    return max(found)
