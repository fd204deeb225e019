"""How a draft model draws its guesses: with the target's own noise, or with its own and the distribution on record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core.aliases import Floats, Probabilities
from paceline.core.request import View
from paceline.core.tree import Draws
from paceline.draft.model.chain import Guesses, Rates
from paceline.draft.model.steps import Job, Pick, Progress, Row
from paceline.sample.coupled import distribution_fast, draw
from paceline.sample.distribution import Distribution
from paceline.sample.proposal import Children, draw_children
from paceline.sample.rng import Stream, gumbel, words


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


def pick_drawn(draws: Draws, width: int, children: list[list[Children]], place: dict[int, int]) -> Pick:
    """Return a way of drawing `width` siblings a step; the chain goes on from the first.

    Args:
        draws: the kind of draws that the verifier needs, see `draw_children`.
        children: receives each step's guesses, by sequence.
        place: index in `children` of each sequence id.
    """

    def pick(row: Row, job: Job, guesses: Guesses, progress: Progress, rates: Rates) -> None:
        own = distribution_fast(row.whole, job.view, guesses.tokens)
        found = draw_children(own, width, draws, job.view, guesses.tokens, vocab=len(row.whole))
        tokens = found.tokens.tolist()
        children[place[job.view.id]].append(found)
        guesses.tokens.append(tokens[0])
        guesses.confidences.append(float(found.chances[0]))
        guesses.beside.append(tokens[1:])

    return pick
