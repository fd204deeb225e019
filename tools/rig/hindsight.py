"""What a controller's pace is held against: single prices, fixed lengths, and what is to be had if all is known.

A price and a length are chosen afterwards, for each workload and machine; they play the same texts in one order. The
clairvoyant knows how far each source's guesses hold at each place and whether the draft should read the prompt at all;
the fewest seconds are then a shortest path. It makes no wrong guess, reads nothing twice, and takes one source a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from paceline.control.base import Controller
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget, Load, Round
from paceline.core.tree import TokenTree, Verified
from paceline.draft.base import Drafter
from paceline.draft.lookup.predicted import PredictedDrafter
from paceline.draft.lookup.recycle import KEPT, RecycleDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from rig.machines import Machine
from rig.play import MODEL, MOST, Control, Player, control_of
from rig.recording import Recording, Text

# In tokens a plain round's time, with the draft model and without: what `Budget.plain` is in the long run.
PRICES = (1.0, 1.35, 1.8, 2.4, 3.2)
ALONE = (1.0, 2.0)
LENGTHS = (1, 2, 4, 6)


class PriceController:
    """Asks for what pays at one rate, `pace` times plain decoding, every round; its table of costs is the true one."""

    def __init__(self, machine: Machine, pace: float, *, models: bool) -> None:
        plain = machine.target(1) + machine.outside
        rate, rows = pace / plain, [machine.target(1 + n) for n in range(MOST + 1)]
        price = rate * (np.array(rows) - rows[0])
        price[1:] += rate * machine.drafting
        step = rate * machine.draft(1) if models else math.inf
        self._budget = Budget(MOST, MOST, price, {MODEL: step}, pace)
        self.reason = f"what pays at {pace} times plain decoding, as asked"

    def budgets(self, views: Sequence[View], load: Load) -> list[Budget]:
        return [self._budget] * len(views)

    def observe(self, sequence_id: int, round: Round) -> None:
        """Learn nothing."""


def price_of(pace: float, *, models: bool) -> Control:
    """Return what makes the controller of one price."""

    def make(machine: Machine, drafter: Drafter) -> Controller:
        return PriceController(machine, pace, models=models)

    return make


def fixed_speedups(
    recording: Recording,
    texts: Sequence[Text],
    machines: Iterable[Machine],
    draft: str,
    lengths: Sequence[int] = LENGTHS,
) -> dict[str, dict[str, list[float]]]:
    """Return each text's speed-up by machine and way; a fixed length drafts alike on all machines."""
    found: dict[str, dict[str, list[float]]] = {machine.name: {} for machine in machines}
    for length in lengths:
        player = Player(recording, next(iter(machines)), control_of(f"fixed:{length}"), draft=draft, is_quiet=True)
        played = [player.play(text) for text in texts]
        for machine in machines:
            found[machine.name][f"fixed:{length}"] = [one.speedup(machine) for one in played]
    return found


def price_speedups(recording: Recording, texts: Sequence[Text], machine: Machine, draft: str) -> dict[str, list[float]]:
    """Return each text's speed-up by price."""
    ways = {f"price {pace:g}": price_of(pace, models=True) for pace in PRICES if MODEL in draft.split(",")}
    ways |= {f"price {pace:g}, no model": price_of(pace, models=False) for pace in ALONE}
    found = {}
    for name, control in ways.items():
        player = Player(recording, machine, control, draft=draft, is_quiet=True)
        found[name] = [player.play(text).speedup(machine) for text in texts]
    return found


# ---- the clairvoyant


def held_by_lookups(recording: Recording, texts: Sequence[Text], draft: str) -> list[list[int]]:
    """Return, for each text and place, how many tokens the best of the look-ups' guesses hold there.

    They read every token of every text in order and are asked at each place for four times what a round may have.
    """
    made: dict[str, Callable[[], Drafter]] = {
        "predicted": PredictedDrafter,
        "suffix": SuffixDrafter,
        "recycle": partial(RecycleDrafter, len(recording.vocabulary)),
    }
    members: list[Drafter] = [make() for name, make in made.items() if name in draft.split(",")]
    found = list[list[int]]()
    for text in texts:
        tokens, start, held = text.tokens, len(text.prompt), [0]
        logits = np.full((1, len(recording.vocabulary)), -np.inf, np.float32)
        prediction = text.prediction if len(text.prediction) else None
        for place in range(len(text.reply)):
            view = View(0, tokens[: start + place], SamplingParams(), start, prediction=prediction)
            drafts = [member.propose([view], [Budget(4 * MOST, MOST)])[0] for member in members]
            follows = tokens[start + place :]
            held.append(max((len(one.tree.follow(follows)) for one in drafts), default=0))
            likely = text.likely[place][text.likely[place] >= 0]
            logits[0, likely] = np.arange(KEPT, KEPT - len(likely), -1)
            root = TokenTree.chain(tokens[start + place - 1 : start + place])
            for member, one in zip(members, drafts, strict=True):
                member.observe(view, one, Verified(root, (), follows[:1], logits))
            logits[0, likely] = -np.inf
        for member in members:
            member.release(0)
        found.append(held[1:])
    return found


def held_by_model(text: Text) -> list[int]:
    """Return, for each place, how many tokens of the draft's chain hold, a runner-up behind them included."""
    count, reply, found = len(text.reply), text.reply, list[int]()
    right = [*(text.guesses[:-1, 0] == reply).tolist(), False]
    for place in range(count):
        held = sum(1 for _ in takewhile(bool, right[place : place + MOST]))
        end = place + held
        more = held < MOST and end < count and reply[end] in text.beside[end, 0]
        found.append(held + bool(more))
    return found


def clairvoyant(text: Text, lookups: Sequence[int], machine: Machine, *, unread: int | None) -> float:
    """Return the speed-up of the fewest seconds that this text can take.

    Args:
        lookups: how far look-ups hold at each place.
        unread: tokens of the prompt that the draft has to read before it guesses; `None` if there is no draft.
    """
    alone = _least(text, lookups, machine, model=False)
    best = alone
    if unread is not None:
        reading = machine.draft(unread + 1) - machine.draft(1) if unread else 0.0
        best = min(alone, reading + _least(text, lookups, machine, model=True))
    return (len(text.reply) - 1) * (machine.target(1) + machine.outside) / best


def _least(text: Text, lookups: Sequence[int], machine: Machine, *, model: bool) -> float:
    """Return the fewest seconds from the first token to the last, by the shortest path over places."""
    count, chains = len(text.reply), held_by_model(text)
    drafted = [machine.target(1 + n) + machine.outside + machine.drafting * (n > 0) for n in range(MOST + 2)]
    step, rest = machine.draft(1), [0.0] * (count + 1)
    for place in range(count - 1, 0, -1):
        ways = [drafted[0] + rest[place + 1]]
        left = count - place - 1  # the round's last token is the target's own
        ways += [drafted[n] + rest[place + n + 1] for n in range(1, min(lookups[place], left) + 1)]
        if model:
            more = chains[place]
            for n in range(1, min(more, left) + 1):
                ways.append(drafted[n] + step * n + rest[place + n + 1])
        rest[place] = min(ways)
    return rest[1]


def shared_start(texts: Sequence[Text]) -> int:
    """Return how many tokens all prompts begin with."""
    prompts = [text.prompt.tolist() for text in texts]
    return sum(1 for _ in takewhile(lambda column: len({*column}) == 1, zip(*prompts, strict=False)))


def best_by_workload(texts: Sequence[Text], ways: Mapping[str, Sequence[float]]) -> dict[str, tuple[str, float]]:
    """Return the best way of each workload and its geometric mean there."""
    found = {}
    for workload in dict.fromkeys(text.workload for text in texts):
        of = [i for i, text in enumerate(texts) if text.workload == workload]
        means = {name: geometric([each[i] for i in of]) for name, each in ways.items()}
        best = max(means, key=lambda name: means[name])
        found[workload] = best, means[best]
    return found


def geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
