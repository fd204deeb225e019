"""A finished reply with its numbers, under the names of the command line's `--json` contract."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.core.aliases import Json
from paceline.core.request import FinishReason, Logprobs
from paceline.engine.metrics import SpeculationMetrics
from paceline.errors import PacelineError
from paceline.text.tokenizer import Tokenizer

LOWEST = -9999.0  # JSON has no infinity


@dataclass(frozen=True, slots=True)
class Setup:
    """How a reply was made: which model, which drafters, which rules."""

    model: str
    drafters: tuple[str, ...]
    verify: str
    control: str
    lossless: bool = True
    reproducible: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; `other` is what a decode round spends outside drafting and the target's forward."""

    load_seconds: float
    prefill_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply. `is_cut`: its text ends inside a character, which shows as U+FFFD.

    `error` says why one of several replies could not go on: `finish_reason` is "error", the text ends there.
    """

    setup: Setup
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    prompt_tokens: int
    metrics: SpeculationMetrics
    timing: Timing
    sources: tuple[str, ...] = field(default=(), repr=False)
    is_cut: bool = False
    logprobs: tuple[Logprobs, ...] | None = field(default=None, repr=False)  # `None`: not asked for
    control_reason: str = ""  # why this many tokens were drafted, in a sentence
    error: PacelineError | None = None
    seed: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Tokens after the first per second of decoding; 0 when there is none."""
        after = len(self.token_ids) - 1
        return after / self.timing.decode_seconds if after > 0 and self.timing.decode_seconds > 0 else 0.0

    def to_json(self, tokenizer: Tokenizer | None = None) -> Json:
        """Return the object that `--json` prints; `KEYS` of `json_keys` says what each key means.

        Args:
            tokenizer: gives the tokens of log probabilities their text and bytes.
        """
        metrics, timing, setup = self.metrics, self.timing, self.setup
        reply: Json = {
            "model": setup.model,
            "drafters": list(setup.drafters),
            "verify": setup.verify,
            "control": setup.control,
            "lossless": setup.lossless,
            "reproducible": setup.reproducible,
            "seed": self.seed,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "is_cut": self.is_cut,
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": len(self.token_ids),
                "completion_tokens_details": {
                    "accepted_prediction_tokens": metrics.accepted_tokens,
                    "rejected_prediction_tokens": metrics.drafted_tokens - metrics.accepted_tokens,
                },
            },
            "speculation": {
                "rounds": metrics.rounds,
                "drafted_tokens": metrics.drafted_tokens,
                "accepted_tokens": metrics.accepted_tokens,
                "acceptance_rate": metrics.acceptance_rate,
                "acceptance_length": metrics.acceptance_length,
                "accepted_per_position": metrics.accepted_per_position,
                "by_source": metrics.by_source,
                "control_reason": self.control_reason,
            },
            "timing": {
                "load_seconds": timing.load_seconds,
                "prefill_seconds": timing.prefill_seconds,
                "decode_seconds": timing.decode_seconds,
                "tokens_per_second": self.tokens_per_second,
                "draft_seconds": timing.draft_seconds,
                "verify_seconds": timing.verify_seconds,
                "other_seconds": timing.other_seconds,
            },
        }
        if self.error is not None:
            reply["error"] = {"message": str(self.error), "hint": self.error.hint}
        if self.logprobs is not None:
            reply["logprobs"] = [
                {
                    **_entry(one.token, one.logprob, tokenizer),
                    "top_logprobs": [_entry(*alternative, tokenizer) for alternative in one.top],
                }
                for one in self.logprobs
            ]
        return reply


def _entry(token: int, logprob: float, tokenizer: Tokenizer | None) -> Json:
    own = {"logprob": max(logprob, LOWEST)} if tokenizer is None else named(token, logprob, tokenizer)
    return {"token_id": token, **own}


def named(token: int, logprob: float, tokenizer: Tokenizer) -> Json:
    """Return a log probability with the token's text and bytes, as OpenAI's clients read it."""
    raw = tokenizer.token_bytes(token)
    return {"token": raw.decode(errors="replace"), "logprob": max(logprob, LOWEST), "bytes": [*raw]}
