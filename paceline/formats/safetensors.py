"""Read a local Hugging Face folder: config.json and safetensors, whole or in shards, without copying.

The header is checked like a GGUF file's: nothing is allocated by a file's claims. Tensors get GGUF's names.
"""

from __future__ import annotations

import json
import logging
import math
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, TypeGuard

import numpy as np

from paceline.errors import ModelFileError, ModelNotFound
from paceline.formats.config_spec import language_half, spec_from_config
from paceline.formats.mapping import MappedFile
from paceline.formats.spec import ModelSpec
from paceline.formats.tensor_names import canonical, is_language
from paceline.kernels.tensor import GgmlType, Tensor, unsupported_type

log = logging.getLogger(__name__)
_MOST_HEADER_BYTES = 100_000_000  # the format's own limit
_MOST_JSON_BYTES = 64_000_000
_MOST_SHARDS = 10_000
_TYPES = {
    "F64": GgmlType.F64,
    "F32": GgmlType.F32,
    "F16": GgmlType.F16,
    "BF16": GgmlType.BF16,
    "I64": GgmlType.I64,
    "I32": GgmlType.I32,
    "I16": GgmlType.I16,
    "I8": GgmlType.I8,
}


class SafetensorsFolder:
    """An open model folder; `metadata` is its config.json."""

    def __init__(self, path: Path, spec: ModelSpec, config: dict[str, object], files: list[MappedFile]) -> None:
        self.path, self.spec, self.metadata, self._files = path, spec, config, files
        self.tensors: dict[str, Tensor] = {}
        kind = str(language_half(config).get("model_type"))
        for file in files:
            for name, tensor in _tensors(file).items():
                ours = canonical(name, kind)
                if ours is None:
                    continue
                if ours in self.tensors:
                    raise ModelFileError(f"{file.path}: wanted each tensor once; got `{name}` in two places")
                self.tensors[ours] = Tensor(ours, tensor.shape, tensor.type, tensor.data)
        self._untie()

    def _untie(self) -> None:
        """Let the file decide whether it has an output matrix of its own; a copy of the embeddings is none."""
        own, embeddings = self.tensors.get("output.weight"), self.tensors.get("token_embd.weight")
        if own is None:
            text = self.metadata.get("text_config")
            said = [table.get("tie_word_embeddings") for table in (self.metadata, text) if isinstance(table, dict)]
            self.spec = replace(self.spec, tied=False not in said)
            return
        if not self.spec.tied:
            return
        if embeddings is not None and own.type == embeddings.type and np.array_equal(own.data, embeddings.data):
            del self.tensors["output.weight"]
            return
        log.warning(
            "%s: the config ties the output matrix to the embeddings, and the file has another one: used", self.path
        )
        self.spec = replace(self.spec, tied=False)

    @classmethod
    def open(cls, path: Path | str) -> SafetensorsFolder:
        """Map and check a folder's files. Raises ModelNotFound, ModelFileError, UnsupportedModel."""
        path = Path(path)
        for needed in ("config.json", "tokenizer.json"):
            if not (path / needed).is_file():
                raise ModelNotFound(
                    f"wanted a Hugging Face model folder; `{path}` has no `{needed}`",
                    hint="download the whole repository: config.json, tokenizer.json and *.safetensors",
                )
        config = _json(path / "config.json")
        spec = spec_from_config(config, str(path / "config.json"))
        files: list[MappedFile] = []
        try:
            for part in _shards(path):
                files.append(MappedFile(part))
            return cls(path, spec, config, files)
        except BaseException:
            for file in files:
                file.close()
            raise

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self._files)

    def has(self, name: str) -> bool:
        return name in self.tensors

    def tensor(self, name: str) -> Tensor | None:
        """Find a tensor, None if there is none. Raises UnsupportedModel if no kernel reads its type."""
        found = self.tensors.get(name)
        if found is not None:
            found.require_supported()
        return found

    def release(self, tensor: Tensor) -> None:
        """Drop a tensor's pages from memory, after it was repacked. Its data stay readable."""
        for file in self._files:
            start = file.offset_of(tensor.data)
            if start is not None:
                file.drop(start, tensor.nbytes)
                return

    def close(self) -> None:
        self.tensors = {}
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _shards(path: Path) -> list[Path]:
    """List the folder's safetensors files, each of them there."""
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        if (path / "model.safetensors").is_file():
            return [path / "model.safetensors"]
        pickled = next(path.glob("*.bin"), None)
        raise ModelNotFound(
            f"wanted `model.safetensors` or its index in `{path}`; got {f'`{pickled.name}`' if pickled else 'neither'}",
            hint="save the model with safe_serialization=True: pickled weights are not loaded" if pickled else None,
        )
    names = shard_names(index)
    for name in names:
        if not (path / name).is_file():
            raise ModelNotFound(
                f"wanted all {len(names)} parts of the model in `{path}`; `{name}` is missing",
                hint="download the missing file into the same folder",
            )
    return [path / name for name in names]


def shard_names(index: Path) -> list[str]:
    """List the files that an index names, each of them beside it. Raises ModelFileError for anything else."""
    table = _json(index).get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
        raise ModelFileError(f"{index}: wanted a `weight_map` from tensors to files; got {type(table).__name__}")
    names = sorted(set(table.values()))
    if len(names) > _MOST_SHARDS:
        raise ModelFileError(f"{index}: wanted at most {_MOST_SHARDS} files; got {len(names)}")
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelFileError(f"{index}: wanted names of safetensors files beside it; got `{name[:200]}`")
    return names


def _json(path: Path) -> dict[str, object]:
    if path.stat().st_size > _MOST_JSON_BYTES:
        raise ModelFileError(f"{path}: wanted at most {_MOST_JSON_BYTES} bytes; got {path.stat().st_size}")
    try:
        return _parse(path.read_bytes().removeprefix(BOM_UTF8))
    except ValueError as error:
        raise ModelFileError(f"{path}: wanted a JSON object; got `{error}`") from error


def _parse(raw: bytes) -> dict[str, object]:
    """Parse one JSON object. Raises ValueError for anything else, and for a key given twice."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a key twice")
        return table

    try:
        table = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except RecursionError:
        raise ValueError("brackets too deep") from None
    if not isinstance(table, dict):
        raise ValueError(f"a {type(table).__name__}")
    return table


def _tensors(file: MappedFile) -> dict[str, Tensor]:
    """Read one file's header and check that the tensors lie in it, each as long as its shape, and apart."""

    def fail(wanted: str, got: object, at: int = 0) -> NoReturn:
        raise ModelFileError(
            f"{file.path}: at byte {at}: wanted {wanted}; got {got}",
            hint="the file is damaged or incomplete: download it again",
        )

    if file.size < 8:
        fail("a safetensors file", f"{file.size} bytes")
    length = int.from_bytes(file.buffer[:8], "little")
    if length > min(_MOST_HEADER_BYTES, file.size - 8):
        fail(f"a header of at most {min(_MOST_HEADER_BYTES, file.size - 8)} bytes", length)
    try:
        header = _parse(file.buffer[8 : 8 + length])
    except ValueError as error:
        fail("a header that is a JSON object", f"`{error}`", 8)
    header.pop("__metadata__", None)
    start = 8 + length
    placed: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        if not isinstance(entry, dict):
            fail(f"a table for tensor `{name}`", type(entry).__name__, 8)
        kind, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(kind, str) or not _naturals(shape) or not _naturals(span) or len(span) != 2:
            fail(f"`dtype`, `shape`, `data_offsets` of tensor `{name}`", repr(entry)[:80], 8)
        first, last = span
        if not first <= last <= file.size - start:
            fail(f"tensor `{name}` within {file.size - start} bytes of data", f"{first} to {last}", start)
        if not is_language(name):
            continue
        if kind not in _TYPES:
            raise unsupported_type(name, kind)
        wanted = math.prod(shape) * _TYPES[kind].block_bytes
        if last - first != wanted or not wanted or len(shape) > 4:
            fail(f"a possible shape for the {last - first} bytes of tensor `{name}`", shape, start + first)
        placed.append((first, last, name))
        tensors[name] = Tensor(name, tuple(shape), _TYPES[kind], file.view(start + first, wanted))
    end = 0
    for first, last, name in sorted(placed):
        if first < end:
            fail(f"tensor `{name}` apart from the others", f"offset {first} before {end}", start + first)
        end = last
    return tensors


def _naturals(value: object) -> TypeGuard[list[int]]:
    """Say whether this is a short list of whole numbers that are not negative."""
    return (
        isinstance(value, list)
        and len(value) <= 8
        and all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 48 for one in value)
    )
