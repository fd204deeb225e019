"""What a doctor measures: the target's forwards, a draft step, how often guesses are right, and the speed with both.

Acceptance is measured at a fixed length, so that every depth is reached; speed the way replies are really made, with
the controller that was asked for. Each on every other prompt, in turn with plain decoding: a drafter that keeps what
it saw must not be asked the same twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams
from paceline.core.round import Round
from paceline.draft.base import NoDrafter, forget_texts
from paceline.engine.calibrate import measure_forwards, measure_steps
from paceline.engine.completion import Completion
from paceline.model.base import PackedModel, packed
from paceline.service.llm import LLM

DEPTH = 6  # guesses a round while acceptance is measured
ENOUGH = 5  # rounds that say what a draft step takes


@dataclass(slots=True)
class Examination:
    """All that was measured; what an interrupted doctor had not come to is empty."""

    target_seconds: dict[int, float] = field(default_factory=dict)
    step_seconds: dict[str, float] = field(default_factory=dict)
    floor_seconds: float = 0.0  # to read the weights once; 0 if unknown, as below
    row_seconds: float = 0.0  # a token's products, with the processor's fastest instructions
    tested: list[int] = field(default_factory=list)  # by depth: guesses whose parent was accepted
    kept: list[int] = field(default_factory=list)
    plain: list[Completion] = field(default_factory=list)
    drafted: list[tuple[Completion, Completion]] = field(default_factory=list)  # plain, and as asked for
    fixed: list[tuple[Completion, Completion]] = field(default_factory=list)  # plain, and at a fixed length
    reason: str = ""
    rounds: dict[str, list[Round]] = field(default_factory=lambda: {"fixed": [], "drafted": []})  # decoding only

    def floor(self, rows: int) -> float:
        """Return the least seconds of a forward of `rows` tokens: reading the weights, or their products."""
        return max(self.floor_seconds, rows * self.row_seconds)

    @property
    def is_memory_bound(self) -> bool:
        """Reading the weights takes longer than one token's products."""
        return self.floor_seconds > self.row_seconds

    @property
    def acceptance(self) -> list[float]:
        """By depth, as far as enough was seen of it."""
        return [kept / tested for kept, tested in zip(self.kept, self.tested, strict=True) if tested >= 5]

    @property
    def draft_step_seconds(self) -> float:
        """What a step takes within replies at a fixed length, sampling included; by itself, if too few were seen.

        More than by itself: target and draft push each other's weights out of the caches, and texts grow.
        """
        spent = [one for round in self.rounds["fixed"] for one in round.spent.values() if one.steps and not one.read]
        if len(spent) < ENOUGH:
            return sum(self.step_seconds.values())
        return float(np.median([one.seconds / one.steps for one in spent]))

    @property
    def reading_seconds(self) -> float:
        """What it takes a draft model, asked again after a pause, to read a token it missed."""
        step, rounds = self.draft_step_seconds, [*self.rounds["fixed"], *self.rounds["drafted"]]
        spent = [one for round in rounds for one in round.spent.values() if one.read]
        found = [max(one.seconds - one.steps * step, 0.0) / one.read for one in spent]
        return float(np.median(found)) if found else 0.0

    @property
    def other_seconds(self) -> float:
        """What a round with drafts takes beside draft steps and the target's forward, over what a plain one does."""
        looked_up = [
            max(round.draft_seconds - sum(one.seconds for one in round.spent.values()), 0.0)
            for round in self.rounds["fixed"]
            if round.drafted
        ]
        beside = float(np.median(looked_up)) if looked_up else 0.0
        return max(_other([reply for _, reply in self.fixed]) - _other(self.plain) + beside, 0.0)


def speedup(replies: Sequence[tuple[Completion, Completion]]) -> float | None:
    """Return the measured speed-up of pairs of a plain and another reply, seconds added up; None if there are none."""
    pairs = [(plain, other) for plain, other in replies if plain.tokens_per_second and other.tokens_per_second]
    if not pairs:
        return None
    return sum(p.timing.decode_seconds for p, _ in pairs) / sum(o.timing.decode_seconds for _, o in pairs)


def examine(
    llm: LLM,
    prompts: Sequence[str],
    params: SamplingParams,
    found: Examination,
    *,
    is_late: Callable[[], bool],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Fill `found`, prompt by prompt until the time is up; at least one prompt."""
    parts, model = llm.engine.parts, llm.engine.parts.model
    found.target_seconds = measure_forwards(model)
    found.step_seconds = measure_steps(parts.drafter, model.spec.vocab)
    if (weighed := packed(model)) is not None:
        found.floor_seconds, found.row_seconds = floors(llm, weighed)
    plain = replace(parts, drafter=NoDrafter(), controller=FixedController(0))
    fixed = replace(parts, controller=FixedController(DEPTH))
    for index, prompt in enumerate(prompts):
        ids = llm.encode(prompt, chat=True)
        name, way = ("drafted", parts) if index % 2 == 0 else ("fixed", fixed)
        said: dict[str, tuple[Completion, list[Round]]] = {}
        for which in (("plain", plain), (name, way))[:: 1 if index % 4 < 2 else -1]:
            forget_texts(parts.drafter)  # gains are those of a text unlike any before it
            with llm.engine.playing(which[1]):
                reply = llm.stream(ids, params)
                rounds = [event.round for event in reply if event.round is not None]
            said[which[0]] = reply.completion, rounds
        (before, _), (reply_, rounds) = said["plain"], said[name]
        found.plain.append(before)
        (found.drafted if name == "drafted" else found.fixed).append((before, reply_))
        found.rounds[name] += [round for round in rounds if round.committed][1:]  # the first token counts as prefill
        count(found, rounds)
        found.reason = parts.controller.reason
        if progress:
            progress(index + 1)
        if is_late():
            break


def count(found: Examination, rounds: Sequence[Round]) -> None:
    """Add up, by depth, the guesses that were put to the test, and those that were right."""
    for round in rounds:
        longest = max((len(tested) for tested, _ in round.by_source_depth.values()), default=0)
        depths = np.zeros(max(longest, len(found.tested)), np.int64)
        tested, kept = depths.copy(), depths.copy()
        tested[: len(found.tested)], kept[: len(found.kept)] = found.tested, found.kept
        for by_depth_tested, by_depth_kept in round.by_source_depth.values():
            tested[: len(by_depth_tested)] += by_depth_tested
            kept[: len(by_depth_kept)] += by_depth_kept
        found.tested, found.kept = tested.tolist(), kept.tolist()


def floors(llm: LLM, model: PackedModel, repeats: int = 7) -> tuple[float, float]:
    """Return the least seconds to read the target's weights once, and those of one token's int8 products.

    The least of several, as with the forwards they are held against: what disturbs only ever adds.
    """
    from paceline.kernels.native import native, new_pool

    pool = new_pool(llm.config.threads)
    probe = native.ReadProbe(pool, model.weight_bytes)
    read = min(float(probe.read()) for _ in range(repeats))
    rate = max(native.dot_rate(pool, 0.02) for _ in range(repeats))
    return read, model.products() / rate if rate > 0 else 0.0


def _other(replies: Sequence[Completion]) -> float:
    rounds = sum(max(reply.metrics.rounds - 1, 0) for reply in replies)
    return sum(reply.timing.other_seconds for reply in replies) / rounds if rounds else 0.0


def deadline(seconds: float) -> Callable[[], bool]:
    """Return a function that tells whether the time is up."""
    ends = perf_counter() + seconds
    return lambda: perf_counter() > ends
