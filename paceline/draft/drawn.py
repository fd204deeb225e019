"""Draws a model's guesses with noise of their own, for verifiers that weigh guesses by their distribution."""

from __future__ import annotations

from paceline.draft.chain import Guesses, Rates
from paceline.draft.steps import Job, Pick, Progress, Row
from paceline.sample.draw import distribution_fast
from paceline.sample.drawn import Children, draw_children
from paceline.types import Draws


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
