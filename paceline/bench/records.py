"""The file of a run: one line of JSON for what was asked, one for each start, one for each prompt measured.

Lines are written whole and at once, so a run that was killed loses at most the prompt it was at.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from paceline.core.aliases import Json
from paceline.errors import UsageError

VERSION = 3
_OPTIONS = {"ways": "--draft, --control or --verify", "temperatures": "--temperature"}  # of settings named otherwise


class Records:
    """What has been measured. `path` None keeps it in memory only."""

    def __init__(self, path: Path | None, settings: Json, *, resume: bool) -> None:
        """Begin a file, or go on with one.

        Raises:
            UsageError: the file is there and not to be resumed, is of another run, or cannot be read or written.
        """
        self.starts: list[Json] = []
        self.prompts: list[Json] = []
        self._path = path
        if path is None:
            return
        if not path.parent.is_dir():
            raise UsageError(f"--out names a file in `{path.parent}`, which is no folder", hint="make the folder first")
        is_there = path.exists() and path.stat().st_size > 0
        if is_there and not resume:
            raise UsageError(
                f"`{path}` is there already", hint="go on with it by --resume, or name another file with --out"
            )
        if is_there:
            found = read(path)
            _compare(found.settings, settings, path)
            self.starts, self.prompts = found.starts, found.prompts
            os.truncate(path, found.nbytes)
        else:
            self._write({"kind": "run", "paceline_bench_run": VERSION, "settings": settings})

    def start(self, found: Json) -> None:
        """Note the machine and what was measured of it before the prompts."""
        self.starts.append(found)
        self._write({"kind": "start", **found})

    def add(self, prompt: Json) -> None:
        """Note a prompt at one temperature with all its replies."""
        self.prompts.append(prompt)
        self._write({"kind": "prompt", **prompt})

    def done(self) -> set[tuple[str, int, float]]:
        """Return (workload, index, temperature) of what is there."""
        return {(prompt["workload"], prompt["index"], prompt["temperature"]) for prompt in self.prompts}

    def _write(self, line: Json) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UsageError(f"cannot write `{self._path}`: {error.strerror}", hint="choose another --out") from error


class Found:
    """A file read back: `nbytes` of it are whole lines."""

    def __init__(self) -> None:
        self.settings: Json = {}
        self.starts: list[Json] = []
        self.prompts: list[Json] = []
        self.nbytes = 0


def read(path: Path) -> Found:
    """Read a run's file; a last line that was cut off is left out.

    Raises:
        UsageError: it cannot be read or is not a run's.
    """
    found = Found()
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = "name a file that `paceline bench run --out FILE` wrote"
        raise UsageError(f"cannot read `{path}`: {error.strerror}", hint=hint) from error
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            kind = entry.pop("kind")
            if number == 1:
                assert kind == "run"
                assert entry["paceline_bench_run"] == VERSION
                found.settings = dict(entry["settings"])
            elif kind == "start":
                found.starts.append(entry)
            else:
                assert {"workload", "index", "temperature", "replies", "peers"} <= entry.keys()
                found.prompts.append(entry)
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as error:
            raise _not_ours(path, number) from error
        found.nbytes += len(line)
    if not found.settings:
        raise _not_ours(path, 1)
    return found


def _not_ours(path: Path, line: int) -> UsageError:
    return UsageError(
        f"`{path}` must be a file that `paceline bench run --out` wrote; line {line} is not", hint="name another file"
    )


def _compare(before: Json, now: Json, path: Path) -> None:
    """Refuse to go on with a file that was measured otherwise; more prompts or workloads may be asked for."""
    for name in now:
        if name not in ("prompts", "workloads") and before.get(name) != now[name]:
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(
                f"`{path}` was measured with another {option}: `{_said(before.get(name))}`, now `{_said(now[name])}`",
                hint="resume with the same settings, or name another file with --out",
            )


def _said(value: object) -> str:
    """Return a setting as a user would say it."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)
