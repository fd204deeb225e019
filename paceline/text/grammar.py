"""Masks for replies of a given form: a JSON schema, a regular expression, a Lark grammar.

llguidance reads the grammars and knows which tokens can follow; here it is asked at every node of a draft tree. A mask
is a function of what was written, that of a drafted path included, so that speculation does not change what is said.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.core.aliases import Ints
from paceline.core.request import Grammar
from paceline.errors import UsageError
from paceline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


def check_grammar(grammar: Grammar, tokenizer: Tokenizer) -> None:
    """Refuse a grammar that cannot be read.

    Raises:
        UsageError: it is none of its kind, or llguidance is not installed.
    """
    _matcher(grammar, tokenizer)


def mask_of(grammar: Grammar, tokenizer: Tokenizer) -> Mask:
    """Return the masks of one request; raises what `check_grammar` does."""
    return Mask(_matcher(grammar, tokenizer), tokenizer.vocab_size)


class Mask:
    """Follows one reply and its drafts: see `GrammarMask`. Not for two threads at once."""

    def __init__(self, matcher: LLMatcher, vocab: int) -> None:
        self._matcher, self._vocab = matcher, vocab
        self._read: list[int] = []  # what the matcher has consumed

    def allowed(self, written: Ints) -> npt.NDArray[np.bool_]:
        """Return the tokens that may follow; all of them behind a path that the grammar itself does not allow.

        No such path is ever accepted: its first token that is not allowed is not drawn.
        """
        if not self._follow(written.tolist()):
            return np.ones(self._vocab, np.bool_)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._vocab].astype(np.bool_)

    def _follow(self, written: Sequence[int]) -> bool:
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._read, written, strict=False)))
        if common < len(self._read):
            self._matcher.rollback(len(self._read) - common)
        rest = list(written[common:])
        count = self._matcher.try_consume_tokens(rest) if rest else 0
        self._read = [*written[:common], *rest[:count]]
        return count == len(rest)


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = min(tokenizer.eos_ids) if tokenizer.eos_id is None else tokenizer.eos_id
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = [token for token in range(tokenizer.vocab_size) if tokenizer.is_special(token)]
        self._encode = weakref.WeakMethod(tokenizer.encode)

    def __call__(self, text: str) -> list[int]:
        encode = self._encode()
        return [] if encode is None else encode(text, add_bos=False)


_known: weakref.WeakKeyDictionary[Tokenizer, LLTokenizer] = weakref.WeakKeyDictionary()


def _matcher(grammar: Grammar, tokenizer: Tokenizer) -> LLMatcher:
    library = _library()
    read = {
        "json_schema": library.LLMatcher.grammar_from_json_schema,
        "regex": library.LLMatcher.grammar_from_regex,
        "lark": library.LLMatcher.grammar_from_lark,
    }
    if tokenizer not in _known:
        if not tokenizer.eos_ids:
            raise UsageError("a grammar needs a token that ends the reply; this model's vocabulary has none")
        wrapped = library.TokenizerWrapper(_Vocabulary(tokenizer))
        _known[tokenizer] = library.LLTokenizer(wrapped, eos_token=sorted(tokenizer.eos_ids))
    try:
        matcher: LLMatcher = library.LLMatcher(_known[tokenizer], read[grammar.kind](grammar.text), log_level=0)
        wrong = matcher.get_error()
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise UsageError(
            f"grammar must be a {grammar.kind.replace('_', ' ')} that can be read, got `{grammar.text:.80}`: "
            f"{wrong.strip().splitlines()[0]}",
            hint="see what llguidance supports: paceline uses it to read schemas, expressions and Lark grammars",
        )
    return matcher


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise UsageError(
            "a reply of a given form needs llguidance, which is not installed", hint="pip install 'paceline[grammar]'"
        ) from error
    return llguidance
