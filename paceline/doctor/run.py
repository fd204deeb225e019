"""The doctor as a function: measure, compare, conclude."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.audit.prompts import OURS
from paceline.core.aliases import Json
from paceline.core.request import SamplingParams
from paceline.doctor.measure import Examination, deadline, examine
from paceline.doctor.pair import check_pairs
from paceline.doctor.report import report
from paceline.service.llm import LLM


def run_doctor(
    llm: LLM,
    prompts: Sequence[str] | None = None,
    params: SamplingParams | None = None,
    *,
    seconds: float = 40.0,
    found: Examination | None = None,
    progress: Callable[[int], None] | None = None,
) -> Json:
    """Measure what speculation gains with `llm` and say why; what `paceline doctor --json` prints.

    It needs the model to itself: no other thread may use it meanwhile.

    Args:
        prompts: ours if not given.
        params: how replies are drawn.
        seconds: to measure replies for.
        found: filled while it runs, so that `conclude` makes a report of an interrupted one.

    Raises:
        UsageError: replies of `llm` are open.
    """
    llm.check_idle("a doctor")
    found = found or Examination()
    params = params or SamplingParams(max_tokens=128)
    examine(llm, prompts or OURS, params, found, is_late=deadline(seconds), progress=progress)
    return conclude(llm, found)


def conclude(llm: LLM, found: Examination) -> Json:
    """Return what was found as plain data, with a verdict and advice."""
    return report(llm, found, check_pairs(llm))
