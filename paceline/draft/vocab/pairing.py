"""A draft model for a target: directly, or through one of two translations if their vocabularies differ.

One vocabulary: `ModelDrafter`. The same but for its padding: the same, over the ids both have. Most of the target's
tokens in the draft's vocabulary as well, under whatever ids: token by token (TLI). Else: by way of text (SLEM).
(Timor et al. 2502.05202.)
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from paceline.draft.base import Drafter, Loaded, Setting
from paceline.draft.compose.mixture import MixtureDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.model.token_frequency import outputs_for
from paceline.draft.vocab.padded import PaddedModel
from paceline.draft.vocab.retokenise import RetokenisingDrafter
from paceline.draft.vocab.token_map import TokenMap, first_difference, map_tokens, shared_ids
from paceline.draft.vocab.translated import TranslatedModel
from paceline.errors import VocabMismatch

ENOUGH = 0.75  # of the target's tokens, for guessing token by token

log = logging.getLogger(__name__)


def label_of(source: str) -> str:
    """Return the source name of a draft model, from the name that the user gave."""
    return Path(source).stem if source.endswith(".gguf") else Path(source).name


def aligned(target: Loaded, draft: Loaded) -> Loaded | None:
    """Return a draft with the target's ids, where both vocabularies have them; `None` if the ids mean other texts."""
    shared, vocab = shared_ids(target, draft), target.model.spec.vocab
    if not shared:
        return None
    if draft.model.spec.vocab == vocab and shared >= vocab:
        return draft
    return replace(draft, model=PaddedModel(draft.model, vocab=vocab, shared=shared))


def drafter_for(setting: Setting, draft: Loaded) -> Drafter:
    """Return the drafter with which `draft` guesses for the setting's target.

    Raises:
        VocabMismatch: the two have no text in common.
    """
    target, slots = setting.target, setting.config.slots
    same = aligned(target, draft)
    if same is not None:
        context = min(draft.context, target.context)
        return ModelDrafter(
            same.model,
            context=context,
            slots=slots,
            name=label_of(draft.name),
            outputs=outputs_for(same, setting.config.draft_head),
            draws=setting.draws,
        )
    words = map_tokens(target.tokenizer, draft.tokenizer, vocab=target.model.spec.vocab)
    through = "tli" if words.overlap >= ENOUGH else "slem"
    _tell(target, draft, words, through)
    name = f"{label_of(draft.name)} ({through})"
    if through == "slem":
        outputs = outputs_for(draft, setting.config.draft_head)
        return RetokenisingDrafter(target, draft, slots=slots, name=name, outputs=outputs)
    return MixtureDrafter([_voice(setting, draft, words)], draws=setting.draws, name=name)


def voice_for(setting: Setting, draft: Loaded) -> TranslatedModel:
    """Return a draft model's voice, in the target's ids.

    Raises:
        VocabMismatch: too few of the target's tokens are in its vocabulary for a distribution over them.
    """
    target = setting.target
    same = aligned(target, draft)
    if same is not None:
        return _voice(setting, same, None)
    words = map_tokens(target.tokenizer, draft.tokenizer, vocab=target.model.spec.vocab)
    if words.overlap < ENOUGH:
        raise VocabMismatch(
            f"a member of an ensemble must have {100 * ENOUGH:.0f} % of the target's tokens in its vocabulary; "
            f"`{draft.name}` has {100 * words.overlap:.0f} % of those of `{target.name}`",
            hint="--draft branches:… takes models of any vocabulary",
        )
    _tell(target, draft, words, "tli")
    return _voice(setting, draft, words)


def _voice(setting: Setting, draft: Loaded, words: TokenMap | None) -> TranslatedModel:
    first = draft.tokenizer.bos_id if words is not None and draft.tokenizer.add_bos else None
    return TranslatedModel(
        draft.model,
        vocab=setting.target.model.spec.vocab,
        context=draft.context,
        slots=setting.config.slots,
        name=draft.name,
        words=words,
        first=first,
        outputs=outputs_for(draft, setting.config.draft_head),
    )


def _tell(target: Loaded, draft: Loaded, words: TokenMap, through: str) -> None:
    if not words.overlap:
        raise VocabMismatch(
            f"draft `{draft.name}` and target `{target.name}` must have tokens of the same text; "
            f"{first_difference(target, draft)}",
            hint="choose a smaller model of the target's own family, or --draft ngram, which needs no model",
        )
    log.info(
        "draft `%s` and target `%s` differ in vocabulary (%s); %.0f %% of the target's tokens are in both: %s",
        draft.name,
        target.name,
        first_difference(target, draft),
        100 * words.overlap,
        {"tli": "guesses are translated token by token", "slem": "guesses go by way of text"}[through],
    )
