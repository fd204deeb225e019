"""Read a finished text once more, all at once, and ask of each token whether the target alone would have drawn it.

Needs no second reply: one pass over prompt and output gives every row of logits, and the rows are those of decoding
token by token, bit for bit, because a row does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.core.aliases import Floats, Json
from paceline.core.request import View
from paceline.model.base import Model
from paceline.model.extend import extend
from paceline.model.flatten import CHUNK, SLACK
from paceline.sample.coupled import draw
from paceline.sample.distribution import distribution
from paceline.sample.penalties import adjust
from paceline.sample.rng import Stream, gumbel, words


@dataclass(frozen=True, slots=True)
class Difference:
    """A token that is not what the target alone says. `position` counts from the reply's first token.

    `margin` is how much likelier the right token was, in natural logarithms (of the draw's score, its noise included,
    where the text was sampled). A tie within the tolerance is arithmetic; anything else is a bug.
    """

    position: int
    wanted: int
    got: int | None
    margin: float
    verdict: str

    def to_json(self) -> Json:
        return {
            "position": self.position,
            "wanted": self.wanted,
            "got": self.got,
            "margin": self.margin if np.isfinite(self.margin) else None,
            "verdict": self.verdict,
        }


def rows_after(model: Model, prompt: Sequence[int], output: Sequence[int]) -> Iterator[Floats]:
    """Yield the target's logits float32 [V] before each output token, read through a cache of their own."""
    text = [*prompt, *output][:-1]
    cache = model.new_cache(len(text) + SLACK)
    sequence = cache.open()
    first = len(prompt) - 1
    for start in range(0, len(text), CHUNK):
        part = text[start : start + CHUNK]
        wanted = min(max(start + len(part) - first, 0), len(part))
        logits = extend(model, cache, [sequence], [part], wanted=wanted)
        yield from (logits[i].copy() for i in range(wanted))
    cache.release(sequence)


def first_difference(
    model: Model, view: View, output: Sequence[int], *, tolerance: float = 0.0, is_keyed: bool = True
) -> Difference | None:
    """Return the first token of `output` that the target alone would not have drawn, or None.

    Args:
        view: the sequence before its output: tokens, settings, ends.
        tolerance: margin up to which a difference is a tie; 0 for kernels whose rows are bitwise independent.
        is_keyed: the text follows from the seed; else a sampled token must only be possible.
    """
    tokens = view.tokens
    for position, (row, got) in enumerate(zip(rows_after(model, tokens.tolist(), output), output, strict=True)):
        here = output[:position]
        if not is_keyed and not view.params.is_greedy:
            chosen = distribution(row, view, here)
            if got not in chosen.ids:
                return Difference(position, int(chosen.ids[0]), int(got), float("inf"), "bug")
            continue
        wanted = draw(row, view, here)
        if wanted != got:
            margin = margin_of(row, view, here, wanted, int(got))
            return Difference(position, wanted, int(got), margin, "tie" if abs(margin) <= tolerance else "bug")
    return None


def margin_of(row: Floats, view: View, path: Sequence[int], wanted: int, got: int) -> float:
    """Return by how much `wanted` beats `got` in the draw's scores; infinite if one of them cannot be drawn at all."""
    if view.params.is_greedy:
        changed = adjust(row, view, path)
        return float(changed[wanted]) - float(changed[got])
    chosen = distribution(row, view, path)
    noise = gumbel(words(view.params.seed, Stream.GUMBEL, len(view.tokens) + len(path), chosen.ids))
    scores = dict(zip(chosen.ids.tolist(), (chosen.scores + noise).tolist(), strict=True))
    return float(scores[wanted] - scores[got]) if {wanted, got} <= scores.keys() else float("inf")
