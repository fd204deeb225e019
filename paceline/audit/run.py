"""The audit as a function that returns plain data."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.audit.audit import TEMPERATURE, audit
from paceline.audit.prompts import OURS
from paceline.core.aliases import Json
from paceline.core.request import SamplingParams
from paceline.service.llm import LLM


def run_audit(
    llm: LLM,
    prompts: Sequence[str] | None = None,
    params: SamplingParams | None = None,
    *,
    temperature: float = TEMPERATURE,
    prediction: str | None = None,
    distribution_seconds: float = 15.0,
) -> Json:
    """Prove that the drafts of `llm` change nothing; what `paceline audit --json` prints, `passed` among it.

    Args:
        prompts: twenty of ours if not given.
        params: how replies are drawn, penalties, bias and bad words included.
        temperature: of the sampled replies; each prompt is answered greedily too.
        prediction: what the replies are expected to be.
        distribution_seconds: for the statistical check of the distribution; 0 leaves it out.
    """
    found = audit(
        llm,
        prompts or OURS,
        params,
        temperature=temperature,
        prediction=prediction,
        distribution_seconds=distribution_seconds,
    )
    return found.to_json()
