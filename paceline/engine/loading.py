"""From names to a loaded target and drafter, with the refusals a wrong pair deserves."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paceline.draft.ngram  # noqa: F401  (registers its name)
from paceline.config import LLMConfig
from paceline.control.base import Controller
from paceline.control.fixed import FixedController
from paceline.draft.base import Drafter, Loaded, Setting, lookup, names
from paceline.draft.frequent import ranked
from paceline.draft.model import ModelDrafter
from paceline.engine.progress import reading
from paceline.errors import ModelNotFound, PacelineError, UsageError, VocabMismatch
from paceline.model.files import ModelFile, open_model
from paceline.model.native import NativeModel
from paceline.model.sources import known_models, models_folder, resolve
from paceline.tokenizer import Tokenizer
from paceline.types import Ints
from paceline.verify.base import Verifier
from paceline.verify.coupled import CoupledVerifier

DEFAULT_CONTEXT = 8192
WORTH_CUTTING = 2  # a vocabulary this many times the head asked for
VERIFIERS: dict[str, Callable[[], Verifier]] = {"coupled": CoupledVerifier}
CONTROLLERS: dict[str, Callable[[int], Controller]] = {"fixed": FixedController}


def load_target(config: LLMConfig, pool: Any, *, progress: bool) -> Loaded:
    """Find, open, check and pack the target."""
    return load(config.model, pool, quant=config.quant, context=config.context, progress=progress)


def load(source: str, pool: Any, *, quant: str, context: int | None, progress: bool) -> Loaded:
    """Load a model from a name or path.

    Raises:
        PacelineError: it cannot be found, is not sound, is not supported, or cannot read `context` tokens.
    """
    path = resolve(source, progress=progress)
    file = open_model(path)
    try:
        tokenizer = read_tokenizer(file)
        if context is not None and context > file.spec.context:
            raise UsageError(
                f"`{source}` reads up to {file.spec.context} tokens, asked for a context of `{context}`",
                hint=f"use --context {file.spec.context} or less",
            )
        with reading(path.name, file.nbytes, progress) as report:
            model = NativeModel(file, pool, quant=quant, progress=report)
    finally:
        file.close()
    return Loaded(source, model, tokenizer, context or min(file.spec.context, DEFAULT_CONTEXT))


def read_tokenizer(file: ModelFile) -> Tokenizer:
    """Build the tokenizer that came with a model."""
    return Tokenizer.from_file(file.path) if file.path.is_dir() else Tokenizer.from_gguf(file.metadata)


def load_drafter(config: LLMConfig, target: Loaded, pool: Any, *, progress: bool) -> Drafter:
    """Return the drafter that `config.draft` names: a registered one, or a model that shares the target's vocabulary.

    Raises:
        UsageError: no drafter and no model goes by that name.
        VocabMismatch: the model's tokens are not the target's.
    """
    name = config.draft
    if config.draft_tokens == 0:
        name = "off"
    if "," in name:
        raise UsageError(f"one drafter at a time for now, got `{name}`", hint="mixing drafters comes with --draft auto")

    def load_draft(source: str) -> Loaded:
        return load(source, pool, quant=config.draft_quant, context=None, progress=progress)

    setting = Setting(target, config, load_draft, VERIFIERS[config.verify]().draws)
    base, _, argument = name.partition(":")
    known = lookup(base)
    if known is not None:
        return known(setting, argument)
    try:
        draft = load_draft(name)
    except PacelineError as error:
        error.args = (f"draft model `{name}`: {error}",)
        known_names = (
            [*names(), *(record.name for record in known_models())] if isinstance(error, ModelNotFound) else []
        )
        if near := difflib.get_close_matches(name.lower(), known_names, n=1):
            error.hint = f"did you mean `{near[0]}`? drafters: {', '.join(names())}; or a smaller model, as for --model"
        raise
    check_vocabularies(target, draft)
    label = Path(name).stem if name.endswith(".gguf") else Path(name).name
    return ModelDrafter(
        draft.model,
        context=min(draft.context, target.context),
        slots=config.slots,
        name=label,
        outputs=frequent_outputs(draft, config.draft_head),
        draws=setting.draws,
    )


def frequent_outputs(draft: Loaded, count: int) -> Ints | None:
    """Return the `count` tokens most worth guessing, int32 [count]; `None` if all are, or nearly."""
    vocab = draft.model.spec.vocab
    if count == 0 or vocab < WORTH_CUTTING * count or not isinstance(draft.model, NativeModel):
        return None
    return ranked(draft.tokenizer, vocab, models_folder().parent / "ranks")[:count]


def check_vocabularies(target: Loaded, draft: Loaded) -> None:
    """Refuse a draft whose ids mean other strings: every accepted token would be another word."""
    a, b = target.tokenizer, draft.tokenizer
    shared = min(a.vocab_size, b.vocab_size)
    if a.tokens_digest(shared) == b.tokens_digest(shared) and target.model.spec.vocab == draft.model.spec.vocab:
        return
    differing = [i for i in range(shared) if a.token_text(i) != b.token_text(i)]
    where = (
        f"{len(differing)} ids differ, first `{differing[0]}`: "
        f"{a.token_text(differing[0])!r} against {b.token_text(differing[0])!r}"
        if differing
        else "the shared ids agree"
    )
    raise VocabMismatch(
        f"draft `{draft.name}` and target `{target.name}` must share one vocabulary: "
        f"{draft.model.spec.vocab} and {target.model.spec.vocab} tokens; {where}",
        hint="choose a smaller model of the target's own family, or --draft ngram, which needs no model",
    )
