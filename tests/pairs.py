"""Pairs of tiny models whose vocabularies differ on purpose."""

import numpy as np

from paceline.config import LLMConfig
from paceline.draft.base import Loaded, Setting
from paceline.testing import ByteTokenizer, TinyModel

LETTERS = [bytes([97 + i]) for i in range(16)]


def setting_of(target, drafts=(), draws="shared", slots=8):
    """A setting that loads the given drafts by their names."""
    by_name = {draft.name: draft for draft in drafts}
    return Setting(target, LLMConfig(slots=slots), lambda source, quant=None: by_name[source], draws)


def loaded(name, model, pieces=LETTERS, **settings):
    return Loaded(name, model, ByteTokenizer(pieces, **settings), model.spec.context)


def target_of(seed=0, **settings):
    return loaded("big", TinyModel(16, reach=4, seed=seed, **settings))


def permuted(target, seed=1, name="small"):
    """The same model under other ids, and its tokenizer with them."""
    vocab = target.model.spec.vocab
    order = np.random.default_rng(seed).permutation(vocab)  # draft id i is the target's order[i]
    model = TinyModel(
        vocab, reach=4, context=target.context, distribution=lambda seen: target.model.logits_after(order[seen])[order]
    )
    return loaded(name, model, [target.tokenizer.pieces[i] for i in order])


def overlapping(name="small", seed=5, vocab=40, **settings):
    """An unrelated model with 13 of the 16 letters, and with words of its own that spell the others' bytes too."""
    words = [a + b for a in LETTERS[:6] for b in LETTERS[:5]][: vocab - 13]
    pieces = [*LETTERS[:7], *words, *LETTERS[7:13]]
    return loaded(name, TinyModel(vocab, reach=3, seed=seed, **settings), pieces)


VERSE = b"lorem ipsum dolor sit amet consectetur "


def singer(name, pieces, context=1024):
    """A model of any tokenizer that goes on with the verse, by how much text it has read; greedy and sure."""
    tokenizer = ByteTokenizer(pieces)

    def distribution(seen):
        at = sum(len(pieces[token]) for token in seen) % len(VERSE)
        logits = np.zeros(len(pieces), np.float32)
        logits[tokenizer.encode((VERSE[at:] + VERSE).decode())[0]] = 50
        return logits

    return Loaded(
        name, TinyModel(len(pieces), reach=None, context=context, distribution=distribution), tokenizer, context
    )


def singers():
    """Two models that write the same verse in tokens that hardly overlap."""
    letters = [bytes([byte]) for byte in sorted(set(VERSE))]
    syllables = [b"lo", b"rem", b" ip", b"sum ", b"dol", b"or", b" sit", b" am", b"et", b" con", b"sec", b"tet", b"ur "]
    trios = [VERSE[i : i + 3] for i in range(1, len(VERSE) - 3, 5)]
    return singer("big", [*syllables, *letters, *[s + b"x" for s in syllables], b"x"]), singer(
        "small", [*letters, b"x", *trios]
    )
