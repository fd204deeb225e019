"""Whether a source may guess for a text: a credit in tokens that its losses draw on and its gains fill.

A round's net value is the tokens kept of the source's guesses, less the tokens that plain decoding makes in the seconds
of their rows and steps. A source without credit is closed. A small grant each round opens it again, so that even the
worst source loses only that share in the long run. A new text begins with the credit that the last ones had left, and
with a try at least.
(Budgeted exploration with a bounded loss; the bandits of BanditSpec 2505.15141 and TapOut 2511.02017 bound it in the
limit.)
"""

from __future__ import annotations

from collections.abc import Sequence

HOPE = 1.5  # tokens that a source may lose before it brings any
MOST = 6.0  # tokens of credit at most: what a source that turns bad may lose
TRY = 0.5  # least credit in a new text: two short guesses
SHARE = 0.006  # tokens that a closed source is granted a round
WORST = 2.0  # tokens that one round may lose: more is a stall


class Gate:
    """The credit of one source, by sequence."""

    def __init__(self) -> None:
        self._credit: dict[int, float] = {}
        self._left = HOPE  # mean credit of the sequences that ended last

    def keep(self, sequences: Sequence[int]) -> None:
        """Forget all sequences but these; new ones begin with the mean credit of those that ended."""
        ended = self._credit.keys() - set(sequences)
        if ended:
            self._left = sum(self._credit.pop(sequence) for sequence in ended) / len(ended)
        for sequence in sequences:
            self._credit.setdefault(sequence, min(max(self._left, TRY), MOST))

    def credit(self, sequence: int) -> float:
        """Return the tokens that the source may still lose for a sequence."""
        return self._credit.get(sequence, self._left)

    def is_open(self, sequence: int) -> bool:
        return self._credit.get(sequence, self._left) > 0

    def has_earned(self, sequence: int) -> bool:
        """Whether the source has lost neither with this text nor with the one before."""
        return self.credit(sequence) >= HOPE

    def grant(self) -> None:
        """Let a round pass: a closed sequence gains its grant."""
        for sequence, credit in self._credit.items():
            if credit <= 0:
                self._credit[sequence] = credit + SHARE

    def settle(self, sequence: int, net: float) -> bool:
        """Add a round's net tokens to a sequence's credit; negative for a loss.

        Returns:
            Whether this closed the gate for the last sequence that had it open.
        """
        if sequence not in self._credit:
            return False
        was_open = self.is_open(sequence)
        self._credit[sequence] = min(self._credit[sequence] + max(net, -WORST), MOST)
        return was_open and not any(map(self.is_open, self._credit))
