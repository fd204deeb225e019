"""Read GGUF files, versions 2 and 3, split or whole, without trusting a byte of them.

Every length, count and offset is checked against the bytes that are left before anything is allocated.
Knows no architecture: `spec.py` reads the numbers, `files.py` the tensors' meaning.
"""

from __future__ import annotations

import re
import struct
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from paceline.errors import ModelFileError, ModelNotFound, UnsupportedModel
from paceline.formats.gguf_spec import spec_from_gguf
from paceline.formats.mapping import MappedFile
from paceline.formats.spec import ModelSpec
from paceline.kernels.tensor import SUPPORTED, GgmlType, Tensor

__all__ = ["SUPPORTED", "GgmlType", "GgufFile", "Tensor"]

# Far above any real model (about 5,000 tensors, 100 keys, 1.5 million array elements), far below a hostile claim.
_MOST_ENTRIES = 65_536
_MOST_ELEMENTS = 1 << 23
_MOST_NAME_BYTES = 65_535
_DEEPEST_ARRAY = 4

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: ("<B", "<u1"),
    1: ("<b", "<i1"),
    2: ("<H", "<u2"),
    3: ("<h", "<i2"),
    4: ("<I", "<u4"),
    5: ("<i", "<i4"),
    6: ("<f", "<f4"),
    _BOOL: ("<B", "<u1"),
    10: ("<Q", "<u8"),
    11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}
_TOKENS = "tokenizer.ggml.tokens"
_FIRST_TOKENS = 2048  # that tell vocabularies apart
_PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class GgufFile:
    """An open GGUF model: its metadata, and tensors that point into the mapped file."""

    def __init__(self, path: Path, parts: list[_Part]) -> None:
        self.path = path
        self._parts = parts
        self.metadata = parts[0].metadata
        self.tensors: dict[str, Tensor] = {}
        for part in parts:
            for name, tensor in part.tensors.items():
                if name in self.tensors:
                    raise ModelFileError(f"{part.file.path}: wanted each tensor in one part; got `{name}` in two")
                self.tensors[name] = tensor

    @classmethod
    def open(cls, path: Path | str) -> GgufFile:
        """Map and check a file and, if it is split, its other parts. Raises ModelFileError, ModelNotFound."""
        path = Path(path)
        asked = _Part(path)
        count = asked.metadata.get("split.count", 1)
        if not isinstance(count, int) or count <= 1:
            return cls(path, [asked])
        paths = _part_paths(path, count)
        parts = [asked if other.name == path.name else _Part(other) for other in paths]
        for number, part in enumerate(parts):
            got = (part.metadata.get("split.no"), part.metadata.get("split.count"))
            if got != (number, count):
                raise ModelFileError(f"{part.file.path}: wanted part {number} of {count}; got {got[0]} of {got[1]}")
        wanted, total = parts[0].metadata.get("split.tensors.count"), sum(len(part.tensors) for part in parts)
        if isinstance(wanted, int) and wanted != total:
            raise ModelFileError(f"{path}: wanted {wanted} tensors in {count} parts; got {total}")
        return cls(paths[0], parts)

    @cached_property
    def spec(self) -> ModelSpec:
        """Read the architecture's numbers, once."""
        return spec_from_gguf(self)

    @property
    def nbytes(self) -> int:
        return sum(part.file.size for part in self._parts)

    def has(self, name: str) -> bool:
        return name in self.tensors

    def tensor(self, name: str) -> Tensor | None:
        """Find a tensor, None if there is none. Raises UnsupportedModel if no kernel reads its type."""
        found = self.tensors.get(name)
        if found is not None:
            found.require_supported()
        return found

    def require_supported(self) -> None:
        """Raise UnsupportedModel for the first tensor in a type that no kernel reads."""
        for tensor in self.tensors.values():
            tensor.require_supported()

    def release(self, tensor: Tensor) -> None:
        """Drop a tensor's pages from memory, after it was repacked. Its data stay readable."""
        for part in self._parts:
            start = part.file.offset_of(tensor.data)
            if start is not None:
                part.file.drop(start, tensor.nbytes)
                return

    def close(self) -> None:
        self.tensors = {}
        for part in self._parts:
            part.tensors = {}
            part.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def peek(path: Path) -> tuple[dict[str, object], int, list[str]]:
    """Read a file's metadata up to its vocabulary; return it, the number of tokens, and the first of them.

    Raises:
        ModelFileError: it is no such file.
    """
    file = MappedFile(path)
    try:
        reader = _Reader(file)
        _, metadata = reader.header(until=_TOKENS)
        reader.unpack("<I", "the type of the array")
        kind, count = reader.unpack("<I", f"the type of `{_TOKENS}`"), reader.unpack("<Q", f"the length of `{_TOKENS}`")
        if kind != _STRING or count > (reader.size - reader.at) // 8:
            reader.fail(f"strings as `{_TOKENS}`", f"{count} of type {kind}")
        return metadata, count, reader.strings(min(count, _FIRST_TOKENS), f"`{_TOKENS}`")
    finally:
        file.close()


def _part_paths(path: Path, count: int) -> list[Path]:
    """List a split model's parts. Raises if a name is not as llama.cpp writes them, or if one is missing."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise ModelFileError(
            f"{path}: wanted a name like `NAME-00001-of-{count:05}.gguf` for a part of {count}; got `{path.name}`",
            hint="rename the parts as they were when downloaded",
        )
    paths = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelNotFound(
            f"wanted all {count} parts of the model in `{path.parent}`; `{missing[0]}`{more} missing",
            hint="download the missing parts into the same folder",
        )
    return paths


class _Part:
    """One file of a model."""

    def __init__(self, path: Path) -> None:
        self.file = MappedFile(path)
        try:
            reader = _Reader(self.file)
            tensors, self.metadata = reader.header()
            self.tensors = reader.tensors(tensors, self.metadata)
        except BaseException:
            self.file.close()
            raise


class _Reader:
    """A cursor over the header; `at` is the next byte."""

    def __init__(self, file: MappedFile) -> None:
        self.file, self.buffer, self.size, self.at = file, file.buffer, file.size, 0
        self.elements = 0

    def fail(self, wanted: str, got: object, at: int | None = None) -> NoReturn:
        place = self.at if at is None else at
        raise ModelFileError(
            f"{self.file.path}: at byte {place}: wanted {wanted}; got {got}",
            hint="the file is damaged or incomplete: download it again and compare its SHA-256",
        )

    def need(self, length: int, what: str) -> None:
        if length > self.size - self.at:
            self.fail(f"{length} bytes for {what}", f"{self.size - self.at} to the end of the file")

    def unpack(self, code: str, what: str) -> int:
        length = struct.calcsize(code)
        self.need(length, what)
        number: int = struct.unpack_from(code, self.buffer, self.at)[0]  # a float for <f and <d
        self.at += length
        return number

    def string(self, what: str, most: int | None = None) -> str:
        start, length = self.at, self.unpack("<Q", f"the length of {what}")
        if most is not None and length > most:
            self.fail(f"at most {most} bytes for {what}", length, start)
        self.need(length, what)
        raw = self.buffer[self.at : self.at + length]
        self.at += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"UTF-8 for {what}", f"`{raw[error.start : error.start + 4].hex()}`", start + 8 + error.start)

    def strings(self, count: int, what: str) -> list[str]:
        """Read an array of strings: a tight loop, vocabularies have hundreds of thousands."""
        if count > (self.size - self.at) // 8:
            self.fail(f"{count} strings for {what}", f"{self.size - self.at} bytes to the end of the file")
        buffer, size, at = self.buffer, self.size, self.at
        out: list[str] = []
        unpack, append = struct.Struct("<Q").unpack_from, out.append
        try:
            for _ in range(count):
                start = at + 8
                at = start + unpack(buffer, at)[0]
                if at > size:
                    self.fail(f"{at - start} bytes for a string of {what}", f"{size - start} left", start - 8)
                append(str(buffer[start:at], "utf-8"))
        except UnicodeDecodeError as error:
            self.fail(f"UTF-8 in {what}", f"`{error.object[error.start : error.start + 4].hex()}`", start + error.start)
        except struct.error:
            self.fail(f"8 bytes for a length in {what}", f"{size - at} to the end of the file", at)
        self.at = at
        return out

    def value(self, kind: int, key: str, depth: int = 0) -> object:
        if kind == _STRING:
            return self.string(f"the value of `{key}`")
        if kind == _ARRAY:
            return self.array(key, depth)
        if kind not in _SCALARS:
            self.fail(f"a value type of 0 to 12 for `{key}`", kind, self.at - 4)
        number = self.unpack(_SCALARS[kind][0], f"the value of `{key}`")
        if kind != _BOOL:
            return number
        if number > 1:
            self.fail(f"0 or 1 for the boolean `{key}`", number, self.at - 1)
        return bool(number)

    def array(self, key: str, depth: int) -> list[Any]:
        if depth >= _DEEPEST_ARRAY:
            self.fail(f"arrays at most {_DEEPEST_ARRAY} deep in `{key}`", "a deeper one")
        kind, count = self.unpack("<I", f"the type of `{key}`"), self.unpack("<Q", f"the length of `{key}`")
        self.elements += count
        if self.elements > _MOST_ELEMENTS:
            self.fail(f"at most {_MOST_ELEMENTS} array elements in all", f"{count} more in `{key}`", self.at - 8)
        if kind == _STRING:
            return self.strings(count, f"`{key}`")
        if kind == _ARRAY:
            self.need(count * 12, f"{count} arrays in `{key}`")
            return [self.array(key, depth + 1) for _ in range(count)]
        if kind not in _SCALARS:
            self.fail(f"an element type of 0 to 12 for `{key}`", kind, self.at - 12)
        dtype = np.dtype(_SCALARS[kind][1])
        self.need(count * dtype.itemsize, f"{count} elements of `{key}`")
        numbers = np.frombuffer(self.buffer, dtype, count, self.at)
        if kind == _BOOL and count and numbers.max() > 1:
            self.fail(f"0 or 1 in the booleans `{key}`", int(numbers.max()))
        self.at += count * dtype.itemsize
        return list((numbers.astype(bool) if kind == _BOOL else numbers).tolist())

    def header(self, until: str = "") -> tuple[int, dict[str, object]]:
        """Read the counts and the metadata, or what stands before a key; return how many tensors are described."""
        if self.buffer[:4] != b"GGUF":
            raise ModelFileError(
                f"{self.file.path}: not a GGUF file: wanted one that starts with `{b'GGUF'.hex(' ')}`; "
                f"got {self.size} bytes that start with `{self.buffer[:4].hex(' ')}`",
                hint="give a `.gguf` file, or a Hugging Face folder with config.json",
            )
        if self.size < 24:
            self.fail("24 bytes of header", f"{self.size}", 0)
        self.at = 4
        version = self.unpack("<I", "the version")
        if version not in (2, 3):
            if int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3):
                raise UnsupportedModel(
                    f"{self.file.path}: wanted a little-endian GGUF file; got a big-endian one",
                    hint="convert the model again on a little-endian machine",
                )
            raise UnsupportedModel(
                f"{self.file.path}: wanted GGUF version 2 or 3; got {version}",
                hint="convert the model again with a current llama.cpp" if version == 1 else "update paceline",
            )
        tensors, keys = self.unpack("<Q", "the tensor count"), self.unpack("<Q", "the key count")
        if tensors > min(_MOST_ENTRIES, self.size // 32):
            self.fail("a tensor count that the file could hold", tensors, 8)
        if keys > min(_MOST_ENTRIES, self.size // 12):
            self.fail("a key count that the file could hold", keys, 16)
        metadata: dict[str, object] = {}
        for number in range(keys):
            start, key = self.at, self.string(f"key {number}", _MOST_NAME_BYTES)
            if key in metadata:
                self.fail("each key once", f"`{key}` twice", start)
            if key == until:
                break
            metadata[key] = self.value(self.unpack("<I", f"the type of `{key}`"), key)
        return tensors, metadata

    def tensors(self, count: int, metadata: dict[str, object]) -> dict[str, Tensor]:
        """Read the tensor table and check that the data lie in the file, aligned and apart."""
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            self.fail("a power of two from 8 to 1048576 as `general.alignment`", alignment)
        table: dict[str, tuple[tuple[int, ...], GgmlType, int, int, int]] = {}
        for number in range(count):
            start, name = self.at, self.string(f"the name of tensor {number}", _MOST_NAME_BYTES)
            if name in table:
                self.fail("each tensor once", f"`{name}` twice", start)
            table[name] = (*self.description(name, alignment), start)
        data = -(-self.at // alignment) * alignment
        end = 0
        for name, (_, kind, offset, length, start) in sorted(table.items(), key=lambda item: item[1][2]):
            if offset < end:
                self.fail(f"tensor `{name}` apart from the others", f"offset {offset} before {end}", start)
            end = offset + length
            if data + end > self.size:
                self.fail(
                    f"{length} bytes of {kind.name} for tensor `{name}` from byte {data + offset} on",
                    f"a file of {self.size} bytes",
                    start,
                )
        return {
            name: Tensor(name, shape, kind, self.file.view(data + offset, length))
            for name, (shape, kind, offset, length, _) in table.items()
        }

    def description(self, name: str, alignment: int) -> tuple[tuple[int, ...], GgmlType, int, int]:
        """Read one tensor's shape, type, offset; work out its bytes (Python integers: nothing overflows)."""
        start, count = self.at, self.unpack("<I", f"the dimensions of `{name}`")
        if not 1 <= count <= 4:
            self.fail(f"1 to 4 dimensions for `{name}`", count, start)
        start, dims = self.at, [self.unpack("<Q", f"a dimension of `{name}`") for _ in range(count)]
        numbers = int(np.prod(np.array(dims, object)))
        if not 0 < numbers <= 1 << 48:
            self.fail(f"a possible shape for `{name}`", dims, start)
        start, code = self.at, self.unpack("<I", f"the type of `{name}`")
        try:
            kind = GgmlType(code)
        except ValueError:
            known = ", ".join(kind.name for kind in SUPPORTED)
            raise UnsupportedModel(
                f"{self.file.path}: at byte {start}: tensor `{name}` wants one of the types {known}; got type {code}",
                hint="choose another quantisation of the same model, Q4_K_M for example",
            ) from None
        if dims[0] % kind.block:
            self.fail(f"rows of whole {kind.name} blocks of {kind.block} for `{name}`", dims[0], start)
        start, offset = self.at, self.unpack("<Q", f"the offset of `{name}`")
        if offset % alignment:
            self.fail(f"an offset for `{name}` that is a multiple of {alignment}", offset, start)
        return tuple(reversed(dims)), kind, offset, numbers // kind.block * kind.block_bytes
