"""`bench run`: plain decoding against each way on real workloads, prompt by prompt; a function returning plain data.

Knows nothing of terminals but a progress bar, and of files only what `Records` does.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.bench import floor, forward, machine
from paceline.bench.measure import play
from paceline.bench.peers import Company, parse_against, start_peers
from paceline.bench.progress import Bar
from paceline.bench.records import Records
from paceline.bench.session import Plan, Session
from paceline.bench.summary import summarise
from paceline.bench.ways import Rig, Way, draft_model
from paceline.bench.workloads import WORKLOADS, Ask, asks
from paceline.config import LLMConfig
from paceline.core.aliases import Json
from paceline.core.request import SamplingParams
from paceline.errors import UsageError
from paceline.formats.catalog import resolve
from paceline.kernels.native import native, new_pool
from paceline.sample.params import validate
from paceline.service.llm import LLM

ROOM = 32  # tokens of the number in front of a prompt, and of what a peer keeps for itself
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
REPEATS = 5  # of each width


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. `max_tokens` None: what each workload needs. `replay`: ask the same bytes every time."""

    model: str = LLMConfig().model
    ways: tuple[Way, ...] = (Way(LLMConfig().draft),)
    workloads: tuple[str, ...] = WORKLOADS
    prompts: int = 4
    temperatures: tuple[float, ...] = (0.0, 0.8)
    max_tokens: int | None = None
    against: tuple[str, ...] = ()
    replay: bool = False

    def check(self) -> list[Ask]:
        """Return the prompts to ask.

        Raises:
            UsageError: a name is unknown or a number out of range.
        """
        if self.prompts < 1:
            raise UsageError(f"prompts must be at least 1, got `{self.prompts}`")
        if not self.ways or not self.temperatures:
            raise UsageError("a run needs a drafter and a temperature at least, got none")
        for temperature in self.temperatures:
            validate(
                SamplingParams(temperature=temperature, max_tokens=1 if self.max_tokens is None else self.max_tokens)
            )
        for way in self.ways:
            way.config(self.model)
        for name in self.against:
            parse_against(name)
        return asks(self.workloads, self.prompts, self.max_tokens)

    def to_json(self) -> Json:
        return {**asdict(self), "ways": [way.name for way in self.ways]}


def bench_run(
    settings: Settings,
    *,
    threads: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Json:
    """Measure and return the summary, with what was measured so far if interrupted.

    Args:
        out: a file that keeps every prompt's numbers; `resume` goes on with it.
        progress: show a bar on a terminal.

    Raises:
        PacelineError: something cannot be found, read or meant.
    """
    started = time.perf_counter()
    wanted = settings.check()
    recorded = _plain({**settings.to_json(), "threads": threads})
    records = Records(out, recorded, resume=resume)
    done = records.done()
    todo = [(a, t) for a in wanted for t in settings.temperatures if (a.workload, a.index, t) not in done]
    interrupted = False
    try:
        if todo:
            _measure(settings, threads, records, todo, len(done), progress)
    except KeyboardInterrupt:
        interrupted = True
    return {
        **summarise(recorded, records.starts, records.prompts),
        "interrupted": interrupted,
        "seconds": round(time.perf_counter() - started, 1),
    }


def _measure(
    settings: Settings,
    threads: int | None,
    records: Records,
    todo: list[tuple[Ask, float]],
    done: int,
    progress: bool,
) -> None:
    """Load, measure the machine, then play the prompts; what was measured is in `records` however this ends."""
    with Bar(done + len(todo), wanted=progress) as bar:
        bar.reach(done)
        bar.show("loading", settings.model)
        llm = LLM(settings.model, draft="off", threads=threads, slots=1)
        pool = new_pool(threads)
        rig = Rig(llm, pool, settings.ways, settings.temperatures)
        start, fitting = _start(llm, pool, todo, bar)
        company = Company()
        try:
            if settings.against:
                bar.show("starting", ", ".join(settings.against))
                company = _company(settings, fitting, llm, pool.threads)
                start["peers"], start["missing_peers"] = company.about, company.missing
            records.start(_plain(start))
            rng = None if settings.replay else random.SystemRandom()
            for record in play(rig, fitting, rng=rng, peers=company.running, show=bar.show):
                records.add(record)
                done += 1
                bar.reach(done)
        finally:
            company.close()


def _start(
    llm: LLM, pool: native.Pool, todo: list[tuple[Ask, float]], bar: Bar
) -> tuple[Json, list[tuple[Ask, float]]]:
    """Describe the machine and measure its floor and v(M); return also the prompts that fit the model's context."""
    model = llm.engine.parts.model
    plan = Plan(("floor", "forward"), repeats=REPEATS, contexts=(256,), widths=WIDTHS, quick=True)
    session = Session(llm, pool, native.ReadProbe(pool, model.weight_bytes), plan)  # type: ignore[attr-defined]
    found_floor: Json = {}
    found_forward: Json = {}
    floor.measure(session, found_floor, bar)
    forward.measure(session, found_forward, bar)
    fitting = [(ask, t) for ask, t in todo if _length(llm, ask) <= llm.context]
    left = sorted(
        {f"{ask.workload} {ask.index}" for ask, _ in todo} - {f"{ask.workload} {ask.index}" for ask, _ in fitting}
    )
    start: Json = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": machine.describe(),
        "file": resolve(llm.config.model).name,
        "threads": session.pool.threads,
        "weight_bytes": session.model.weight_bytes,
        "load_seconds": round(llm.load_seconds, 3),
        "floor": found_floor,
        "forward": found_forward["context_256"],
        "too_long": left,
    }
    return start, fitting


def _company(settings: Settings, todo: list[tuple[Ask, float]], llm: LLM, threads: int) -> Company:
    """Start the peers with room for the longest prompt and its reply."""
    context = max((_length(llm, ask) for ask, _ in todo), default=2048)
    draft = draft_model(way.draft for way in settings.ways)
    return start_peers(
        settings.against,
        resolve(settings.model),
        None if draft is None else resolve(draft),
        threads=threads,
        context=-(-context // 256) * 256,
    )


def _length(llm: LLM, ask: Ask) -> int:
    return len(llm.encode(ask.text, chat=True)) + ask.max_tokens + ROOM


def _plain(found: Json) -> Json:
    """Return data as a file would give it back: tuples are lists."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
