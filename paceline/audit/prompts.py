"""The prompts an audit asks: the user's own, or a few of ours."""

from __future__ import annotations

import json
from pathlib import Path

from paceline.errors import UsageError

OURS = (
    "Write a Python function that merges two sorted lists into one.",
    "Repeat this sentence five times: the quick brown fox jumps over the lazy dog.",
    "Explain in three sentences why the sky is blue.",
    "Translate into French: Where is the nearest railway station?",
    "Write a JSON object that describes a book with a title, an author, a year and three tags.",
    "What is 17 times 23? Show each step.",
    "List the planets of the solar system with one fact about each.",
    "Write a short poem about rain on a tin roof.",
    "Rename the variable `x` to `count` in this code and return all of it:\n\nx = 0\nfor i in range(10):\n"
    "    x = x + i\nprint(x)",
    "Summarise: In a paceline, riders take turns at the front. The rider at the front works hard and the riders behind "
    "rest. After a minute the front rider moves to the back, and the next rider leads.",
    "Write a SQL query that finds the three customers with the highest spending in 2024.",
    "What are the differences between TCP and UDP? Answer in a table.",
    "한국어로 자기소개를 두 문장으로 해 주세요.",
    "Write a C function that reverses a string in place.",
    "Give me ten English words that rhyme with light, separated by commas.",
    "Continue: Once upon a time, in a village by the sea, there lived",
    "Solve for x: 5x - 3 = 2x + 12.",
    "Write HTML for a page with a heading, a paragraph and a list of four fruits.",
    "Name three uses of a paper clip that are not holding paper. 😀",
    "Write the numbers from 1 to 40, separated by spaces.",
)


def read(path: Path) -> list[str]:
    """Return the prompts of a file: a JSON list of texts, or one prompt a line.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or holds no prompt.
    """
    hint = 'one prompt a line, or a JSON list: ["first prompt", "second prompt"]'
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}", hint=f"name a file with {hint}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` must be UTF-8 text; byte {error.start} is none") from error
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"`{path}` begins like a JSON list and is none: {error}", hint=hint) from error
        if any(not isinstance(prompt, str) for prompt in found):
            raise UsageError(f"`{path}` must be a JSON list of texts", hint=hint)
    else:
        found = text.splitlines()
    prompts = [prompt for prompt in found if prompt.strip()]
    if not prompts:
        raise UsageError(f"`{path}` holds no prompt", hint=hint)
    return prompts
