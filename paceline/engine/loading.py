"""From names to a loaded target and drafter; pairs that do not fit raise an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from paceline.choices import CONTROLLERS, DRAFTERS
from paceline.config import LLMConfig, drafters_of, make_verifier, parse_draft
from paceline.control.base import Controller
from paceline.control.fixed import FixedController
from paceline.draft.adopted import Adopted
from paceline.draft.auto import companion_among
from paceline.draft.base import Drafter, Loaded, Setting, weighing
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.vocab.pairing import drafter_for
from paceline.engine.calibrate import Calibration, Instruments, calibrated, identity, machine_key
from paceline.engine.progress import reading
from paceline.errors import ModelNotFound, PacelineError, UsageError, too_long
from paceline.formats.catalog import known_models, resolve
from paceline.formats.companions import bytes_of
from paceline.formats.files import ModelFile, open_model
from paceline.kernels.native import choose_isa, native
from paceline.lab.confidence import ConfidenceController
from paceline.model import backend
from paceline.registry import complete
from paceline.text.tokenizer import Tokenizer

DEFAULT_CONTEXT = 8192
SHORT = 2048  # characters that find room in any context but those set lower
# Those in use, by the files they were read from: a server keeps that of a model that is unloaded and may come back.
_TOKENIZERS: WeakValueDictionary[tuple[tuple[str, int, int], ...], Tokenizer] = WeakValueDictionary()


def find_models(config: LLMConfig, *, progress: bool) -> None:
    """Find the target and the draft models and fetch missing ones, so that a wrong name fails at once.

    Raises:
        PacelineError: one cannot be found.
    """
    resolve(config.model, progress=progress)
    for name, choice in drafters_of(config).items():
        if choice is None:
            try:
                resolve(name, progress=progress)
            except PacelineError as error:
                explain(error, name)
                raise


def expected_bytes(config: LLMConfig) -> int:
    """Return about how many bytes a model takes with its drafts: their files', and the cache's limit if it has one.

    Models that are missing are fetched; raises what `find_models` does.
    """
    find_models(config, progress=False)
    drafts = [name for name, choice in drafters_of(config).items() if choice is None]
    return sum(bytes_of(resolve(name)) for name in (config.model, *drafts)) + (config.cache_bytes or 0)


def check_length(config: LLMConfig, text: str) -> None:
    """Refuse a long text that the target's context cannot hold, by its tokenizer, before any weight is read.

    Raises:
        ContextOverflow: it has too many tokens.
        PacelineError: a model cannot be found, or is not sound.
    """
    if len(text) < (config.context or SHORT):
        return
    find_models(config, progress=True)
    file = open_model(resolve(config.model))
    try:
        context = config.context or min(file.spec.plain_reach, DEFAULT_CONTEXT)
        if len(text) < context:  # a token is at least a character, but for a few
            return
        count, longest = len(read_tokenizer(file).encode(text)), file.spec.context
    finally:
        file.close()
    if count >= context:
        raise too_long(count, context, longest)


def load_target(config: LLMConfig, pool: native.Pool, *, progress: bool) -> Loaded:
    """Find, open, check and pack the target."""
    return load(config.model, pool, quant=config.quant, context=config.context, progress=progress)


def load(source: str, pool: native.Pool, *, quant: str, context: int | None, progress: bool) -> Loaded:
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
        reads = context or min(file.spec.plain_reach, DEFAULT_CONTEXT)
        with reading(path.name, file.nbytes, progress) as report:
            padding = padding_of(tokenizer, file.spec.vocab)
            model = backend.load(file, pool, quant=quant, progress=report, padding=padding, context=reads)
    finally:
        file.close()
    return Loaded(source, model, tokenizer, reads, identity(path), path)


def read_tokenizer(file: ModelFile) -> Tokenizer:
    """Build the tokenizer that came with a model, or return the one in use that was read from the same files."""
    stamp = _stamp(file.path)
    found = _TOKENIZERS.get(stamp)
    if found is None:
        found = Tokenizer.from_file(file.path) if file.path.is_dir() else Tokenizer.from_gguf(file.metadata)
        _TOKENIZERS[stamp] = found
    return found


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the files that a tokenizer is read from, with their sizes and times of change."""
    files = sorted([*path.glob("*.json"), *path.glob("*.jinja")]) if path.is_dir() else [path]
    return tuple((str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def padding_of(tokenizer: Tokenizer, rows: int) -> list[int]:
    """Return the ids of a model's output rows that stand for no text and control nothing, ascending.

    Matrices are padded to round sizes; some files name the rows (`[PAD151665]`, of the type UNUSED), others do not.
    """
    known = range(min(tokenizer.vocab_size, rows))
    unused = (i for i in known if tokenizer.is_unused(i) and i not in tokenizer.eos_ids)
    return [*unused, *range(len(known), rows)]


def load_drafter(
    config: LLMConfig, target: Loaded, pool: native.Pool, *, progress: bool, load: Callable[..., Loaded] = load
) -> Drafter:
    """Return the drafter that `config.draft` names, or a mix of those it names with commas between them.

    Args:
        load: loads draft models; benchmarks pass one that caches.

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
        # A draft model's default context must not make it read less of a text than the target does.
        return replace(draft, context=min(max(draft.context, target.context), draft.model.spec.context))

    wanted = list(drafters_of(config))
    setting = Setting(target, config, load_draft, make_verifier(config).draws)
    if len(wanted) == 1:
        return make_drafter(wanted[0], setting)
    members: list[Drafter] = []
    for name in wanted:
        company = tuple(other for other in wanted if other != name)
        made = make_drafter(name, replace(setting, company=company))
        members += made.members if isinstance(made, MixDrafter) else [made]
    return MixDrafter(members)


def make_drafter(name: str, setting: Setting) -> Drafter:
    """Return the drafter of one name: a registered one, or a model, whatever its vocabulary."""
    choice, argument = DRAFTERS.split(name)
    if choice is None:
        return drafter_for(setting, setting.load(name))
    made: Drafter = choice.make(setting, argument)
    return made if isinstance(choice.factory, str) else Adopted(made, choice.name, draws=choice.draws)


def entropy_controller(most: int) -> Controller:
    """Return the confidence controller that stops by the entropy of a draft's distribution."""
    return ConfidenceController(most, by_entropy=True)


def load_controller(
    config: LLMConfig,
    target: Loaded,
    drafter: Drafter,
    pool: native.Pool,
    *,
    progress: bool,
    instruments: Instruments | None = None,
) -> tuple[Controller, Calibration | None]:
    """Return (controller, calibration); for a controller that needs times, this machine is measured first, once.

    Without a source that drafts nothing is measured.

    Args:
        instruments: opened before the models were loaded, so that they saw how busy other processes are.
    """
    choice, _ = CONTROLLERS.choose(config.control)
    if not choice.measures:
        made = choice.make(config.draft_tokens)
        return complete(made, "controller", choice.name, "budgets", "observe", "reason"), None
    if not drafter.sources or not config.draft_tokens:
        return FixedController(0), None
    key = calibration_key(config, target, drafter, pool)
    found = calibrated(target.model, drafter, key, progress=progress, instruments=instruments)
    controller: Controller = choice.make(
        found.cost,
        drafter.sources,
        most=config.draft_tokens,
        step_seconds=found.step_seconds,
        weighing=weighing(drafter),
        is_doubtful=found.quality.is_doubtful,
    )
    return controller, found


def calibration_key(config: LLMConfig, target: Loaded, drafter: Drafter, pool: native.Pool) -> dict[str, str]:
    """Return the key of measured times: both models' files, how they are packed, and this machine."""
    # A corpus is a file too, and another one after every reply.
    models = [name for name in parse_draft(config.draft) if not name.startswith("suffix:")]
    parts = ",".join(models).replace("+", ",").replace(":", ",").split(",")
    drafts = [identity(path) for name in parts if name and (path := Path(name)).is_file()]
    if "auto" in models and (found := companion_among(target.path, drafter.sources)):
        drafts.append(identity(found.path))
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
    """Add to an error of loading a draft model that it is one, and the name that may have been meant."""
    error.args = (f"draft model `{source}`: {error}",)
    if source in DRAFTERS:
        error.hint = "this drafter is made of models, see `paceline models`"
    elif isinstance(error, ModelNotFound):
        near = DRAFTERS.near(source.lower(), [record.name for record in known_models()])
        drafters = f"drafters: {', '.join(DRAFTERS)}; or a smaller model, as for --model"
        error.hint = f"did you mean `{near}`? {drafters}" if near else error.hint
