"""Restricted and mixed distributions are the ones guesses are drawn from: a verifier that reads them keeps the
target's.
"""

import dataclasses

import numpy as np
import pytest
from distribution_tools import Table, distance, distribution_of, plain_distribution
from pairs import loaded

import paceline.draft.model.proposal
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.compose.mixture import MixtureDrafter
from paceline.draft.model.proposal import draw_shared
from paceline.draft.vocab.token_map import map_tokens
from paceline.draft.vocab.translated import TranslatedModel
from paceline.sample.proposal import Children
from paceline.testing import TinyModel

VOCAB, LENGTH, DEPTH = 3, 2, 2
PIECES = [b"a", b"b", b"c"]


def said_by(table):
    """A draft model whose distribution after some letters is the table's."""
    return lambda seen: np.log(np.maximum(table(seen), 1e-30)).astype(np.float32)


def voice_of(kind, seed):
    if kind == "plain":
        return TranslatedModel(
            TinyModel(3, distribution=said_by(Table(3, seed)), reach=None), vocab=3, context=64, slots=1, name=kind
        )
    # Two of the target's three letters, under other ids, between two of its own.
    draft = loaded("small", TinyModel(4, distribution=said_by(Table(4, seed)), reach=None), [b"b", b"x", b"a", b"y"])
    words = map_tokens(loaded("big", TinyModel(3), PIECES).tokenizer, draft.tokenizer, vocab=3)
    return TranslatedModel(draft.model, vocab=3, context=64, slots=1, name=kind, words=words, first=1)


class Fixed:
    """Weights that are a function of the text, as learned ones are."""

    def __init__(self, tokens, members):
        weights = 1.0 + np.arange(members) + (len(tokens) + sum(tokens)) % 3
        self._weights = weights / weights.sum()

    def current(self):
        return self._weights


def rejection(draft, distributions, table, tokens, rng):
    """Speculative sampling on a chain (Leviathan et al. 2211.17192)."""
    kept = []
    for node in range(draft.drafted):
        p, q, guess = table((*tokens, *kept)), distributions[node], int(draft.tree.tokens[node + 1])
        if not rng.accept(min(1.0, p[guess] / q[guess])):
            rest = np.maximum(p - q, 0)
            return [*kept, rng.draw(rest / rest.sum())]
        kept.append(guess)
    return [*kept, rng.draw(table((*tokens, *kept)))]


def played(kinds, table, monkeypatch, spoil=lambda drafter, distributions: distributions):
    voices = [voice_of(kind, 50 + i) for i, kind in enumerate(kinds)]

    def play(tokens, rng):
        def chosen(distribution, count, draws, view, path, *, vocab):
            chances = distribution.probabilities(vocab)
            token = rng.draw(chances)
            return Children(np.array([token], np.int32), np.ones(1, np.bool_), chances, chances[[token]])

        monkeypatch.setattr(paceline.draft.model.proposal, "draw_children", chosen)
        drafter = MixtureDrafter(voices, draws="chain", name="m")
        drafter.weights = Fixed(tokens, len(kinds))
        view = View(0, np.array([0, *tokens], np.int32), SamplingParams(1.0))
        (draft,) = drafter.propose([view], [Budget(DEPTH, DEPTH)])
        assert draft.drawn.tolist() == [False, *[True] * draft.drafted]
        distributions = spoil(drafter, draft.distributions)
        drafter.release(0)
        return rejection(draft, distributions, table, tokens, rng)

    return distribution_of(play, LENGTH)


CASES = [["tli"], ["plain"], ["plain", "plain"], ["plain", "tli"], ["tli", "plain", "plain"]]


@pytest.mark.parametrize("kinds", CASES, ids="+".join)
def test_the_recorded_distribution_is_the_one_drawn_from(kinds, monkeypatch):
    table = Table(VOCAB, 7)
    off = distance(played(kinds, table, monkeypatch), plain_distribution(table, LENGTH))
    assert off < 1e-12, off


def test_a_members_distribution_in_place_of_the_mixtures_shows(monkeypatch):
    table = Table(VOCAB, 7)

    def spoil(drafter, distributions):
        return {node: members[0] for node, members in enumerate(drafter._distributions[0])}

    assert distance(played(["plain", "plain"], table, monkeypatch, spoil), plain_distribution(table, LENGTH)) > 0.01


def test_a_restricted_distribution_that_does_not_sum_to_one_shows(monkeypatch):
    table = Table(VOCAB, 7)

    def spoil(drafter, distributions):
        return {node: 0.7 * distribution for node, distribution in distributions.items()}

    assert distance(played(["tli"], table, monkeypatch, spoil), plain_distribution(table, LENGTH)) > 0.01


def test_a_map_off_by_one_id_still_records_its_distribution(monkeypatch):
    """A wrong map makes bad guesses, never another distribution: what is recorded went through the same map."""
    table, make = Table(VOCAB, 7), voice_of

    def broken(kind, seed):
        voice = make(kind, seed)
        voice.words = dataclasses.replace(voice.words, draft=np.roll(voice.words.draft, 1))
        return voice

    monkeypatch.setitem(globals(), "voice_of", broken)
    assert distance(played(["tli"], table, monkeypatch), plain_distribution(table, LENGTH)) < 1e-12


def test_shared_draws_are_the_targets_where_the_distributions_agree():
    from paceline.sample.coupled import draw

    logits = np.random.default_rng(0).standard_normal(30).astype(np.float32)
    chances = np.exp(logits.astype(np.float64))
    for seed in range(50):
        view = View(0, np.zeros(4, np.int32), SamplingParams(1.0, seed=seed))
        assert draw_shared(chances / chances.sum(), view, [1]) == draw(logits, view, [1])
