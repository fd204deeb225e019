"""A file mapped into memory, read-only. Knows bytes and pages, no format."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.errors import ModelFileError, ModelNotFound


class MappedFile:
    """Own one mapping; arrays from `view` stay valid until the last of them dies, also after `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                if self.size == 0:
                    raise ModelFileError(f"{path}: wanted a model file; got an empty one", hint="download it again")
                self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelNotFound(f"wanted a model file; there is none at `{path}`") from None
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path}: wanted a readable file; got `{error}`") from error
        self._bytes = np.frombuffer(self.buffer, np.uint8)

    def view(self, start: int, length: int) -> NDArray[np.uint8]:
        """Look at bytes without copying them."""
        assert 0 <= start <= start + length <= self.size, (start, length, self.size)
        return self._bytes[start : start + length]

    def drop(self, start: int, length: int) -> None:
        """Let the kernel take back these pages; a later look reads them from the file again."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        with contextlib.suppress(OSError):  # advice only
            self.buffer.madvise(mmap.MADV_DONTNEED, first, min(start + length, self.size) - first)

    def offset_of(self, data: NDArray[np.uint8]) -> int | None:
        """Find where a view of this mapping starts, None if it is not one."""
        base = self._bytes.__array_interface__["data"][0]
        at = int(data.__array_interface__["data"][0]) - int(base)
        return at if 0 <= at < self.size else None

    def close(self) -> None:
        """Give up the mapping, at the latest when its last view dies."""
        self._bytes = np.empty(0, np.uint8)
        with contextlib.suppress(BufferError):  # views are alive: they keep it
            self.buffer.close()
