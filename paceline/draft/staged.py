"""A model draft that is itself drafted: what the text repeats is guessed first, the draft model checks it in a block.

The inner rule is the coupled one: the draft model draws its own token after every node and goes on where the guess
had drawn the same. So its guesses are those it would make alone, token for token, in fewer forwards (staged
speculation, Spector & Re 2308.04623; the inner look-up is prompt look-up, Saxena 2023).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from time import perf_counter

import numpy as np

from paceline.draft.base import Drafter, Setting, named, register
from paceline.draft.chance import draw_guess
from paceline.draft.reader import Reader
from paceline.draft.record import DepthRecord
from paceline.draft.translate import aligned, label_of
from paceline.errors import NumericalError, UsageError, VocabMismatch
from paceline.model.base import Model
from paceline.types import Budget, Draft, Draws, Floats, Ints, Probabilities, Spent, TokenTree, Verified, View

LONGEST, SHORTEST = 5, 2


def continuation(tokens: Ints, count: int) -> list[int]:
    """Return up to `count` tokens that followed the longest, then latest, earlier occurrence of the last few.

    Stateless, because the guesses it reads behind the text may be taken back.
    """
    if count <= 0:
        return []
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])
    best = ends[:0]
    for n in range(2, min(LONGEST, len(tokens) - 1) + 1):
        ends = ends[ends >= n - 1]
        ends = ends[tokens[ends - (n - 1)] == tokens[-n]]
        if not len(ends):
            break
        if n >= SHORTEST:
            best = ends
    if not len(best):
        return []
    start = int(best[-1]) + 1
    period = len(tokens) - start
    return [int(tokens[start + i % period]) for i in range(count)]


class StagedDrafter:
    """Drafts the chains that `ModelDrafter` would, several tokens a forward where the text repeats itself."""

    def __init__(
        self, model: Model, *, context: int, slots: int = 8, name: str = "staged", draws: Draws = "shared"
    ) -> None:
        self.name = name
        self.sources: tuple[str, ...] = (name,)
        self.spent: dict[str, Spent] = {}
        self.reader = Reader(model, context=context, slots=slots, name=name)
        self._draws = draws
        self._record = DepthRecord()
        self.experience = named(name, self._record.experience)

    def propose(self, views: Seq[View], budgets: Seq[Budget]) -> list[Draft]:
        """Draw a chain for each sequence, all sequences side by side, each forward checking a block of each."""
        started, steps = perf_counter(), 0
        lengths = [self._record.length(budget, self.name) for budget in budgets]
        pending: dict[int, Ints] = {}
        for i, view in enumerate(views):
            if lengths[i] and self.reader.has_room(view.id, len(view.tokens) + lengths[i]):
                pending[i] = self.reader.read(view.id, view.tokens)
        guesses: dict[int, list[int]] = {i: [] for i in pending}
        laws: dict[int, list[Probabilities]] = {i: [] for i in pending}
        while pending:
            blocks = {i: self._block(views[i], guesses[i], lengths[i]) for i in pending}
            trees = [TokenTree.chain([*pending[i].tolist(), *blocks[i]]) for i in pending]
            wanted = [len(block) + 1 for block in blocks.values()]
            logits = self.reader.forward([views[i].id for i in pending], trees, wanted)
            steps += 1
            ends = np.cumsum(wanted)
            for i, end, count in zip(list(pending), ends, wanted, strict=True):
                before = len(guesses[i])
                is_sound = self._follow(views[i], logits[end - count : end], blocks[i], guesses[i], laws[i])
                # All that was drawn but the last token was in the block, and is in the cache now.
                read = [*pending[i].tolist(), *guesses[i][before:-1]]
                self.reader.keep(views[i].id, range(len(read)), read)
                pending[i] = np.array(guesses[i][-1:], np.int32)
                if not is_sound or len(guesses[i]) >= lengths[i]:
                    del pending[i]
        self.spent = {self.name: Spent(steps, perf_counter() - started)} if steps else {}
        return self._record.drafts(views, guesses, None if self._draws == "shared" else laws)

    def observe(self, view: View, draft: Draft, verified: Verified) -> None:
        """Count what was right, by depth."""
        self._record.observe(draft, verified)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence."""
        self.reader.release(sequence_id)

    def _block(self, view: View, guesses: list[int], length: int) -> list[int]:
        """Return the inner guesses; the draft model's own token comes on top."""
        text = np.concatenate([view.tokens, np.array(guesses, np.int32)])
        return continuation(text, length - len(guesses) - 1)

    def _follow(
        self, view: View, logits: Floats, block: list[int], guesses: list[int], laws: list[Probabilities]
    ) -> bool:
        """Add the draft model's own tokens as far as the block has them, and one more; false if none can be drawn."""
        for row, inner in enumerate([*block, None]):
            try:
                token, drawn_from = draw_guess(logits[row], view, guesses, self._draws)
            except NumericalError:  # a broken draft guesses nothing; the target goes on alone
                return False
            guesses.append(token)
            laws += [] if drawn_from is None else [drawn_from]
            if token != inner:
                break
        return True


def _staged(setting: Setting, argument: str) -> Drafter:
    if not argument:
        raise UsageError("staged needs the model it drafts for, got none", hint="--draft staged:qwen2.5-coder-0.5b")
    loaded = setting.load(argument)
    draft = aligned(setting.target, loaded)
    if draft is None:
        raise VocabMismatch(
            f"a staged draft must share the target's vocabulary: `{loaded.name}` and `{setting.target.name}` differ",
            hint=f"--draft {argument} translates between the two",
        )
    context = min(draft.context, setting.target.context)
    name = f"staged {label_of(draft)}"
    return StagedDrafter(draft.model, context=context, slots=setting.config.slots, name=name, draws=setting.draws)


register("staged", _staged)
