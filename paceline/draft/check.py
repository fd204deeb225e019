"""Refuse malformed drafts: a user's drafter must not change a text, and its faults get errors that name the cause."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import numpy as np

from paceline.core.request import View
from paceline.core.tree import Draft, TokenTree
from paceline.errors import UsageError

MOST_NODES = 64  # of a tree; what the caches keep room for beyond each sequence's text
LARGEST = 2**31 - 1  # id, where the vocabulary is not known
ROUNDING = 1e-6  # by which odds may exceed 1


def check(drafts: Seq[Draft], views: Seq[View], vocab: int | None, names: tuple[str, ...]) -> None:
    """Check what a drafter proposed in a round.

    Args:
        vocab: the number of ids; `None` for a member of a mix, where only the union is checked against it.

    Raises:
        UsageError: a draft is malformed; the message names the drafter and the fault.
    """
    drafter, largest = f"drafter `{', '.join(names)}`", LARGEST if vocab is None else vocab - 1
    if not isinstance(drafts, (list, tuple)):
        raise UsageError(f"{drafter} must return a list of drafts from `propose`, got `{drafts!r:.80}`")
    if len(drafts) != len(views):
        raise UsageError(f"{drafter} must propose one draft per sequence, got `{len(drafts)}` for {len(views)}")
    for draft, view in zip(drafts, views, strict=True):
        _check_kinds(draft, drafter)
        tokens, parents, sources = draft.tree.tokens.tolist(), draft.tree.parents.tolist(), draft.source.tolist()
        count = len(tokens)
        if not count or tokens[0] != view.tokens[-1] or parents[:1] != [-1]:
            raise UsageError(f"{drafter} must put the sequence's last token at the root, got `{tokens[:1]}`")
        if not len(parents) == len(draft.acceptance_prob) == len(sources) == count:
            raise UsageError(f"{drafter} must give each of its {count} nodes a parent, a guess and a source")
        if count == 1:
            continue
        if count > MOST_NODES + 1:
            raise UsageError(f"{drafter} must propose at most {MOST_NODES} nodes, got `{count - 1}`")
        if min(tokens) < 0 or max(tokens) > largest:
            raise UsageError(f"{drafter} must propose tokens from 0 to {largest}, got `{tokens}`")
        if not all(0 <= parent < node for node, parent in enumerate(parents[1:], 1)):
            raise UsageError(f"{drafter} must put parents before their children, got `{parents}`")
        if not ((draft.acceptance_prob[1:] >= 0) & (draft.acceptance_prob[1:] <= 1 + ROUNDING)).all():
            raise UsageError(
                f"{drafter} must give the odds of each guess, from 0 to 1, got `{draft.acceptance_prob[1:].tolist()}`"
            )
        if min(sources) < 0 or max(sources) >= len(names):
            raise UsageError(f"{drafter} must name one of its own sources for each node, got `{sources}`")
        if draft.drawn is not None or draft.distributions != {}:
            _check_distributions(draft, vocab, drafter)


def _check_kinds(draft: Draft, drafter: str) -> None:
    if not isinstance(draft, Draft) or not isinstance(draft.tree, TokenTree):
        raise UsageError(f"{drafter} must propose a `Draft` of a `TokenTree` for each sequence, got `{draft!r:.80}`")
    each = {
        "tokens": draft.tree.tokens,
        "parents": draft.tree.parents,
        "source": draft.source,
        "acceptance_prob": draft.acceptance_prob,
    }
    for name, array in each.items():
        kinds, wanted = ("f", "floats") if name == "acceptance_prob" else ("iu", "whole numbers")
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
            raise UsageError(
                f"{drafter} must give `{name}` as a numpy array of {wanted}, one a node, got `{array!r:.80}`"
            )


def _check_distributions(draft: Draft, vocab: int | None, drafter: str) -> None:
    drawn, count = draft.drawn, len(draft.tree)
    if drawn is None or not isinstance(drawn, np.ndarray) or drawn.shape != (count,) or drawn.dtype != np.bool_:
        raise UsageError(f"{drafter} must say of each of its {count} nodes whether it was `drawn`, got `{drawn!r:.80}`")
    if not isinstance(draft.distributions, Mapping) or not all(0 <= node < count for node in draft.distributions):
        raise UsageError(
            f"{drafter} must give the distributions by node, from 0 to {count - 1}, got `{draft.distributions!r:.80}`"
        )
    missing = {draft.tree.parents[node] for node in np.flatnonzero(drawn[1:]) + 1} - draft.distributions.keys()
    if missing:
        raise UsageError(
            f"{drafter} must give the distribution that children were drawn from, got none for node `{min(missing)}`"
        )
    for node, distribution in draft.distributions.items():
        is_distribution = (
            isinstance(distribution, np.ndarray) and distribution.ndim == 1 and distribution.dtype == np.float64
        )
        if not is_distribution or len(distribution) != (vocab or len(distribution)) or not (distribution >= 0).all():
            raise UsageError(
                f"{drafter} must give the distribution of node {node} as float64 [{vocab or 'V'}], "
                f"got `{distribution!r:.80}`"
            )
