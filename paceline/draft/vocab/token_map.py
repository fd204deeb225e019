"""How the tokens of two vocabularies stand to each other, judged by the bytes they stand for.

(Timor et al. 2502.05202, token-level intersection.) Ids are never compared by number alone: an accepted id that means
another text would be another word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from paceline.core.aliases import Ints
from paceline.draft.base import Loaded
from paceline.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class TokenMap:
    """One-to-one pairs of tokens of equal bytes, or of one role.

    `target`, `draft` int32 [I]: the pairs. `overlap`: the share of the target's text tokens that have a partner.
    """

    target: Ints
    draft: Ints
    partners: Ints  # int32 [V target], -1 where there is none
    overlap: float
    speller: Speller
    pieces: Tokenizer  # the target's

    def spell(self, token: int) -> list[int]:
        """Return the draft ids that stand for a target id; none for a control token the draft does not know."""
        partner = int(self.partners[token])
        if partner >= 0:
            return [partner]
        known = token < self.pieces.vocab_size and not self.pieces.is_special(token)
        return self.speller.spell(self.pieces.token_bytes(token)) if known else []


class Speller:
    """Spells bytes in the tokens of a vocabulary, the longest token first. Needs no text and no context."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._ids = text_tokens(tokenizer)
        self._longest = max(map(len, self._ids), default=0)

    def spell(self, text: bytes) -> list[int]:
        """Return ids that stand for `text`; bytes that no token begins with are left out."""
        ids, start = list[int](), 0
        while start < len(text):
            for end in range(min(len(text), start + self._longest), start, -1):
                token = self._ids.get(text[start:end])
                if token is not None:
                    ids.append(token)
                    start = end
                    break
            else:
                start += 1
        return ids


def text_tokens(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Return the token of each text; of several with the same bytes the first that is no byte fallback."""
    found: dict[bytes, int] = {}
    for token in range(tokenizer.vocab_size):
        piece = tokenizer.token_bytes(token)
        if not piece or tokenizer.is_special(token):
            continue
        known = found.get(piece)
        if known is None or (len(piece) == 1 and _BYTE.fullmatch(tokenizer.token_text(known))):
            found[piece] = token
    return found


def map_tokens(target: Tokenizer, draft: Tokenizer, *, vocab: int = 0) -> TokenMap:
    """Pair the tokens of two vocabularies; `vocab` is the number of ids the target model has, names or not."""
    ours, theirs = text_tokens(target), text_tokens(draft)
    pairs = [(token, theirs[piece]) for piece, token in ours.items() if piece in theirs]
    overlap = len(pairs) / max(len(ours), 1)
    pairs += roles(target, draft)
    partners = np.full(max(vocab, target.vocab_size), -1, np.int32)
    table = np.array(pairs, np.int32).reshape(-1, 2)
    partners[table[:, 0]] = table[:, 1]
    return TokenMap(table[:, 0].copy(), table[:, 1].copy(), partners, overlap, Speller(draft), target)


def roles(target: Tokenizer, draft: Tokenizer) -> list[tuple[int, int]]:
    """Pair control tokens of one name, and the two ends of a reply."""
    named = {draft.token_bytes(i): i for i in range(draft.vocab_size) if draft.is_special(i) and draft.token_bytes(i)}
    pairs = {
        i: named[target.token_bytes(i)]
        for i in range(target.vocab_size)
        if target.is_special(i) and target.token_bytes(i) in named
    }
    ours, theirs = target.eos_id, draft.eos_id
    if ours is None or theirs is None or ours in pairs or theirs in pairs.values():
        return list(pairs.items())
    if target.is_special(ours) and draft.is_special(theirs):
        pairs[ours] = theirs
    return list(pairs.items())


def overlap(target: Tokenizer, draft: Tokenizer) -> float:
    """Return how many per cent of the target's text tokens the draft's vocabulary has too."""
    return 100 * map_tokens(target, draft).overlap


def shared_ids(target: Loaded, draft: Loaded) -> int:
    """Return how many ids from 0 on mean the same in both models, 0 if they do not agree as far as both have tokens.

    Models of one family may pad one vocabulary to different sizes.
    """
    a, b = target.tokenizer, draft.tokenizer
    shared = min(a.vocab_size, b.vocab_size)
    return shared if a.tokens_digest(shared) == b.tokens_digest(shared) else 0


def first_difference(target: Loaded, draft: Loaded) -> str:
    """Describe the first difference of two vocabularies, for an error message."""
    a, b = target.tokenizer, draft.tokenizer
    shared = min(a.vocab_size, b.vocab_size)
    differing = [i for i in range(shared) if a.token_bytes(i) != b.token_bytes(i)]
    if not differing:
        return "the shared ids agree"
    first = differing[0]
    return f"{len(differing)} ids differ, first `{first}`: {a.token_text(first)!r} against {b.token_text(first)!r}"
