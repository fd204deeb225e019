"""Views and outcomes made by hand."""

import numpy as np

from paceline.core.request import SamplingParams, View
from paceline.core.tree import Verified
from paceline.sample.coupled import draw, draw_plain
from paceline.sample.distribution import distribution


def view_at(position, params=None):
    """A sequence whose next token stands at `position`; its tokens are all 0."""
    return View(0, np.broadcast_to(np.int32(0), (position,)), params or SamplingParams())


def draw_at(logits, params, position):
    return draw(logits, view_at(position, params))


def draw_plain_at(logits, params, position):
    return draw_plain(logits, view_at(position, params))


def distribution_of_row(logits, params):
    return distribution(logits, view_at(1, params))


def outcome(draft, kept, bonus=0, vocab=0):
    """What a verifier would say that kept the first `kept` nodes of a chain; the bonus is no token of the draft's."""
    nodes = tuple(range(1, kept + 1))
    if kept < draft.drafted and bonus == draft.tree.tokens[kept + 1]:
        bonus += 1
    tokens = np.array([*draft.tree.tokens[1 : kept + 1], bonus], np.int32)
    return Verified(draft.tree, nodes, tokens, np.zeros((len(draft.tree), vocab), np.float32))
