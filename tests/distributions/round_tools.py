"""Rounds of the real verifiers played with every outcome of chance, drafts included, and the distributions they add
up to.
"""

from collections import defaultdict

import numpy as np
from distribution_tools import distance

from paceline.core.request import SamplingParams, View
from paceline.core.tree import Draft, TokenTree
from paceline.sample.distribution import distribution
from paceline.testing import EveryOutcome


class World:
    """Two models over one small vocabulary: logits float32 [V] of the target and distributions float64 [V] of the
    drafter.

    Some tokens are forbidden; `alike` is how far the drafter's distribution leans to the target's. Distributions and
    drafts depend on the last `reach` tokens, so that rounds in equal contexts are played once.
    """

    def __init__(self, vocab=3, seed=0, *, sharpness=1.5, alike=0.5, params=None, zeros=0.3, reach=1):
        self.vocab, self.seed, self.sharpness, self.alike, self.zeros = vocab, seed, sharpness, alike, zeros
        self.params, self.reach = params or SamplingParams(1.0), reach
        self._known = {}

    def chance(self, purpose, tokens):
        return np.random.default_rng((self.seed, purpose, *(int(token) for token in tokens[-self.reach :])))

    def scores(self, purpose, tokens):
        chance = self.chance(purpose, tokens)
        scores = (self.sharpness * chance.standard_normal(self.vocab)).astype(np.float32)
        if chance.random() < self.zeros:
            scores[chance.integers(self.vocab)] = -np.inf
        return scores

    def logits(self, tokens):
        return self._keep(("logits", *tokens[-self.reach :]), lambda: self.scores(1, tokens))

    def p(self, tokens, params=None):
        params = params or self.params
        key = ("p", params, *tokens[-self.reach :])
        return self._keep(
            key, lambda: distribution(self.logits(tokens), view_of(tokens, params)).probabilities(self.vocab)
        )

    def q(self, tokens):
        def blend():
            own = distribution(self.scores(2, tokens), view_of(tokens, SamplingParams(1.0))).probabilities(self.vocab)
            return self.alike * self.p(tokens) + (1 - self.alike) * own

        return self._keep(("q", *tokens[-self.reach :]), blend)

    def logits_of(self, tree, tokens):
        return np.stack([self.logits((*tokens, *tree.tokens[tree.path(node)].tolist())) for node in range(len(tree))])

    def _keep(self, key, make):
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


def view_of(tokens, params):
    return View(0, np.array(tokens, np.int32), params)


# ---- drafts: (world, tokens so far, rng) -> Draft


class Growing:
    """A draft in the making."""

    def __init__(self, tokens):
        self.tokens, self.parents, self.drawn, self.distributions = [int(tokens[-1])], [-1], [False], {}

    def add(self, parent, token, *, drawn):
        self.tokens.append(int(token))
        self.parents.append(parent)
        self.drawn.append(drawn)
        return len(self.tokens) - 1

    def draft(self):
        count = len(self.tokens)
        tree = TokenTree(np.array(self.tokens, np.int32), np.array(self.parents, np.int32))
        return Draft(
            tree, np.ones(count, np.float32), np.zeros(count, np.int8), self.distributions, np.array(self.drawn)
        )


def without_replacement(growing, parent, q, count, rng):
    """Draw children from q, the drawn ones left out of what follows."""
    growing.distributions[parent] = q
    left, children = q, []
    for _ in range(min(count, int((q > 0).sum()))):
        token = rng.draw(left)
        children.append(growing.add(parent, token, drawn=True))
        left = left.copy()
        left[token] = 0
        left = left / max(left.sum(), 1e-300)
    return children


def drawn(*shape):
    """Return the drafter that draws `shape[d]` children at each node of depth d."""

    def drafter(world, tokens, rng):
        growing = Growing(tokens)

        def grow(node, path, depth):
            if depth < len(shape):
                for child in without_replacement(growing, node, world.q(path), shape[depth], rng):
                    grow(child, (*path, growing.tokens[child]), depth + 1)

        grow(0, tokens, 0)
        return growing.draft()

    return drafter


def greedy(*shape):
    """Return the drafter that takes the likeliest `shape[d] - 1` children and draws one from the rest."""

    def drafter(world, tokens, rng):
        growing = Growing(tokens)

        def grow(node, path, depth):
            if depth == len(shape):
                return
            q = world.q(path).copy()
            sure = [int(token) for token in np.argsort(-q, kind="stable")[: shape[depth] - 1]]
            q[sure] = 0
            children = [growing.add(node, token, drawn=False) for token in sure]
            if q.any():
                children += without_replacement(growing, node, q / q.sum(), 1, rng)
            for child in children:
                grow(child, (*path, growing.tokens[child]), depth + 1)

        grow(0, tokens, 0)
        return growing.draft()

    return drafter


def likeliest(length, model="q"):
    """Return the drafter of the chain it finds likeliest, a function of the text."""

    def drafter(world, tokens, rng):
        growing, path = Growing(tokens), tokens
        for node in range(length):
            path = (*path, int(getattr(world, model)(path).argmax()))
            growing.add(node, path[-1], drawn=False)
        return growing.draft()

    return drafter


def mixed(salt, *heirs):
    """Return the drafter of any tree: sure and drawn children side by side, twins among them, none at some nodes.

    At depth d, `heirs[d]` children have children of their own.
    """

    def drafter(world, tokens, rng):
        growing = Growing(tokens)

        def grow(node, path, depth):
            chance = world.chance(100 + salt, path)  # how many are drawn follows from the path alone
            sure = chance.integers(world.vocab, size=int(chance.integers(0, 3))).tolist()
            children = [growing.add(node, token, drawn=False) for token in sure]
            count = int(chance.integers(0, 2 if depth else 3))
            children += without_replacement(growing, node, world.q(path), count, rng)
            order = chance.permutation(len(children))
            for i in order[: heirs[depth] if depth < len(heirs) else 0]:
                grow(children[i], (*path, growing.tokens[children[i]]), depth + 1)

        grow(0, tokens, 0)
        return growing.draft()

    return drafter


# ---- distributions


def rounds(world, make_verifier, drafter, tokens):
    """Return {committed tokens: probability} of one round; `make_verifier` maps the rng's maker to a verifier."""
    distribution_of_round = defaultdict(float)
    for rng in EveryOutcome():
        draft = drafter(world, tokens, rng)
        verdict = make_verifier(lambda view, rng=rng: rng).verify(
            draft, world.logits_of(draft.tree, tokens), view_of(tokens, world.params)
        )
        tip = verdict.nodes[-1] if verdict.nodes else 0
        assert list(verdict.nodes) == draft.tree.path(tip), verdict
        distribution_of_round[(*draft.tree.tokens[list(verdict.nodes)].tolist(), verdict.bonus)] += rng.weight
    return distribution_of_round


def first_tokens(round_of, length, reach):
    """Return {first `length` tokens: probability} of rounds one after the other, each {tokens: probability}."""
    known, distributions = {}, {}

    def go(tokens, count):
        key = tokens[-reach:]
        if count <= 0:
            return {(): 1.0}
        if (key, count) not in distributions:
            if key not in known:
                known[key] = round_of(key)
            distribution_of_rest = defaultdict(float)
            for committed, weight in known[key].items():
                for rest, share in go((*key, *committed[:count]), count - len(committed)).items():
                    distribution_of_rest[(*committed[:count], *rest)] += weight * share
            distributions[key, count] = distribution_of_rest
        return distributions[key, count]

    return go((0,) * reach, length)


def error(world, make_verifier, drafter, length=3):
    """Return the total variation between rounds of a verifier and the target alone, over the first tokens."""
    plain = first_tokens(
        lambda tokens: {(t,): share for t, share in enumerate(world.p(tokens)) if share}, length, world.reach
    )
    assert abs(sum(plain.values()) - 1) < 1e-12
    return distance(
        first_tokens(lambda tokens: rounds(world, make_verifier, drafter, tokens), length, world.reach), plain
    )


def expected_tokens(distribution_of_round):
    return sum(len(tokens) * weight for tokens, weight in distribution_of_round.items())
