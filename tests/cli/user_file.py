"""A user's file that uses every public name: `mypy --strict` must pass on it, and it runs in a test."""

from __future__ import annotations

import asyncio
import sys

import paceline
from paceline import LLM, Completion, Event, Grammar, PacelineError, Reply, SamplingParams, UsageError


def one(value: Completion | list[Completion]) -> Completion:
    assert isinstance(value, Completion)
    return value


async def beside(llm: LLM) -> list[str]:
    first = asyncio.create_task(llm.generate_async("abc", max_tokens=4))
    texts = [event.text async for event in llm.stream("abc", max_tokens=4)]
    return [one(await first).text, "".join(texts)]


def main(model: str) -> None:
    with paceline.load(model, draft="suffix", context=512) as llm:
        print(repr(llm))
        short = one(llm.generate("abc", max_tokens=5, stop="\n", seed=None, temperature=0.7))
        print(len(short.token_ids), short.metrics.rounds, llm.decode(short.token_ids) == short.text)
        reply: Reply = llm.chat([{"role": "user", "content": "hi"}], max_tokens=3)
        events: list[Event] = list(reply)
        print(
            len(events),
            reply.completion.finish_reason,
            llm.chat([{"role": "user", "content": "a"}], max_tokens=2).read().text,
        )
        print(one(llm.generate("abc", SamplingParams(max_tokens=9), grammar=Grammar.regex("[a-z]{2}"))).text)
        print(*asyncio.run(beside(llm)))
        try:
            llm.generate("abc", max_tokens=0)
        except UsageError as error:
            print(type(error).__name__, error)
        except PacelineError as error:
            print(error, error.hint)


if __name__ == "__main__":
    main(sys.argv[1])
