"""Bugs that shipped elsewhere, planted in a verifier or in how it is fed: enumeration finds each, with the size it has.

Sizes are total variations over the first tokens; the smallest tells what power a statistical test would need.
"""

import numpy as np
import pytest
from round_tools import Growing, World, drawn, error, expected_tokens, rounds, without_replacement

from paceline.core.request import SamplingParams, View
from paceline.verify.block import BlockVerifier
from paceline.verify.lossy import LenientVerifier
from paceline.verify.tree import RejectionVerifier, drawn_children, residual

# ---- rules


class _Mutant(RejectionVerifier):
    def _next(self, draft, node, p, rng, depth):
        for child, q in drawn_children(draft, node):
            token = int(draft.tree.tokens[child])
            if self.accepts(p, q, token, rng):
                return child, token
            p = self.rest(p, q, token)
        return None, rng.draw(p)

    def accepts(self, p, q, token, rng):
        return rng.accept(min(1.0, p[token] / q[token]))

    def rest(self, p, q, token):
        return residual(p, q)


class ResampleFromP(_Mutant):
    def rest(self, p, q, token):
        return p


class ResidualOverOneMinusQ(_Mutant):
    def rest(self, p, q, token):
        return np.maximum(p - q, 0) / max(1 - q[token], 1e-9)


class AcceptIfLikelier(_Mutant):
    def accepts(self, p, q, token, rng):
        return p[token] > q[token]


class WithReplacement(RejectionVerifier):
    """Siblings are judged as if each had been drawn from the whole distribution."""

    def _next(self, draft, node, p, rng, depth):
        for child in draft.tree.children(node):
            token, q = int(draft.tree.tokens[child]), draft.distributions[node]
            if rng.accept(min(1.0, p[token] / q[token])):
                return child, token
            p = residual(p, q)
        return None, rng.draw(p)


class TokenRuleInBlocks(BlockVerifier):
    """The block's coins with the token's rest."""

    def verify(self, draft, logits, view):
        verdict = super().verify(draft, logits, view)
        if len(verdict.nodes) == draft.drafted:
            return verdict
        return RejectionVerifier(self._chance).verify(_cut(draft, len(verdict.nodes)), logits, view)


def _cut(draft, kept):
    growing = Growing([draft.tree.tokens[0]])
    for node in range(kept):
        growing.add(node, draft.tree.tokens[node + 1], drawn=False)
    return growing.draft()


class UnfilteredTarget(RejectionVerifier):
    """The target's distribution without the user's top-k."""

    def verify(self, draft, logits, view):
        return super().verify(draft, logits, View(view.id, view.tokens, SamplingParams(view.params.temperature)))


# ---- drafters


def chain(length, draw):
    """Return the drafter that asks `draw(world, path, rng)` for (token or None to stop, distribution, whether it
    goes on).
    """

    def drafter(world, tokens, rng):
        growing, path = Growing(tokens), tokens
        for node in range(length):
            token, q, goes_on = draw(world, path, rng)
            if token is not None:
                growing.distributions[node] = q
                growing.add(node, token, drawn=True)
                path = (*path, token)
            if not goes_on:
                break
        return growing.draft()

    return drafter


def drop_if_unsure(world, path, rng):
    q = world.q(path)
    token = rng.draw(q)
    return (token, q, True) if q[token] >= 0.4 else (None, q, False)


def keep_then_stop(world, path, rng):
    q = world.q(path)
    token = rng.draw(q)
    return token, q, q[token] >= 0.4


def stop_before_drawing(world, path, rng):
    q = world.q(path)
    return (rng.draw(q), q, True) if q.max() >= 0.5 else (None, q, False)


def likeliest_as_if_drawn(world, path, rng):
    q = world.q(path)
    return int(q.argmax()), q, True


def top_two_as_if_all(world, path, rng):
    q = world.q(path)
    least = np.sort(q)[-2]
    return rng.draw(np.where(q >= least, q, 0) / q[q >= least].sum()), q, True


def drop_if_forbidden(world, path, rng):
    q = world.q(path)
    token = rng.draw(q)
    return (token, q, True) if world.p(path)[token] > 0 else (None, q, False)


USUAL = {"zeros": 0.0, "alike": 0.3}
MUTANTS = {  # what is wrong: (verifier, drafter, world, least size in the worst of three worlds)
    "the refused are redrawn from p": (ResampleFromP, drawn(1, 1), USUAL, 0.05),
    "the rest divided by 1 - q(x)": (ResidualOverOneMinusQ, drawn(1, 1), USUAL, 0.1),
    "accepted if likelier": (AcceptIfLikelier, drawn(1, 1), USUAL, 0.1),
    "siblings as if with replacement": (WithReplacement, drawn(3), USUAL, 0.01),
    "blocks with the token's rest": (TokenRuleInBlocks, drawn(1, 1), USUAL, 0.05),
    "dropped by its own confidence": (RejectionVerifier, chain(2, drop_if_unsure), USUAL, 0.05),
    "dropped by its own confidence, block": (BlockVerifier, chain(2, drop_if_unsure), USUAL, 0.05),
    "argmax draft, softmax distribution": (RejectionVerifier, chain(2, likeliest_as_if_drawn), USUAL, 0.1),
    "drawn from the top, raw distribution": (
        RejectionVerifier,
        chain(2, top_two_as_if_all),
        {**USUAL, "vocab": 4},
        0.05,
    ),
    "raw p where top-k was asked": (
        UnfilteredTarget,
        drawn(1, 1),
        {**USUAL, "params": SamplingParams(1.0, top_k=2)},
        0.05,
    ),
    "forbidden drafts dropped": (RejectionVerifier, chain(2, drop_if_forbidden), {"zeros": 1.0, "alike": 0.0}, 0.05),
    "lenience 0.5": (lambda chance: LenientVerifier(0.5, chance), drawn(1, 1), USUAL, 0.05),
}


@pytest.mark.parametrize("bug", MUTANTS)
def test_enumeration_finds(bug):
    make_verifier, drafter, settings, size = MUTANTS[bug]
    settings = {"vocab": 3, **settings}
    found = [error(World(seed=20 + seed, **settings), make_verifier, drafter) for seed in range(3)]
    print(bug, np.round(found, 3))
    assert max(found) > size, found


@pytest.mark.parametrize("draw", [keep_then_stop, stop_before_drawing], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("make_verifier", [RejectionVerifier, BlockVerifier], ids=["rejection", "block"])
def test_chains_may_stop_without_looking_ahead(make_verifier, draw):
    for seed in range(2):
        off = error(World(3, seed, zeros=0.2), make_verifier, chain(3, draw))
        assert off < 1e-12, off


# ---- how much is accepted


def test_a_block_keeps_at_least_what_token_by_token_keeps():
    """Over 16 pairs of models; and more in the mean."""
    gains = []
    for seed in range(16):
        world = World(2 + seed % 2, seed, alike=0.4)
        token, block = (
            expected_tokens(rounds(world, rule, drawn(1, 1), (0,))) for rule in (RejectionVerifier, BlockVerifier)
        )
        assert block > token - 1e-12, (seed, block, token)
        gains.append(block / token - 1)
    print("gain", np.mean(gains), np.max(gains))
    assert np.mean(gains) > 0.005, gains


@pytest.mark.parametrize("seed", range(6))
def test_acceptance_is_what_the_closed_forms_say(seed):
    world = World(4, seed, zeros=0.2)
    p, q = world.p((0,)), world.q((0,))

    def accepted(rule, drafter):
        return expected_tokens(rounds(world, rule, drafter, (0,))) - 1

    one = np.minimum(p, q).sum()
    for rule in (RejectionVerifier, BlockVerifier):
        assert abs(accepted(rule, drawn(1)) - one) < 1e-12
    assert abs(accepted(RejectionVerifier, sure_and_drawn) - _greedy_draft(p, q)) < 1e-12
    assert abs(accepted(RejectionVerifier, drawn(2)) - _siblings(p, q, 2)) < 1e-12
    assert abs(accepted(lambda c: LenientVerifier(0.6, c), drawn(1)) - np.minimum(q, p / 0.6).sum()) < 1e-12


def sure_and_drawn(world, tokens, rng):
    growing, q = Growing(tokens), world.q(tokens).copy()
    growing.add(0, q.argmax(), drawn=False)
    q[q.argmax()] = 0
    without_replacement(growing, 0, q / q.sum(), 1, rng)
    return growing.draft()


def _greedy_draft(p, q):
    """p(T) + sum over the rest of min(p, q without T), T the likeliest (Hu et al. 2502.18779)."""
    top = q.argmax()
    rest = q.copy()
    rest[top] = 0
    return p[top] + np.minimum(p, rest / rest.sum())[np.arange(len(q)) != top].sum()


def _siblings(p, q, count):
    """What recursive rejection without replacement accepts, by its recursion."""
    if count == 0 or not q.any():
        return 0.0
    share, refused = np.minimum(p, q).sum(), 0.0
    rest = residual(p, q)
    for token in np.flatnonzero(q):
        left = q.copy()
        left[token] = 0
        odds = q[token] - min(p[token], q[token])
        if odds > 0 and left.any():
            refused += odds * _siblings(rest, left / left.sum(), count - 1)
    return share + refused


# ---- lossy on request


@pytest.mark.parametrize("lenience", [0.9, 0.5, 0.2])
def test_lenience_bounds_how_often_a_token_comes(lenience):
    """P(token) <= p / lenience, drawn or sure, one guess or several; and the less lenient, the nearer to p."""
    for seed in range(4):
        world = World(4, seed, alike=0.2)
        p = world.p((0,))
        for drafter in (drawn(1), drawn(3), sure_and_drawn, likely_pair):
            distribution_of_round = rounds(world, lambda chance: LenientVerifier(lenience, chance), drafter, (0,))
            first = np.zeros(4)
            for tokens, weight in distribution_of_round.items():
                first[tokens[0]] += weight
            assert abs(first.sum() - 1) < 1e-12
            assert (first <= p / lenience + 1e-12).all(), (first, p)


def likely_pair(world, tokens, rng):
    growing = Growing(tokens)
    for token in np.argsort(-world.q(tokens))[:2]:
        growing.add(0, token, drawn=False)
    return growing.draft()


def test_full_lenience_is_rejection():
    assert error(World(3, 1), lambda chance: LenientVerifier(1.0, chance), drawn(2, 1)) < 1e-12
    assert LenientVerifier(1.0).lossless
    assert not LenientVerifier(0.8).lossless
    assert LenientVerifier.of("0.8").lenience == 0.8
