"""From names to a loaded target and drafter, with the refusals a wrong pair deserves."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import paceline.draft.best_of
import paceline.draft.ensemble
import paceline.draft.ngram
import paceline.draft.self
import paceline.draft.staged  # noqa: F401  (they register their names)
from paceline.config import LLMConfig
from paceline.control.base import Controller
from paceline.control.fixed import FixedController
from paceline.draft.base import Drafter, Loaded, Setting, lookup, names
from paceline.draft.mix import MixDrafter
from paceline.draft.translate import drafter_for
from paceline.engine.progress import reading
from paceline.errors import ModelNotFound, PacelineError, UsageError
from paceline.model.files import ModelFile, open_model
from paceline.model.native import NativeModel
from paceline.model.sources import known_models, resolve
from paceline.tokenizer import Tokenizer
from paceline.verify.base import Verifier
from paceline.verify.best_of import BestOfVerifier
from paceline.verify.coupled import CoupledVerifier

DEFAULT_CONTEXT = 8192
VERIFIERS: dict[str, Callable[[], Verifier]] = {"coupled": CoupledVerifier}
PAIRED: dict[str, Callable[[], Verifier]] = {"best_of": BestOfVerifier}  # drafters that bring their verifier
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


def make_verifier(config: LLMConfig) -> Verifier:
    """Return the verifier that `config` asks for, or the one its drafter cannot do without.

    Raises:
        UsageError: it asks for both, or for such a drafter beside others.
    """
    asked = [name.strip() for name in config.draft.split(",")] if config.draft_tokens else []
    own = next((base for name in asked if (base := name.partition(":")[0]) in PAIRED), None)
    if own is None:
        return VERIFIERS[config.verify]()
    if len(asked) > 1:
        raise UsageError(
            f"{own} must be the only drafter, got `{config.draft}`",
            hint="what it drafts is chosen among, not checked; it changes the output",
        )
    if config.verify != LLMConfig().verify:
        raise UsageError(
            f"--draft {own}:… brings its own rule, got `--verify {config.verify}`", hint="drop one of the two"
        )
    return PAIRED[own]()


def load_drafter(config: LLMConfig, target: Loaded, pool: Any, *, progress: bool) -> Drafter:
    """Return the drafter that `config.draft` names, or a mix of those it names with commas between them.

    Raises:
        UsageError: no drafter and no model goes by a name, or a name comes twice.
        VocabMismatch: a draft model's tokens have no text in common with the target's.
    """

    def load_draft(source: str, quant: str | None = None) -> Loaded:
        try:
            return load(source, pool, quant=quant or config.draft_quant, context=None, progress=progress)
        except PacelineError as error:
            explain(error, source)
            raise

    setting = Setting(target, config, load_draft, make_verifier(config).draws)
    wanted = ["off"] if config.draft_tokens == 0 else [name.strip() for name in config.draft.split(",")]
    if len(wanted) == 1:
        return make_drafter(wanted[0], setting)
    for name in wanted:
        if not name or name in ("off", "auto") or wanted.count(name) > 1:
            raise UsageError(
                f"a mix of drafters must name different ones, got `{name}` in `{config.draft}`",
                hint=f"for example --draft {','.join(name for name in names() if name not in ('off', 'auto'))}",
            )
    return MixDrafter([make_drafter(name, setting) for name in wanted])


def make_drafter(name: str, setting: Setting) -> Drafter:
    """Return the drafter of one name: a registered one, or a model, whatever its vocabulary."""
    base, _, argument = name.partition(":")
    known = lookup(base)
    return known(setting, argument) if known is not None else drafter_for(setting, setting.load(name))


def explain(error: PacelineError, source: str) -> None:
    """Make an error of loading a draft model say so, and what name may have been meant."""
    error.args = (f"draft model `{source}`: {error}",)
    known = [*names(), *(record.name for record in known_models())] if isinstance(error, ModelNotFound) else []
    if near := difflib.get_close_matches(source.lower(), known, n=1):
        error.hint = f"did you mean `{near[0]}`? drafters: {', '.join(names())}; or a smaller model, as for --model"
