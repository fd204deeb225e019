"""A draft model's distribution in the target's ids, whatever its own are.

Its context is the target's text spelt in its own tokens, token by token: nothing already read ever changes. Tokens that
the target does not have are left out of its distribution, which is renormalised over the rest (TLI, Timor et al.
2502.05202).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from paceline.core.aliases import Floats, Ints
from paceline.core.request import View
from paceline.core.tree import TokenTree
from paceline.draft.model.state import TextState
from paceline.draft.vocab.token_map import TokenMap
from paceline.model.base import Model


class TranslatedModel:
    """One draft model's distribution of the next token.

    Args:
        words: how its tokens stand to the target's; `None` if ids mean the same.
        vocab: the target's number of ids.
        first: tokens at the beginning of its texts, before any of the target's.
        outputs: the draft's own ids worth computing, see `TextState`.
    """

    def __init__(
        self,
        model: Model,
        *,
        vocab: int,
        context: int,
        slots: int,
        name: str,
        words: TokenMap | None = None,
        first: int | None = None,
        outputs: Ints | None = None,
    ) -> None:
        assert words is not None or model.spec.vocab == vocab, (model.spec.vocab, vocab)
        self.name, self.words = name, words
        self.reader = TextState(model, context=context, slots=slots, name=name, outputs=outputs)
        self._vocab = vocab
        self._first = [] if first is None else [first]
        self._spelt: dict[int, tuple[Ints, Ints]] = {}  # of each sequence: the target's tokens, and the draft's
        self._pending: dict[int, Ints] = {}

    def unread(self, view: View) -> int:
        """Return how many tokens of a text would have to be read first."""
        return self.reader.lag(view.id, self.ids(view), view.cache_salt)

    def room(self, view: View) -> int:
        """Return how many guesses there is room for."""
        return self.reader.room(view.id, self.ids(view))

    def begin(self, view: View, count: int) -> bool:
        """Read a text, ready for `count` guesses; return whether there is room for them."""
        ids = self.ids(view)
        rest = self.reader.read(view.id, ids, count, salt=view.cache_salt) if len(ids) else None
        if rest is None:
            return False
        self._pending[view.id] = rest
        return True

    def logits(self, views: Seq[View], guesses: Seq[list[int]]) -> Floats:
        """Return float32 [B, V target] after each text and its guesses so far, all but the latest forwarded before."""
        feeds = [
            np.asarray(self.spell(path[-1]), np.int32) if path else self._pending.pop(view.id)
            for view, path in zip(views, guesses, strict=True)
        ]
        names = [view.id for view in views]
        said = self.reader.forward(names, [TokenTree.chain(feed) for feed in feeds], [1] * len(feeds))
        for name, feed in zip(names, feeds, strict=True):
            self.reader.keep(name, range(len(feed)), feed)
        if self.words is None:
            return said
        heard = np.full((len(said), self._vocab), -np.inf, np.float32)
        heard[:, self.words.target] = said[:, self.words.draft]
        return heard

    def spell(self, token: int) -> list[int]:
        """Return the ids that stand for a target's token, at least one."""
        return [token] if self.words is None else self.words.spell(token) or [0]

    def ids(self, view: View) -> Ints:
        """Return a text in this model's ids."""
        if self.words is None:
            return view.tokens
        seen, ids = self._spelt.get(view.id, (view.tokens[:0], np.array(self._first, np.int32)))
        if not np.array_equal(seen, view.tokens[: len(seen)]):
            seen, ids = view.tokens[:0], np.array(self._first, np.int32)
        new = view.tokens[len(seen) :]
        if not len(new):
            return ids
        partners = self.words.partners[new]
        if (partners < 0).any():
            spelt = [id for token in new.tolist() for id in self.words.spell(token)]
            partners = np.array(spelt, np.int32)
        ids = np.concatenate([ids, partners])
        self._spelt[view.id] = view.tokens.copy(), ids
        return ids

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self.reader.release(sequence_id)
        self._spelt.pop(sequence_id, None)
        self._pending.pop(sequence_id, None)
