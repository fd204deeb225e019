"""Small files of numbers that were measured on this machine, in one folder beside the models.

A file holds the key it was measured for; an unreadable one, or one of another version or key, is ignored.
Files are written atomically, also by concurrent processes; where the folder cannot be written nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path

from paceline import store
from paceline.core.aliases import Json
from paceline.formats.catalog import models_folder

LARGEST = 1 << 20  # bytes; a valid file is far smaller


def path_of(key: Mapping[str, str], *, kind: str = "") -> Path | None:
    """Name the file for a key; `None` if there can be no folder for it."""
    try:
        folder = models_folder().parent / "measured"
    except OSError:
        return None
    digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:32]
    return folder / f"{digest}{kind}.json"


def read(path: Path, key: Mapping[str, str], version: int) -> Json | None:
    """Return the values in a file; `None` if there is no file.

    Raises:
        ValueError: it is no such file, or of another version or key.
        OSError: it cannot be read.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:  # reading a pipe would block
            raise ValueError("it is too large, or no file")
        said = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(said, dict) or said.get("version") != version or said.get("key") != dict(key):
        raise ValueError("it is of another version or machine")
    return said


def write(path: Path, key: Mapping[str, str], version: int, values: Json) -> None:
    """Write a file atomically.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write(path, json.dumps({"version": version, "key": dict(key), **values}).encode())
