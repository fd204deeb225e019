"""What the models are asked: code and mathematics, and plain text that no run has seen before."""

from __future__ import annotations

import random

CODE = (
    "Write a Python function that merges two sorted lists into one sorted list without using sort().",
    "Write a C function that reverses a singly linked list in place, and explain each step in a comment.",
    "Implement binary search over a sorted Python list; return the index or -1. Add three assertions that test it.",
    "Write a Python class `Stack` with push, pop, peek, is_empty and size, each with a docstring.",
    "Rewrite this with a list comprehension and add type hints:\n\n```python\ndef squares(numbers):\n    result = []\n"
    "    for number in numbers:\n        if number % 2 == 0:\n            result.append(number * number)\n"
    "    return result\n```",
    "Write a JavaScript function that debounces another function, then show how to use it on a text field.",
)
MATH = (
    "A train leaves at 9:40 and travels 210 km at 84 km/h. When does it arrive? Show each step.",
    "Solve 3x + 7 = 2(x - 4) + 21 for x. Show each step and check the result.",
    "What is the sum of all whole numbers from 1 to 250 that are divisible by 6? Show the calculation.",
    "A shop sells a coat for 136 euros after a discount of 15 %. What did it cost before? Explain step by step.",
    "Compute the area of a triangle with sides 13, 14 and 15 by Heron's formula, step by step.",
)

_WHO = ("The baker", "A retired captain", "My neighbour", "The younger sister", "An old engineer", "A violinist")
_DID = ("repaired", "described", "borrowed", "painted", "sold", "remembered", "measured", "hid", "photographed")
_WHAT = ("a wooden boat", "the broken clock", "three letters", "a map of the coast", "the bridge", "a jar of honey")
_WHEN = ("before the storm", "on a quiet morning", "after the market closed", "in the spring", "late at night")
_WHY = ("because nobody else would", "to please a friend", "for a small reward", "without saying why", "as promised")


def fresh_text(dice: random.Random, sentences: int) -> str:
    """Return sentences drawn anew: no cache has seen them, and no look-up finds much in them."""
    return " ".join(
        f"{dice.choice(_WHO)} {dice.choice(_DID)} {dice.choice(_WHAT)} {dice.choice(_WHEN)}, {dice.choice(_WHY)}, "
        f"and paid {dice.randrange(10, 9999)} for it."
        for _ in range(sentences)
    )


def fresh_prompt(dice: random.Random, prompt: str) -> str:
    """Return the prompt with a number in front, so that nothing cached fits it."""
    return f"Request {dice.randrange(10**6, 10**7)}. {prompt}"


def chosen(quick: bool) -> list[tuple[str, str]]:
    """Return (kind, prompt) pairs, the kinds taking turns."""
    pairs = [pair for i in range(5) for pair in (("code", CODE[i]), ("math", MATH[i]))]
    pairs.append(("code", CODE[5]))
    return pairs[:2] if quick else pairs
