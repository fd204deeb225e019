"""The machine's name and memory, and how busy other processes keep its cores."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path


def cpu_model() -> str:
    """Return what the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> tuple[int, int] | None:
    """Return (all, free now), no more than the control group may have; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        total, free = found["MemTotal"], found["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return None
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(limit).read_text()))  # "max" is no number
        except (OSError, ValueError):
            continue
    return total, min(free, total)


def resident_bytes() -> int:
    """Return what this process has in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class Neighbours:
    """How many cores other processes have used since the last reading.

    Counts what /proc/stat calls busy (user, nice, system, interrupts, and `steal`: what the host took) on the cores
    this process may run on, less the processor time of this process. So children of this process are others, and so
    is whatever else runs on those cores: inside a container, too, /proc/stat usually tells of the whole machine. Load
    on other cores does not count. A quota of the control group (cpu.max) is not seen here; it shows as wall time far
    above processor time. Work that had to wait for a core does not count either, only what it got.

    Args:
        stat: returns the text of /proc/stat, or raises OSError.
        cores: the numbers of the cores that count; `None` asks the system each time.
    """

    SHORTEST = 0.05  # seconds; /proc/stat counts in hundredths, and a window of few of them says nothing

    def __init__(
        self,
        *,
        stat: Callable[[], str] = lambda: Path("/proc/stat").read_text(),
        clock: Callable[[], float] = time.perf_counter,
        own_seconds: Callable[[], float] = time.process_time,
        cores: Collection[int] | None = None,
    ) -> None:
        self._stat, self._clock, self._own_seconds, self._cores = stat, clock, own_seconds, cores
        self._before = self._read()
        self._found: float | None = None

    def read(self) -> float | None:
        """Return the cores others used, on average, since the last reading; `None` where the system does not say.

        A reading too soon after the last one repeats it, and the window goes on.
        """
        before, now = self._before, self._read()
        if before is None or now is None:
            self._before, self._found = now, None
            return None
        seconds = now.when - before.when
        if seconds < self.SHORTEST:
            return self._found
        busy, total = now.busy - before.busy, now.total - before.total
        self._before = now
        if total <= 0:  # some sandboxes fill the file with zeros
            self._found = None
        else:
            self._found = max(busy - (now.own - before.own), 0.0) / seconds
        return self._found

    def _read(self) -> _Ticks | None:
        try:
            when, own, text = self._clock(), self._own_seconds(), self._stat()
            busy, total = _busy(text, own_cores() if self._cores is None else self._cores)
        except (OSError, ValueError, IndexError):
            return None
        return _Ticks(when, own, busy, total)


@dataclass(frozen=True, slots=True)
class _Ticks:
    when: float
    own: float
    busy: float
    total: float


def own_cores() -> Collection[int]:
    """Return the numbers of the cores this process may run on."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS
        return range(os.cpu_count() or 1)


def _busy(text: str, cores: Collection[int]) -> tuple[float, float]:
    """Return busy and all seconds of some cores, by the text of /proc/stat."""
    busy = total = 0
    for line in text.splitlines()[1:]:
        name, *fields = line.split()
        if not name.startswith("cpu"):
            break
        if int(name[3:]) in cores:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
            busy += user + nice + system + irq + softirq + steal
            total += user + nice + system + irq + softirq + steal + idle + iowait
    hertz = float(os.sysconf("SC_CLK_TCK"))
    return busy / hertz, total / hertz
