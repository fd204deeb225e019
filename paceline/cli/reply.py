"""Show a reply while it arrives, end it on Ctrl-C, sum it up in one line."""

from __future__ import annotations

import shutil
import statistics
import sys
from typing import TYPE_CHECKING

from paceline.cli.terminal import OFF, Interrupt, Notice, Screen, colour_of, fold, is_coloured, say
from paceline.control.base import OFF as REFUSED

if TYPE_CHECKING:
    from paceline.core.request import SamplingParams
    from paceline.engine.completion import Completion
    from paceline.service.llm import LLM
    from paceline.service.reply import Reply

_REPEATING_SECONDS = 0.3  # to spend on measuring plain decoding after a reply
_ENOUGH = 8  # forwards to take the time of plain decoding from


def play(reply: Reply, screen: Screen | None) -> bool:
    """Show a reply's events on `screen` as they come; return whether Ctrl-C ended it early."""
    notice, read = Notice(), 0
    with Interrupt() as interrupt:
        try:
            for event in reply:
                if event.tokens:
                    notice.clear()
                    if screen is not None:
                        screen.show(event.tokens, event.sources, event.text)
                else:  # one chunk of a long prompt
                    read += 1
                    notice.show(f"reading the prompt {'·' * (1 + (read - 1) % 10):<10}")  # never wider than a terminal
                if interrupt.pressed:
                    break
        finally:
            reply.close()  # gives back what the request holds
            notice.clear()
            if screen is not None:
                screen.end(interrupted=interrupt.pressed)
    return interrupt.pressed and reply.completion.finish_reason == "cancelled"


def summary(
    completion: Completion,
    *,
    plain_seconds: float | None,
    limit: str = "",
    ended_at_once: bool = False,
    is_drawn: bool = False,
) -> list[str]:
    """Sum a reply up in parts: speed, how much was guessed right, and the gain over decoding without drafts.

    Args:
        plain_seconds: estimate for one token on this machine without speculation.
        limit: the limit that cut the reply, if one did.
        ended_at_once: whether the model's first token ended the reply.
        is_drawn: whether tokens were drawn, so that the seed matters.
    """
    metrics, timing, count = completion.metrics, completion.timing, len(completion.token_ids)
    seconds = timing.prefill_seconds + timing.decode_seconds
    parts = [f"{count} token{'' if count == 1 else 's'} in {seconds:.1f} s"]
    if completion.tokens_per_second:
        parts.append(f"{completion.tokens_per_second:.1f} tokens/s")
    if metrics.drafted_tokens:
        parts.append(f"acceptance length {metrics.acceptance_length:.2f} (bonus included)")
        parts.append(f"accepted {100 * metrics.acceptance_rate:.0f} % ({_by_source(completion)})")
        if plain_seconds and completion.tokens_per_second:
            parts.append(f"~{completion.tokens_per_second * plain_seconds:.1f}× plain")
    elif ended_at_once:
        parts.append("the model ended at once")
    else:
        parts.append("speculation off" if not completion.setup.drafters else "nothing to guess from")
    if is_drawn:
        parts.append(f"seed {completion.seed}")
    if completion.setup.drafters and completion.control_reason.startswith(REFUSED):
        parts.append(completion.control_reason)
    if not completion.setup.lossless:
        parts.append("lossy")
    if limit:
        parts.append(limit)
    return parts


def finish(llm: LLM, completion: Completion, params: SamplingParams, *, interrupted: bool) -> None:
    """Write the summary line to stderr. Measures the plain time per token if there is a gain to report."""
    limit = ""
    if interrupted:
        limit = "interrupted"
    elif completion.finish_reason == "length":
        most = params.max_tokens
        full = len(completion.token_ids) < most
        limit = f"cut: the context of {llm.context} tokens is full" if full else f"cut at --max-tokens {most}"
    plain = None
    if completion.metrics.drafted_tokens and completion.tokens_per_second:
        plain = estimate_plain(llm, completion)
    first = completion.token_ids[:1]
    is_end = completion.finish_reason == "stop" and len(completion.token_ids) <= 1
    ended_at_once = is_end and llm.tokenizer.eos_ids.issuperset(first)  # and no stop string ended it
    parts = summary(
        completion, plain_seconds=plain, limit=limit, ended_at_once=ended_at_once, is_drawn=not params.is_greedy
    )
    say(fold(parts, shutil.get_terminal_size().columns) if sys.stderr.isatty() else " · ".join(parts))


def estimate_plain(llm: LLM, completion: Completion) -> float:
    """Estimate plain decoding: by the reply's own rounds without guesses, else by measuring now, behind its text.

    The machine may be busier now, so the estimate is at most the verification of a round, which is never less work.
    The engine's share of a round is the same in both.
    """
    timing, rounds = completion.timing, max(completion.metrics.rounds - 1, 1)
    own = completion.metrics.single_seconds
    if len(own) >= _ENOUGH:
        forward = statistics.median(own)
    else:
        round_seconds = max(timing.decode_seconds / rounds, 1e-4)
        repeats = min(max(int(_REPEATING_SECONDS / round_seconds), _ENOUGH), 30)
        forward = min(llm.plain_seconds_per_token(repeats=repeats), timing.verify_seconds / rounds)
    return forward + timing.other_seconds / rounds


def _by_source(completion: Completion) -> str:
    coloured = is_coloured(sys.stderr)
    parts = []
    for name, counts in completion.metrics.by_source.items():
        text = f"{name} {counts['accepted']}/{counts['drafted']}"
        parts.append(f"{colour_of(name)}{text}{OFF}" if coloured else text)
    return ", ".join(parts)
