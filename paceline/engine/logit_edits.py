"""A request's edits of the logits, its words turned into the tokenizer's ids."""

from __future__ import annotations

from paceline.core.request import Edits, SamplingParams
from paceline.text.tokenizer import Tokenizer

_ANCHOR = "\n"  # no token reaches over a line's end into the word after it


def edits_of(params: SamplingParams, tokenizer: Tokenizer) -> Edits:
    """Resolve a request's settings, once for its whole life."""
    banned = {tuple(ids): None for word in params.bad_words for ids in spellings(word, tokenizer)}
    return Edits.of(params, list(banned))


def spellings(word: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokenizer's ids of a word at the start of a line and after a space, each once."""
    bare = word.lstrip(" ") or word
    found: list[list[int]] = []
    for text in (bare, " " + bare, word):
        ids = _inside(text, tokenizer)
        if ids and ids not in found:
            found.append(ids)
    return found


def _inside(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text that does not begin the prompt: without a first token or a space of the tokenizer's."""
    if not tokenizer.add_space_prefix:
        return tokenizer.encode(text, add_bos=False)
    before = tokenizer.encode(_ANCHOR, add_bos=False)
    whole = tokenizer.encode(_ANCHOR + text, add_bos=False)
    return whole[len(before) :] if whole[: len(before)] == before else tokenizer.encode(text, add_bos=False)
