"""Guesses drawn with a chance of their own, for verifiers that weigh them by the law they were drawn from.

The noise is keyed by the position and by where the draft began, so no round reuses another's (E4 of the contract of
exactness: independent draws). Whether a chain goes on is decided before its next token is drawn (E5).
"""

from __future__ import annotations

import numpy as np

from paceline.draft.chain import Guesses, Rates
from paceline.draft.steps import Job, Pick, Progress, Row
from paceline.sample.dice import Stream, gumbel, words
from paceline.sample.law import law
from paceline.types import Draws, Probabilities


def pick_drawn(draws: Draws, width: int, laws: list[list[Probabilities]], place: dict[int, int]) -> Pick:
    """Return a way of drawing `width` siblings a step.

    Args:
        draws: "chain" draws one; "tree" draws them without replacement, in order; "greedy_tree" takes the likeliest and
            draws the last from the rest.
        laws: takes the law of each step, by sequence.
        place: index in `laws` of each sequence id.
    """

    def pick(row: Row, job: Job, guesses: Guesses, progress: Progress, rates: Rates) -> None:
        start, depth = len(job.view.tokens), len(guesses.tokens)
        chosen = law(row.whole, job.view, guesses.tokens)
        probabilities = chosen.probabilities(len(row.whole))
        noise = gumbel(words(job.view.params.seed, Stream.DRAFT, (start << 32) | (start + depth), chosen.ids))
        given = width - 1 if draws == "greedy_tree" else 0  # siblings that are a function of the text: ids[:given]
        race = given + np.argsort(-(chosen.scores + noise)[given:], kind="stable")
        places = [*range(min(given, len(chosen.ids))), *race[: width - given].tolist()]
        tokens = [int(chosen.ids[i]) for i in places]
        laws[place[job.view.id]].append(probabilities)
        guesses.tokens.append(tokens[0])
        guesses.confidences.append(float(probabilities[tokens[0]]))
        guesses.beside.append(tokens[1:])

    return pick
