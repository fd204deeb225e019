"""The audit: replies with speculation against replies without, token by token, and the proof of every token."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from paceline.audit.distribution_check import DistributionCheck, check
from paceline.audit.forced import Difference, first_difference, margin_of, rows_after
from paceline.control.fixed import FixedController
from paceline.core.aliases import Json
from paceline.core.request import SamplingParams, View
from paceline.draft.base import NoDrafter
from paceline.engine.completion import Completion
from paceline.engine.logit_edits import edits_of
from paceline.service.llm import LLM

TEMPERATURE = 0.8  # of the sampled replies; each prompt is answered greedily too
LAW_DRAFT = 2  # guesses a short reply has room for
LAW_CONTEXT = 33  # a full page of the cache and one token: each of many short replies then costs one row


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt at one temperature. `plain` is where the two replies part, `forced` the first token of the
    speculated reply that the target alone would not have drawn; None where there is none."""

    prompt: str
    temperature: float
    tokens: int
    drafted: int
    accepted: int
    plain: Difference | None
    forced: Difference | None

    @property
    def passed(self) -> bool:
        return all(found is None or found.verdict == "tie" for found in (self.plain, self.forced))

    def to_json(self) -> Json:
        return {
            "prompt": self.prompt,
            "temperature": self.temperature,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "against_plain": self.plain.to_json() if self.plain else None,
            "teacher_forced": self.forced.to_json() if self.forced else None,
            "passed": self.passed,
        }


@dataclass(slots=True)
class Audit:
    """What was found so far. Complete only if `finished`."""

    setup: Json
    compared: list[Compared] = field(default_factory=list)
    distribution: DistributionCheck | None = None
    finished: bool = False
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.compared) and (self.distribution is None or self.distribution.passed)

    @property
    def drafted(self) -> int:
        """Guesses in the replies; with none, a pass says nothing of speculation."""
        return sum(one.drafted for one in self.compared)

    def to_json(self) -> Json:
        return {
            **self.setup,
            "passed": self.passed,
            "finished": self.finished,
            "replies": len(self.compared),
            "tokens": sum(one.tokens for one in self.compared),
            "drafted": self.drafted,
            "speculated": self.drafted > 0,
            "accepted": sum(one.accepted for one in self.compared),
            "differences": [one.to_json() for one in self.compared if one.plain or one.forced],
            "distribution": self.distribution.to_json() if self.distribution else None,
            "seconds": self.seconds,
        }


def audit(
    llm: LLM,
    prompts: Sequence[str],
    params: SamplingParams | None = None,
    *,
    temperature: float = TEMPERATURE,
    prediction: str | None = None,
    tolerance: float = 0.0,
    distribution_seconds: float = 20.0,
    found: Audit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Check that the drafts of `llm` change nothing.

    Every prompt is answered plainly and with speculation, greedily and sampled; every emitted token is checked against
    a second reading of the text; many short replies are compared with the target's distribution. It needs the model
    to itself: no other thread may use it meanwhile.

    Args:
        params: how replies are drawn, penalties, bias and bad words included; their temperature is not read.
        temperature: of the sampled replies; 0 leaves them out.
        prediction: what the replies are expected to be, for a drafter that reads it.
        tolerance: margin up to which a difference is a tie; 0 where rows are bitwise independent, as here.
        found: filled while the audit runs, so that an interrupted one keeps what it has.

    Raises:
        UsageError: replies of `llm` are open.
    """
    llm.check_idle("an audit")
    started = perf_counter()
    verifier = llm.engine.parts.verifier
    found = found or Audit({})
    found.setup = {
        "model": llm.setup.model,
        "drafters": list(llm.setup.drafters),
        "verify": llm.setup.verify,
        "control": llm.setup.control,
        "lossless": verifier.lossless,
    }
    base = params or SamplingParams(max_tokens=64)
    found.setup["seed"] = base.seed
    temperatures = tuple(dict.fromkeys((0.0, temperature)))
    total = len(prompts) * len(temperatures) + 1
    for index, prompt in enumerate(prompts):
        for number, warmth in enumerate(temperatures):
            one = replace(base, temperature=warmth, seed=base.seed + index)
            found.compared.append(compare(llm, prompt, one, tolerance, prediction))
            found.seconds = perf_counter() - started
            if progress:
                progress(index * len(temperatures) + number + 1, total)
    if distribution_seconds > 0 and prompts:
        found.distribution = _distribution(llm, prompts, distribution_seconds)
    found.finished, found.seconds = True, perf_counter() - started
    if progress:
        progress(total, total)
    return found


def compare(llm: LLM, prompt: str, params: SamplingParams, tolerance: float, prediction: str | None = None) -> Compared:
    """Answer one prompt both ways and prove every token of the speculated reply."""
    ids = llm.encode(prompt, chat=True)
    speculated = reply(llm, ids, params, plain=False, prediction=prediction)
    verifier = llm.engine.parts.verifier
    ends = frozenset() if params.ignore_eos else llm.tokenizer.eos_ids
    view = View(0, np.array(ids, np.int32), params, len(ids), ends, edits=edits_of(params, llm.tokenizer))
    is_keyed = params.is_greedy or verifier.reproducible
    parted = None
    if is_keyed:
        parted = _part(llm, view, reply(llm, ids, params, plain=True).token_ids, speculated.token_ids, tolerance)
    forced = first_difference(
        llm.engine.parts.model, view, speculated.token_ids, tolerance=tolerance, is_keyed=is_keyed
    )
    metrics = speculated.metrics
    return Compared(
        prompt,
        params.temperature,
        len(speculated.token_ids),
        metrics.drafted_tokens,
        metrics.accepted_tokens,
        parted,
        forced,
    )


def reply(
    llm: LLM, ids: Sequence[int], params: SamplingParams, *, plain: bool, prediction: str | None = None
) -> Completion:
    """Return a reply, with the drafter the model was loaded with (and its prediction) or without any."""
    parts = llm.engine.parts
    if plain:
        parts = replace(parts, drafter=NoDrafter(), controller=FixedController(0))
    with llm.engine.playing(parts):
        completion = llm.generate(ids, params, prediction=None if plain else prediction)
    assert isinstance(completion, Completion)
    return completion


def _part(llm: LLM, view: View, plain: list[int], speculated: list[int], tolerance: float) -> Difference | None:
    """Return where two replies part, and by how much the plain one's token was likelier."""
    at = next((i for i, (a, b) in enumerate(zip(plain, speculated, strict=False)) if a != b), None)
    if at is None:
        if len(plain) == len(speculated):
            return None
        at = min(len(plain), len(speculated))
        wanted = plain[at] if at < len(plain) else -1
        return Difference(at, wanted, speculated[at] if at < len(speculated) else None, float("inf"), "bug")
    *_, row = rows_after(llm.engine.parts.model, view.tokens.tolist(), plain[: at + 1])
    margin = margin_of(row, view, plain[:at], plain[at], speculated[at])
    return Difference(at, plain[at], speculated[at], margin, "tie" if abs(margin) <= tolerance else "bug")


def _distribution(llm: LLM, prompts: Sequence[str], seconds: float) -> DistributionCheck:
    """Compare many short replies with the distribution, every other lot at a fixed length: a controller may well
    draft none.
    """
    text = llm.encode(" ".join(prompts))
    ids = (text * (1 + LAW_CONTEXT // len(text)))[:LAW_CONTEXT]
    view = View(0, np.array(ids, np.int32), SamplingParams(), len(ids), llm.tokenizer.eos_ids)
    ends = perf_counter() + seconds
    parts = llm.engine.parts
    ways = itertools.cycle((replace(parts, controller=FixedController(LAW_DRAFT)), parts))
    drafted = 0

    def draw_pairs(params: SamplingParams, seeds: Sequence[int]) -> list[list[int]]:
        nonlocal drafted
        with llm.engine.playing(next(ways)):
            said = llm.generate_each(ids, [replace(params, seed=seed) for seed in seeds])
        for one in said:
            if one.error is not None:
                raise one.error
        drafted += sum(one.metrics.drafted_tokens for one in said)
        return [one.token_ids for one in said]

    found = check(draw_pairs, parts.model, view, is_late=lambda: perf_counter() > ends)
    return replace(found, drafted=drafted)
