"""Guess what followed the longest suffixes of the text before: in the text itself, and in earlier ones.

A suffix automaton of the request's prompt and output, and optionally a corpus shared by all requests, give for every
context its successors and their counts; the tree of likeliest continuations is grown best first. (SAM-Decoding
2411.10666; SuffixDecoding 2411.04975; REST 2311.08252.) A candidate's odds are the acceptance of its kind: where it was
found, the context's length, and the share of its occurrences that went on like that.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import numpy as np

from paceline.core.aliases import Ints, Probabilities
from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, Setting, empty_draft
from paceline.draft.lookup.corpus import Corpus
from paceline.draft.lookup.suffix_plain import KINDS, LENGTHS, SHARES
from paceline.draft.tree_ops import best_prefix, tested_nodes
from paceline.errors import PacelineError
from paceline.estimate.acceptance import Acceptance, Tilt
from paceline.kernels.native import native

OF_LENGTH = (0.25, 0.45, 0.6, 0.68, 0.74, 0.8, 0.85, 0.9)  # how far to trust contexts before anything was seen
OF_SHARE = (0.85, 0.06, 0.18, 0.38, 0.65, 0.88, 1.0)  # contexts seen once first, then by share
OF_CORPUS = 0.8
SAVED_EVERY = 5.0  # seconds between two writings of the corpus

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _State:
    automaton: native.Automaton
    tree: TokenTree | None = None  # the latest proposal, before anything pruned it
    kinds: Ints | None = None
    usual: Probabilities | None = None  # how often each kind was right, in all texts
    tilt: Tilt = field(default_factory=Tilt)  # how far this text differs from that
    view: View | None = None  # as of the latest round, and what that round committed
    committed: Ints | None = None


class SuffixDrafter(Drafter):
    """Needs no model; strong wherever output repeats its context or earlier outputs.

    Args:
        corpus: texts of other requests, to guess from and to add this drafter's to.
        is_chain: never guess two tokens for one place.
    """

    def __init__(self, corpus: Corpus | None = None, *, is_chain: bool = False) -> None:
        self.sources: tuple[str, ...] = ("suffix",) if corpus is None else ("suffix", "corpus")
        self.weighs = frozenset(self.sources)
        self.corpus, self._is_chain = corpus, is_chain
        self._states: dict[int, _State] = {}
        self._acceptance = Acceptance(prior(), decay=0.98)
        self.experience = {"suffix": self._acceptance}
        self._saved = monotonic()

    @staticmethod
    def of(setting: Setting, argument: str) -> SuffixDrafter:
        """Make one for a setting; `argument` is the corpus file, created when there is something to keep.

        Raises:
            PacelineError: the file is no corpus of the target's tokenizer, or cannot be read.
        """
        is_chain = setting.draws == "chain"
        if not argument:
            return SuffixDrafter(is_chain=is_chain)
        corpus = Corpus.open(Path(argument), setting.target.tokenizer)
        drafter = SuffixDrafter(corpus, is_chain=is_chain)
        weakref.finalize(drafter, _save, corpus)
        return drafter

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Grow the tree of likeliest continuations of each sequence, within its budget and as far as it pays."""
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by kind, and read on."""
        state = self._states.get(view.id)
        if state is None:
            return
        if state.tree is not None and state.kinds is not None and state.usual is not None:
            for node, is_right in tested_nodes(state.tree, verified.tokens.tolist()):
                kind = int(state.kinds[node])
                self._acceptance.observe(kind, kept=is_right)
                state.tilt.observe(float(state.usual[kind]), kept=is_right)
        state.automaton.extend(verified.tokens)
        state.tree, state.view, state.committed = None, view, verified.tokens

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; its output stays in the corpus."""
        state = self._states.pop(sequence_id, None)
        if self.corpus is None or state is None or state.view is None or state.committed is None:
            return
        output = state.view.tokens[state.view.prompt_length :]
        text = np.concatenate([output, state.committed])
        if int(text.max()) < self.corpus.vocab:  # a model may have outputs that stand for no token
            self.corpus.add(text)
        if monotonic() - self._saved >= SAVED_EVERY:
            _save(self.corpus, now=False)
            self._saved = monotonic()

    def _propose(self, view: View, budget: Budget) -> Draft:
        state = self._states.get(view.id)
        if state is None:
            state = self._states[view.id] = _State(native.Automaton())
        state.automaton.follow(view.tokens)
        state.tree = None
        if min(budget.nodes, budget.depth) <= 0:
            return empty_draft(view)
        state.usual = self._acceptance.rates()
        (tokens, parents, kinds), (rates, values) = state.automaton.grow(
            [] if self.corpus is None else self.corpus.automata,
            state.tilt.moved(state.usual),
            budget.nodes,
            budget.depth,
            self._is_chain,
        )
        state.tree, state.kinds = TokenTree(tokens, parents), kinds
        count = 1 + best_prefix(values[1:].tolist(), budget.price)[0]
        source = np.zeros(len(kinds), np.int8) if self.corpus is None else (kinds >= KINDS // 2).astype(np.int8)
        return Draft(TokenTree(tokens[:count], parents[:count]), rates[:count], source[:count])


def prior() -> Probabilities:
    """Return float64 [KINDS]: how likely candidates are right before any was tested."""
    one = np.outer(OF_LENGTH, OF_SHARE)
    assert one.shape == (len(LENGTHS) + 1, SHARES), one.shape
    return np.concatenate([one, OF_CORPUS * one]).reshape(-1)


def _save(corpus: Corpus, *, now: bool = True) -> None:
    try:
        corpus.save(now=now)
    except (PacelineError, OSError) as error:  # only guesses are lost
        log.warning("the corpus could not be saved: %s", error)
