"""A model draft that is itself drafted: a look-up guesses first, and the draft model checks its guesses in a block.

The inner rule is the coupled one: the draft model draws its own token after every node and goes on where the guess
had drawn the same. So its guesses are those it would make alone, token for token, in fewer forwards (staged
speculation, Spector & Re 2308.04623). The look-up reads the model's draws as if they were committed, and forgets a
text that is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace
from time import perf_counter

import numpy as np

from paceline.core.aliases import Floats, Ints, Probabilities
from paceline.core.request import View
from paceline.core.round import Budget, Spent, spent_on
from paceline.core.tree import Draft, Draws, TokenTree, Verified
from paceline.draft.base import Drafter, Setting, experience_of, forget_texts, named
from paceline.draft.lengths import DepthRecord
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.proposal import draw_guess
from paceline.draft.model.state import TextState
from paceline.draft.model.token_frequency import outputs_for
from paceline.draft.vocab.pairing import aligned, label_of
from paceline.errors import NumericalError, VocabMismatch
from paceline.model.base import Model


class StagedDrafter(Drafter):
    """Drafts the chains that `ModelDrafter` would, several tokens a forward where the text repeats itself.

    Args:
        outputs: see `TextState`.
        inner: drafts chains for the model; `NgramDrafter` if none is given.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int,
        slots: int = 8,
        name: str = "staged",
        draws: Draws = "shared",
        outputs: Ints | None = None,
        inner: Drafter | None = None,
    ) -> None:
        self.name = name
        self.sources: tuple[str, ...] = (name,)
        self.spent: dict[str, Spent] = {}
        self.reader = TextState(model, context=context, slots=slots, name=name, outputs=outputs)
        self.inner: Drafter = inner or NgramDrafter()
        self._draws = draws
        self._record = DepthRecord()
        self.experience = named(name, {**self._record.experience, **experience_of(self.inner)})
        self._seen: dict[int, Ints] = {}  # the text that `inner` has read, by sequence

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Draw a chain for each sequence, all sequences side by side, each forward checking a block of each."""
        started, before, steps = perf_counter(), self.reader.tokens_read, 0
        self.reader.allow(budgets)
        rooms = [self.reader.room(view.id, view.tokens) for view in views]
        lengths = [
            min(self._record.length(budget, self.name), most) for budget, most in zip(budgets, rooms, strict=True)
        ]
        pending: dict[int, Ints] = {}
        for i, view in enumerate(views):
            rest = None
            if lengths[i]:
                rest = self.reader.read(view.id, view.tokens, lengths[i], salt=view.cache_salt)
            if rest is not None:
                pending[i] = rest
        guesses: dict[int, list[int]] = {i: [] for i in pending}
        distributions: dict[int, list[Probabilities]] = {i: [] for i in pending}
        while pending:
            texts = [self._text(views[i], guesses[i]) for i in pending]
            counts = [lengths[i] - len(guesses[i]) - 1 for i in pending]  # the model's own token comes on top
            blocks = self.inner.propose(texts, [Budget(count, count) for count in counts])
            trees = [
                TokenTree.chain([*pending[i].tolist(), *block.tree.tokens[1:].tolist()])
                for i, block in zip(pending, blocks, strict=True)
            ]
            wanted = [len(block.tree) for block in blocks]
            logits = self.reader.forward([views[i].id for i in pending], trees, wanted)
            steps += 1
            ends = np.cumsum(wanted)
            for i, text, block, end in zip(list(pending), texts, blocks, ends, strict=True):
                known, rows = len(guesses[i]), logits[end - len(block.tree) : end]
                is_sound = self._follow(views[i], rows, block.tree, guesses[i], distributions[i])
                drawn = np.array(guesses[i][known:], np.int32)
                self.inner.observe(text, block, Verified(block.tree, tuple(range(1, len(drawn))), drawn, rows))
                self._seen[text.id] = np.concatenate([text.tokens, drawn])
                # All that was drawn but the last token was in the block, and is in the cache now.
                read = [*pending[i].tolist(), *drawn[:-1].tolist()]
                self.reader.keep(views[i].id, range(len(read)), read)
                pending[i] = drawn[-1:]
                if not is_sound or len(guesses[i]) >= lengths[i]:
                    del pending[i]
        self.spent = spent_on(self.name, steps, perf_counter() - started, self.reader.tokens_read - before)
        return self._record.drafts(views, guesses, None if self._draws == "shared" else distributions)

    def check(self) -> None:
        """See `Drafter.check`."""
        self.reader.cache.check()

    def unread(self, views: Seq[View]) -> dict[str, Seq[int]]:
        """See `Drafter.unread`."""
        return {self.name: [self.reader.lag(view.id, view.tokens, view.cache_salt) for view in views]}

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by depth."""
        self._record.observe(draft, verified)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self.reader.release(sequence_id)
        self.inner.release(sequence_id)
        self._seen.pop(sequence_id, None)

    def forget(self) -> None:
        """See `Drafter.forget`."""
        forget_texts(self.inner)

    def _text(self, view: View, guesses: list[int]) -> View:
        """Return the text that the inner drafter continues; it forgets a text that is no beginning of that."""
        tokens = np.concatenate([view.tokens, np.array(guesses, np.int32)])
        seen = self._seen.get(view.id, tokens[:0])
        if not np.array_equal(seen, tokens[: len(seen)]):
            self.inner.release(view.id)
        return replace(view, tokens=tokens)

    def _follow(
        self, view: View, logits: Floats, block: TokenTree, guesses: list[int], distributions: list[Probabilities]
    ) -> bool:
        """Add the draft model's own tokens as far as the block has them, and one more; false if none can be drawn."""
        for row, inner in enumerate([*block.tokens[1:].tolist(), None]):
            try:
                token, drawn_from = draw_guess(logits[row], view, guesses, self._draws)
            except NumericalError:  # a broken draft guesses nothing; the target goes on alone
                return False
            guesses.append(token)
            distributions += [] if drawn_from is None else [drawn_from]
            if token != inner:
                break
        return True


def make_staged(setting: Setting, argument: str) -> Drafter:
    loaded = setting.load(argument)
    draft = aligned(setting.target, loaded)
    if draft is None:
        raise VocabMismatch(
            f"a staged draft must share the target's vocabulary: `{loaded.name}` and `{setting.target.name}` differ",
            hint=f"--draft {argument} translates between the two",
        )
    context = min(draft.context, setting.target.context)
    name = f"staged {label_of(draft.name)}"
    return StagedDrafter(
        draft.model,
        context=context,
        slots=setting.config.slots,
        name=name,
        draws=setting.draws,
        outputs=outputs_for(draft, setting.config.draft_head),
    )
