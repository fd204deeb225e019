"""How a draft model draws its guesses: with the target's own noise, or with noise of its own and the distribution on record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.sample.dice import Stream, gumbel, words
from paceline.sample.draw import draw, distribution_fast
from paceline.sample.drawn import draw_children
from paceline.sample.distribution import Distribution
from paceline.types import Draws, Floats, Probabilities, View


def draw_guess(logits: Floats, view: View, path: Sequence[int], draws: Draws) -> tuple[int, Probabilities | None]:
    """Return the guess that follows `path` and, where it is drawn with noise of its own, its distribution, float64 [V].

    Raises:
        NumericalError: nothing can be drawn from these logits, float32 [V].
    """
    if draws == "shared":
        return draw(logits, view, path), None
    drawn = draw_children(distribution_fast(logits, view, path), 1, draws, view, path, vocab=len(logits))
    return int(drawn.tokens[0]), drawn.distribution


def draw_shared(chances: Probabilities, view: View, path: Sequence[int]) -> int:
    """Draw from float64 [V] with the noise the target will draw with: argmax of log + Gumbel (Daliri 2408.07978)."""
    ids, position = np.flatnonzero(chances), len(view.tokens) + len(path)
    scores = np.log(chances[ids]) + gumbel(words(view.params.seed, Stream.GUMBEL, position, ids))
    return int(ids[scores.argmax()])


def draw_own(chances: Probabilities, view: View, path: Sequence[int], draws: Draws) -> tuple[int, Probabilities]:
    """Draw from float64 [V] with noise that nothing else reads; return the guess and its distribution."""
    ids = np.flatnonzero(chances).astype(np.int32)
    drawn = draw_children(Distribution(ids, np.log(chances[ids])), 1, draws, view, path, vocab=len(chances))
    return int(drawn.tokens[0]), drawn.distribution
