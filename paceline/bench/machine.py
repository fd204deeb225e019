"""The machine a number was measured on, and how busy other processes kept it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

import paceline
from paceline.core.aliases import Json
from paceline.hardware import cpu_model
from paceline.kernels.native import choose_isa, native, usable_cores

_PACKAGES = ("numpy", "tokenizers", "xllamacpp")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def describe() -> Json:
    """Return processor, instruction set, load, versions and commit."""
    return {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "isa": choose_isa(),
        "isas": native.isas(),
        "memory_bytes": _memory_bytes(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {
            "paceline": paceline.__version__,
            **{name: version for name in _PACKAGES if (version := _version(name))},
        },
        "commit": commit(),
    }


def commit() -> str:
    """Return the commit of the source tree, with `+` if files differ from it; empty without git or a tree."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return ""
    try:
        run = [
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=10).stdout
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "-uno"))
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    return run[0].strip() + ("+" if run[1].strip() else "")


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used; 0 where that cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Neighbours:
    """How many cores others kept busy since this was made; numbers beside busy neighbours deserve little trust."""

    def __init__(self, *pids: int) -> None:
        self._pids = (os.getpid(), *pids)
        self._started, self._busy, self._ours = time.perf_counter(), _busy_seconds(), self._own()

    def cores(self) -> float | None:
        """Return the average; None where the system does not tell."""
        if self._busy is None or (busy := _busy_seconds()) is None:
            return None
        others = (busy - self._busy) - (self._own() - self._ours)
        return round(max(others, 0.0) / max(time.perf_counter() - self._started, 1e-9), 2)

    def _own(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._pids)


def _busy_seconds() -> float | None:
    try:
        user, nice, system, _, _, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    except (OSError, ValueError):
        return None
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / _TICKS


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
