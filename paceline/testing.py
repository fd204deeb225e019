"""Stand-ins for a model, a tokenizer, a drafter and chance, small enough to prove things about.

Yours to test with as well: a drafter or verifier of your own is right if it passes what tests/distributions and
tests/parity ask of ours with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Floats, Ints, Probabilities
from paceline.core.batch import Batch, Forward
from paceline.core.request import View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft.base import Drafter, empty_draft
from paceline.formats.spec import ModelSpec
from paceline.kernels.ops import PAGE
from paceline.model.base import Capabilities
from paceline.model.cache import PagedCache

# ---- a model


class TokenStore:
    """What `TinyModel` remembers of each slot: the token itself, and the position it stood at."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.memory = np.full((pages * PAGE, 2), -1, np.int64)

    def copy_tokens(self, source: npt.NDArray[np.int64], to: npt.NDArray[np.int64]) -> None:
        for a, b in zip(source, to, strict=True):
            self.memory[b] = self.memory[a]

    def copy_page(self, source: int, to: int) -> None:
        self.memory[PAGE * to : PAGE * (to + 1)] = self.memory[PAGE * source : PAGE * (source + 1)]


class TinyModel:
    """A model whose logits are a table's row, chosen by a hash of the last `reach` tokens.

    Every token is read back through the cache, so a wrong slot, position or page gives other logits or an
    `AssertionError`. Equal contexts give equal logits to the last bit, in any batch.

    Args:
        reach: how many tokens back it looks; `None` is all of them.
        distribution: maps int32 [k], the last `reach` tokens, to logits [V], in place of the table.
    """

    capabilities = Capabilities(row_independent=True, trees=True)
    page_bytes = PAGE * 16

    def __init__(
        self,
        vocab: int = 16,
        *,
        context: int = 512,
        reach: int | None = 3,
        seed: int = 0,
        sharpness: float = 2.0,
        distribution: Callable[[Ints], npt.ArrayLike] | None = None,
    ) -> None:
        self.spec = ModelSpec(
            "tiny", 1, 1, 1, 1, 1, 1, vocab, context, 1e-6, "silu", False, (reach or 0,), (-1,), (), 1.0
        )
        self.reach, self.forwards = reach, 0
        chance = np.random.default_rng(seed)
        self._keys = chance.integers(1, 2**63, vocab, np.uint64)
        rows = 1021 if distribution is None else 0
        self._table = (sharpness * chance.standard_normal((rows, vocab))).astype(np.float32)
        self._powers = np.cumprod(np.full(context + 64, 0x9E3779B97F4A7C15, np.uint64))
        self._distribution = distribution

    def new_cache(self, tokens: int) -> PagedCache:
        return PagedCache(TokenStore(-(-tokens // PAGE)))

    def logits_after(self, tokens: Seq[int] | Ints) -> Floats:
        """Return the logits float32 [V] after these tokens, without a cache."""
        seen = np.asarray(tokens, np.int32)
        if self.reach is not None:
            seen = seen[max(len(seen) - self.reach, 0) :]
        if self._distribution is not None:
            return np.asarray(self._distribution(seen), np.float32)
        mixed = self._keys[seen] * self._powers[: len(seen)][::-1]
        hashed = int(mixed.sum(dtype=np.uint64)) >> 20
        return np.asarray(self._table[hashed % len(self._table)])

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Seq[int] = ()) -> Forward:
        """See `Model.forward`; there are no layers to tap."""
        assert not taps, taps
        store = cache.store
        assert isinstance(store, TokenStore), store
        self.forwards += 1
        wanted = {int(row): i for i, row in enumerate(batch.wanted)}
        logits = np.empty((len(wanted), self.spec.vocab), np.float32)
        for sequence, length in enumerate(batch.lengths.tolist()):
            start, end = int(batch.starts[sequence]), int(batch.starts[sequence + 1])
            table = batch.tables[sequence].astype(np.int64)
            places = np.arange(length + end - start)
            slots = table[places // PAGE] * PAGE + places % PAGE
            known = store.memory[slots[:length]]
            assert np.array_equal(known[:, 1], places[:length]), f"cached positions {known[:, 1].tolist()}"
            new = slots[length:]
            store.memory[new, 0], store.memory[new, 1] = batch.tokens[start:end], batch.positions[start:end]
            paths: list[list[int]] = []
            for node, parent in enumerate(batch.parents[start:end].tolist()):
                assert -1 <= parent < node, (parent, node)
                paths.append([*(paths[parent] if parent >= 0 else []), node])
                assert batch.positions[start + node] == length + len(paths[node]) - 1 < self.spec.context, (
                    node,
                    length,
                )
                assert 0 <= batch.tokens[start + node] < self.spec.vocab, batch.tokens[start + node]
                if start + node in wanted:
                    seen = np.concatenate([known[:, 0], store.memory[new[paths[node]], 0]])
                    logits[wanted[start + node]] = self.logits_after(seen)
        return Forward(logits)


# ---- a tokenizer


class ByteTokenizer:
    """Tokens that are bytes: the 256 single ones, or `pieces` of your own.

    Args:
        eos_ids: tokens that end a reply.
        special: tokens that have no text.
    """

    add_space_prefix = False
    add_bos = False
    bos_id: int | None = None

    def __init__(self, pieces: Seq[bytes] | None = None, *, eos_ids: Seq[int] = (), special: Seq[int] = ()) -> None:
        self.pieces = tuple(bytes([i]) for i in range(256)) if pieces is None else tuple(pieces)
        self.eos_ids, self._special = frozenset(eos_ids), frozenset(special)
        self._by_length = sorted(range(len(self.pieces)), key=lambda i: -len(self.pieces[i]))

    @staticmethod
    def letters(vocab: int, *, eos_ids: Seq[int] = ()) -> ByteTokenizer:
        """Return the tokenizer whose token i is the i-th letter from `a` on."""
        return ByteTokenizer([chr(97 + i).encode() for i in range(vocab)], eos_ids=eos_ids)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @property
    def eos_id(self) -> int | None:
        return min(self.eos_ids, default=None)

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def token_text(self, token: int) -> str:
        return self.pieces[token].decode("latin-1")

    def tokens_digest(self, limit: int | None = None) -> str:
        """Return what differs when any of the first `limit` pieces does."""
        return repr(self.pieces[:limit])

    def is_special(self, token: int) -> bool:
        return token in self._special

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool | None = None) -> list[int]:
        """Return the ids of a text, the longest piece first, control tokens never; there is no first token to add."""
        rest, ids = text.encode(), list[int]()
        while rest:
            found = next(
                (
                    i
                    for i in self._by_length
                    if i not in self._special and self.pieces[i] and rest.startswith(self.pieces[i])
                ),
                None,
            )
            assert found is not None, f"no piece begins {rest!r}"
            ids.append(found)
            rest = rest[len(self.pieces[found]) :]
        return ids

    def decode(self, ids: Seq[int]) -> str:
        """Return the text of ids; bytes that are no text become U+FFFD."""
        return b"".join(self.pieces[i] for i in ids if i not in self._special).decode(errors="replace")


# ---- drafters

Script = Callable[[list[int], Budget, np.random.Generator], TokenTree]


class ScriptedDrafter(Drafter):
    """Drafts by a script that knows the right continuation, so that it can be right or wrong on purpose.

    Args:
        script: maps (right tokens, budget, chance) to a tree; its root's token is filled in here.
        answers: by request id, prompt and plain output.
    """

    sources = ("scripted",)

    def __init__(self, script: Script, answers: Mapping[int, Seq[int]], *, seed: int = 0) -> None:
        self._script, self._answers, self._seed = script, answers, seed
        self.released: list[int] = []
        self.verdicts: list[tuple[int, Draft, Verified]] = []

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        return [self._propose(view, budget) for view, budget in zip(views, budgets, strict=True)]

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        self.verdicts.append((view.id, draft, verified))

    def release(self, sequence_id: int) -> None:
        self.released.append(sequence_id)

    def _propose(self, view: View, budget: Budget) -> Draft:
        right = [int(token) for token in self._answers[view.id][len(view.tokens) :][: budget.depth]]
        if budget.nodes == 0 or not right:
            return empty_draft(view)
        chance = np.random.default_rng((self._seed, view.id, len(view.tokens)))
        tree = self._script(right, budget, chance)
        tree.tokens[0] = view.tokens[-1]
        count = len(tree)
        assert count - 1 <= budget.nodes, (count, budget)
        assert max(tree.depths()) <= budget.depth, (tree, budget)
        return Draft(tree, np.full(count, 0.5, np.float32), np.zeros(count, np.int8))


def oracle(right: list[int], budget: Budget, chance: np.random.Generator) -> TokenTree:
    """Replay the plain output."""
    return TokenTree.chain([0, *right[: budget.nodes]])


def liar(vocab: int) -> Script:
    """Return the script that is wrong at every token."""
    return half_liar(vocab, 0)


def half_liar(vocab: int, right_for: int) -> Script:
    """Return the script that is right for `right_for` tokens, then wrong."""

    def script(right: list[int], budget: Budget, chance: np.random.Generator) -> TokenTree:
        tokens = right[: budget.nodes]
        wrong = [(token + 1 + int(chance.integers(vocab - 1))) % vocab for token in tokens[right_for:]]
        return TokenTree.chain([0, *tokens[:right_for], *wrong])

    return script


def gappy(inner: Script = oracle) -> Script:
    """Return the script that drafts by `inner` in every other round and nothing in between."""
    rounds = [0]

    def script(right: list[int], budget: Budget, chance: np.random.Generator) -> TokenTree:
        rounds[0] += 1
        return inner(right, budget, chance) if rounds[0] % 2 else TokenTree.chain([0])

    return script


def bush(vocab: int, *, right_for: int) -> Script:
    """Return the script that grows random trees, twins among siblings included.

    Somewhere in each is a path of `right_for` right tokens, as far as the budget goes; with 0, no child of the root
    is right.
    """

    def script(right: list[int], budget: Budget, chance: np.random.Generator) -> TokenTree:
        count = budget.nodes
        kept = right[: min(right_for, count)]
        places = sorted(chance.choice(np.arange(1, count + 1), len(kept), replace=False).tolist())
        tokens, parents, depths, tip = [0], [-1], [0], 0
        for node in range(1, count + 1):
            if node in places:
                parent, token = tip, kept[places.index(node)]
                tip = node
            else:
                parent = int(chance.choice([i for i, depth in enumerate(depths) if depth < budget.depth]))
                token = int(chance.integers(vocab))
                if right_for == 0 and parent == 0 and token == right[0]:
                    token = (token + 1) % vocab
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
        return TokenTree(np.array(tokens, np.int32), np.array(parents, np.int32))

    return script


# ---- chance


@dataclass(slots=True)
class Outcome:
    """One branch of chance: answers by its script and multiplies up how likely that was."""

    script: list[int]
    weight: float = 1.0
    asked: list[int] = field(default_factory=list)  # how many answers each question had

    def accept(self, probability: float) -> bool:
        """Answer yes with `probability`."""
        return self.draw(np.array([1 - probability, probability])) == 1

    def draw(self, distribution: Probabilities, depth: int = 0) -> int:
        """Return an index drawn by float64 [n] probabilities; impossible ones never come. See `Rng.draw`."""
        possible = np.flatnonzero(distribution > 0)
        turn = len(self.asked)
        if turn == len(self.script):
            self.script.append(0)
        self.asked.append(len(possible))
        chosen = int(possible[self.script[turn]])
        self.weight *= float(distribution[chosen])
        return chosen


class EveryOutcome:
    """Iterate over rng that together play every branch once: what they do, times their `weight`, is the exact
    distribution.

    ```python
    distribution = np.zeros(4)
    for rng in EveryOutcome():
        token = play(rng)
        distribution[token] += rng.weight
    ```
    """

    def __iter__(self) -> Iterator[Outcome]:
        script: list[int] = []
        while True:
            rng = Outcome(script)
            yield rng
            script, asked = rng.script[: len(rng.asked)], rng.asked
            while script and script[-1] + 1 == asked[len(script) - 1]:
                script.pop()
            if not script:
                return
            script = [*script[:-1], script[-1] + 1]
