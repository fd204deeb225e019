"""What every way of verifying promises: walk a draft from its root and say what to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.core.aliases import Floats, Ints
from paceline.core.request import View
from paceline.core.tree import Draft, Draws, Verdict


class Verifier(Protocol):
    """Pure: the verdict follows from the draft, the target's logits and the sequence's key."""

    lossless: bool  # what is emitted has the target's distribution
    draws: Draws  # how drafters that draw must do so
    reproducible: bool  # a seed repeats whatever is drafted

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """Decide which nodes to keep.

        Args:
            draft: N nodes, the last committed token at its root.
            logits: float32 [N, V], the target's after each node.
            view: the sequence as it was before this round.
        """


def before_failure(tokens: Ints, kept: Sequence[int]) -> Verdict:
    """Return the verdict where nothing can be drawn behind the nodes `kept`: the last of them ends the round.

    Plain decoding would not ask there yet, or never if that token ends the reply. Else the next round does, and fails.
    """
    return Verdict(tuple(kept[:-1]), int(tokens[kept[-1]]))
