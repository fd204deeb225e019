"""From names to a loaded target and drafter, with the refusals a wrong pair deserves."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import paceline.draft.auto
import paceline.draft.best_of
import paceline.draft.ensemble
import paceline.draft.lookahead
import paceline.draft.ngram
import paceline.draft.predicted
import paceline.draft.recycle
import paceline.draft.self
import paceline.draft.staged
import paceline.draft.suffix  # noqa: F401  (register their names)
from paceline.config import LOOKUPS, LLMConfig, parse_draft, parse_verify
from paceline.control.base import Controller
from paceline.control.confidence import ConfidenceController
from paceline.control.ema import EmaController
from paceline.control.fixed import FixedController
from paceline.control.optimal import OptimalController
from paceline.control.schedule import ScheduleController
from paceline.draft.adopted import adopted
from paceline.draft.base import Drafter, Loaded, Setting, lookup, names, weighing
from paceline.draft.mix import MixDrafter
from paceline.draft.translate import drafter_for
from paceline.engine.calibrate import Calibration, Instruments, calibrated, identity, machine_key
from paceline.engine.progress import reading
from paceline.errors import ModelNotFound, PacelineError, UsageError
from paceline.kernels.native import choose_isa
from paceline.model import backend
from paceline.model.files import ModelFile, open_model
from paceline.model.sources import known_models, resolve
from paceline.tokenizer import Tokenizer
from paceline.verify.base import Verifier
from paceline.verify.best_of import BestOfVerifier
from paceline.verify.block import BlockVerifier
from paceline.verify.coupled import CoupledVerifier
from paceline.verify.lossy import LenientVerifier, TypicalVerifier
from paceline.verify.tree import GreedyTreeVerifier, RejectionVerifier, TreeVerifier

DEFAULT_CONTEXT = 8192
VERIFIERS: dict[str, Callable[[], Verifier]] = {
    "coupled": CoupledVerifier,
    "rejection": RejectionVerifier,
    "block": BlockVerifier,
    "tree": TreeVerifier,
    "greedy_tree": GreedyTreeVerifier,
    "typical": TypicalVerifier,
}
PAIRED: dict[str, Callable[[], Verifier]] = {"best_of": BestOfVerifier}  # drafters that bring their verifier
CONTROLLERS: dict[str, Callable[[int], Controller]] = {
    "fixed": FixedController,
    "ema": EmaController,
    "schedule": ScheduleController,
    "confidence": ConfidenceController,
    "entropy": partial(ConfidenceController, by_entropy=True),
}


def find_models(config: LLMConfig, *, progress: bool) -> None:
    """Find the target and the draft models, fetching what is not here yet, so that a wrong name is told at once.

    Raises:
        PacelineError: one cannot be found.
    """
    resolve(config.model, progress=progress)
    for name in parse_draft(config.draft) if config.draft_tokens else []:
        if lookup(name.partition(":")[0]) is None:
            try:
                resolve(name, progress=progress)
            except PacelineError as error:
                explain(error, name)
                raise


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
            padding = padding_of(tokenizer, file.spec.vocab)
            model = backend.load(file, pool, quant=quant, progress=report, padding=padding)
    finally:
        file.close()
    return Loaded(source, model, tokenizer, context or min(file.spec.context, DEFAULT_CONTEXT), identity(path))


def read_tokenizer(file: ModelFile) -> Tokenizer:
    """Build the tokenizer that came with a model."""
    return Tokenizer.from_file(file.path) if file.path.is_dir() else Tokenizer.from_gguf(file.metadata)


def padding_of(tokenizer: Tokenizer, rows: int) -> list[int]:
    """Return the ids of a model's output rows that stand for no text and control nothing, ascending.

    Matrices are padded to round sizes; some files name the rows (`[PAD151665]`, of the type UNUSED), others do not.
    """
    known = range(min(tokenizer.vocab_size, rows))
    unused = [i for i in known if not (tokenizer.token_bytes(i) or tokenizer.is_special(i) or i in tokenizer.eos_ids)]
    return [*unused, *range(len(known), rows)]


def make_verifier(config: LLMConfig) -> Verifier:
    """Return the verifier that `config` asks for, or the one its drafter cannot do without.

    Raises:
        UsageError: it asks for both, or for such a drafter beside others.
    """
    asked = parse_draft(config.draft) if config.draft_tokens else []
    own = next((base for name in asked if (base := name.partition(":")[0]) in PAIRED), None)
    if own is None:
        name, lenience = parse_verify(config.verify)
        return VERIFIERS[name]() if lenience is None else LenientVerifier(lenience)
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


def load_drafter(
    config: LLMConfig, target: Loaded, pool: Any, *, progress: bool, load: Callable[..., Loaded] = load
) -> Drafter:
    """Return the drafter that `config.draft` names, or a mix of those it names with commas between them.

    Args:
        load: loads draft models; benchmarks give one that remembers.

    Raises:
        ModelNotFound: no drafter and no model goes by a name.
        VocabMismatch: a draft model's tokens have no text in common with the target's.
    """

    def load_draft(source: str, quant: str | None = None) -> Loaded:
        try:
            draft = load(source, pool, quant=quant or config.draft_quant, context=None, progress=progress)
        except PacelineError as error:
            explain(error, source)
            raise
        # What a model reads by default is no reason to read less of a text than the target does.
        return replace(draft, context=min(max(draft.context, target.context), draft.model.spec.context))

    setting = Setting(target, config, load_draft, make_verifier(config).draws)
    wanted = parse_draft(config.draft) if config.draft_tokens else ["off"]
    if len(wanted) == 1:
        return make_drafter(wanted[0], setting)
    drawing = [name for name in wanted if name.partition(":")[0] not in LOOKUPS]
    if setting.draws != "shared" and len(drawing) > 1:
        raise UsageError(
            f"--verify {config.verify} weighs guesses by the law of one drafter, got `{drawing[0]}` and `{drawing[1]}`",
            hint="--verify coupled takes any mix; ensemble:A+B makes one law of two models",
        )
    return MixDrafter([make_drafter(name, setting) for name in wanted])


def make_drafter(name: str, setting: Setting) -> Drafter:
    """Return the drafter of one name: a registered one, or a model, whatever its vocabulary."""
    base, _, argument = name.partition(":")
    known = lookup(base)
    if argument and base in LOOKUPS and base != "suffix":
        raise UsageError(f"drafter `{base}` takes no argument, got `{name}`", hint=f"--draft {base}")
    return adopted(known(setting, argument), base) if known is not None else drafter_for(setting, setting.load(name))


def load_controller(
    config: LLMConfig,
    target: Loaded,
    drafter: Drafter,
    pool: Any,
    *,
    progress: bool,
    instruments: Instruments | None = None,
) -> tuple[Controller, Calibration | None]:
    """Return the controller that `config.control` names; the optimal one measures this machine first, once.

    Where there is nothing to draft with, nothing is measured. What was measured comes second.

    Args:
        instruments: opened before the models were loaded: meanwhile they saw how busy other processes are.
    """
    if config.control != "optimal":
        return CONTROLLERS[config.control](config.draft_tokens), None
    if not drafter.sources or not config.draft_tokens:
        return FixedController(0), None
    key = calibration_key(config, target, drafter, pool)
    found = calibrated(target.model, drafter, key, progress=progress, instruments=instruments)
    controller = OptimalController(
        found.cost,
        drafter.sources,
        most=config.draft_tokens,
        step_seconds=found.step_seconds,
        weighing=weighing(drafter),
        is_doubtful=found.quality.is_doubtful,
    )
    return controller, found


def calibration_key(config: LLMConfig, target: Loaded, drafter: Drafter, pool: Any) -> dict[str, str]:
    """Return what measured times depend on: both models' files, how they are packed, and this machine."""
    # A corpus is a file too, and another one after every reply.
    models = [name for name in parse_draft(config.draft) if not name.startswith("suffix:")]
    parts = ",".join(models).replace("+", ",").replace(":", ",").split(",")
    drafts = [identity(path) for name in parts if name and (path := Path(name)).is_file()]
    return {
        "model": target.identity,
        "quant": config.quant,
        "draft": " ".join([config.draft, *drafter.sources, *drafts]),
        "draft_head": str(config.draft_head),
        "verify": config.verify,
        "draft_quant": config.draft_quant,
        **machine_key(pool.threads, choose_isa()),
    }


def explain(error: PacelineError, source: str) -> None:
    """Make an error of loading a draft model say so, and what name may have been meant."""
    error.args = (f"draft model `{source}`: {error}",)
    known = [*names(), *(record.name for record in known_models())] if isinstance(error, ModelNotFound) else []
    if source in names():
        error.hint = "this drafter is made of models, see `paceline models`"
    elif near := difflib.get_close_matches(source.lower(), known, n=1):
        error.hint = f"did you mean `{near[0]}`? drafters: {', '.join(names())}; or a smaller model, as for --model"
