"""Drafts: a tree of guesses, and what verification keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats, Ints, Probabilities

Draws = Literal["shared", "chain", "tree", "greedy_tree"]
"""How a verifier wants guesses drawn: with the target's own noise, or with chance of their own and their
distributions kept: a chain, siblings without replacement, or the likeliest siblings and one drawn from the rest."""


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Tokens hanging below the last committed token, which is node 0.

    `tokens` int32 [N]; `parents` int32 [N], `-1` for the root, else a smaller index (topological order).
    """

    tokens: Ints
    parents: Ints

    @staticmethod
    def chain(tokens: list[int] | Ints) -> TokenTree:
        """Build the tree in which every token follows the one before it."""
        return TokenTree(np.asarray(tokens, np.int32), np.arange(-1, len(tokens) - 1, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.tokens)

    def depths(self) -> list[int]:
        """Return the number of edges between the root and each node."""
        depths = [0]
        for parent in self.parents[1:].tolist():
            depths.append(depths[parent] + 1)
        return depths

    def children(self, node: int) -> list[int]:
        """Return the indices of the nodes whose parent is `node`, in order."""
        return [int(child) for child in np.flatnonzero(self.parents == node)]

    def path(self, node: int) -> list[int]:
        """Return the nodes from just below the root down to `node`; empty for the root."""
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = int(self.parents[node])
        return path[::-1]

    def follow(self, tokens: Sequence[int] | Ints) -> list[int]:
        """Return the nodes met when walking down by these tokens, the first child of each name, root excluded."""
        node, path = 0, list[int]()
        for token in tokens:
            child = next((c for c in self.children(node) if self.tokens[c] == token), None)
            if child is None:
                break
            path.append(child)
            node = child
        return path


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter's guess for one sequence.

    `acceptance_prob` float32 [N] is the drafter's own estimate that each node is accepted given its parent;
    `source` int8 [N] names the source of each (an index into the drafter's `sources`); the root's entries are unused.
    `distributions` float64 [V] by node: the draft distribution that node's drawn children were drawn from, without
    replacement, in order; `drawn` bool [N] tells them from children that are a function of the text. Verifiers that
    want own draws read both.
    """

    tree: TokenTree
    acceptance_prob: Floats
    source: npt.NDArray[np.int8]
    distributions: Mapping[int, Probabilities] = field(default_factory=dict)
    drawn: npt.NDArray[np.bool_] | None = None

    @property
    def drafted(self) -> int:
        """Number of guessed tokens, the root excluded."""
        return len(self.tree) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification kept: the accepted nodes from the root down (root excluded) and the target's bonus token."""

    nodes: tuple[int, ...]
    bonus: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of the tree that was verified: the nodes accepted, and what was committed.

    `tokens` int32 [k]: the accepted ones and the target's own last, fewer if a stop cut them. `logits` float32 [N, V]
    after each node, the model's own memory: read them before the next forward. `taps` float32 [N, D] by layer: the
    hidden states of each node that the layer put out, where the drafter asks for them; the model's own memory too.
    """

    tree: TokenTree
    nodes: tuple[int, ...]
    tokens: Ints
    logits: Floats
    taps: Mapping[int, Floats] = field(default_factory=dict)
