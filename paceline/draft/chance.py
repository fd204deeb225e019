"""How a draft model draws its guesses: with the target's own noise, or with chance of its own and the law on record.

Chance of its own is keyed by the round as well as the position: a verifier may have looked at guesses it then refused,
so what decided them must not decide their successors (ALGORITHMS of independent randomness, vLLM #54282).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.sample.dice import Stream, gumbel, words
from paceline.sample.draw import draw
from paceline.sample.law import law
from paceline.types import Draws, Floats, Probabilities, View


def draw_guess(logits: Floats, view: View, path: Sequence[int], draws: Draws) -> tuple[int, Probabilities | None]:
    """Return the guess that follows `path` and, where it has chance of its own, float64 [V] the law it was drawn from.

    Raises:
        NumericalError: nothing can be drawn from these logits, float32 [V].
    """
    if draws == "shared":
        return draw(logits, view, path), None
    chances = law(logits, view, path).probabilities(len(logits))
    return draw_own(chances, view, path), chances


def draw_shared(chances: Probabilities, view: View, path: Sequence[int]) -> int:
    """Draw from float64 [V] with the noise the target will draw with: argmax of log + Gumbel (Daliri 2408.07978)."""
    return _draw(chances, view, Stream.GUMBEL, len(view.tokens) + len(path))


def draw_own(chances: Probabilities, view: View, path: Sequence[int]) -> int:
    """Draw from float64 [V] with noise nothing else reads."""
    position = len(view.tokens) + len(path)
    return _draw(chances, view, Stream.DRAFT, position | len(view.tokens) << 32)


def _draw(chances: Probabilities, view: View, stream: Stream, position: int) -> int:
    ids = np.flatnonzero(chances)
    scores = np.log(chances[ids]) + gumbel(words(view.params.seed, stream, position, ids))
    return int(ids[scores.argmax()])
