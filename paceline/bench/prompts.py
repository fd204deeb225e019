"""Text that no run has seen before, so that nothing cached fits it."""

from __future__ import annotations

import random

_SUBJECT = ("The baker", "A retired captain", "My neighbour", "The younger sister", "An old engineer", "A violinist")
_DID = ("repaired", "described", "borrowed", "painted", "sold", "remembered", "measured", "hid", "photographed")
_WHAT = ("a wooden boat", "the broken clock", "three letters", "a map of the coast", "the bridge", "a jar of honey")
_WHEN = ("before the storm", "on a quiet morning", "after the market closed", "in the spring", "late at night")
_WHY = ("because it was late", "to please a friend", "for a small reward", "without saying why", "as promised")


def fresh_text(rng: random.Random, sentences: int) -> str:
    """Return sentences drawn anew: no cache has seen them, and no look-up finds much in them."""
    return " ".join(
        f"{rng.choice(_SUBJECT)} {rng.choice(_DID)} {rng.choice(_WHAT)} {rng.choice(_WHEN)}, {rng.choice(_WHY)}, "
        f"and paid {rng.randrange(10, 9999)} for it."
        for _ in range(sentences)
    )


def fresh_prompt(rng: random.Random, prompt: str) -> str:
    """Return the prompt with a number in front, so that nothing cached fits it."""
    return f"Request {rng.randrange(10**6, 10**7)}. {prompt}"
