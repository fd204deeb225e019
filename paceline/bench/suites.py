"""What this machine's kernels reach, suite by suite: tables, then one line of JSON with everything."""

from __future__ import annotations

import difflib
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from paceline.bench import floor, forward, machine, replies, report, show, speculate
from paceline.bench.bars import judge
from paceline.bench.peer import Peer, PeerError
from paceline.bench.session import Plan, Progress, Session
from paceline.bench.summary import ALL
from paceline.config import DEFAULT_MODEL
from paceline.core.aliases import Json
from paceline.errors import PacelineError, UsageError
from paceline.formats.catalog import known_models, resolve
from paceline.kernels.native import native, new_pool
from paceline.service.llm import LLM

Suite = Callable[[Session, Json, Progress], None]
SUITES: dict[str, Suite] = {
    "floor": floor.measure,
    "forward": forward.measure,
    "prefill": replies.prefill,
    "decode": replies.decode,
    "speculate": speculate.measure,
}
PAIR = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b")
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to measure, with its drafter."""

    model: str
    draft: str
    quick: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure and how often; `None` leaves it to the model, see `plan_of`.

    Raises:
        UsageError: a suite has no such name, a number is too small, or the file would lie in no folder.
    """

    suites: tuple[str, ...] = ()
    model: str | None = None
    draft: str = "off"
    draft_tokens: tuple[int, ...] | None = None
    contexts: tuple[int, ...] = (64,)
    repeats: int | None = None
    quick: bool = False
    has_peer: bool = True
    out: Path | None = None

    def __post_init__(self) -> None:
        if unknown := [suite for suite in self.suites if suite not in SUITES]:
            near = difflib.get_close_matches(unknown[0], SUITES, 1)
            raise UsageError(
                f"a suite must be one of {', '.join(SUITES)}, got `{unknown[0]}`",
                hint=f"did you mean `{near[0]}`?" if near else "leave it out for all",
            )
        if self.repeats is not None and self.repeats < 1:
            raise UsageError(f"--repeats must be at least 1, got `{self.repeats}`", hint="leave it out for 20")
        if self.out and not self.out.parent.is_dir():
            raise UsageError(
                f"--out must name a file in a folder, got `{self.out}`: `{self.out.parent}` is none",
                hint="make the folder, or name another",
            )


def bench_suites(asked: Asked, *, threads: int | None = None, command: str = "") -> int:
    """Measure and report; return 130 if it was interrupted, 1 if any reply differed from plain decoding, else 0.

    Tables go to stdout, and one line of JSON with everything, also when it ends early.

    Raises:
        PacelineError: a model cannot be loaded; what was measured before is printed.
    """
    # In a file or a pipe tables keep their full width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    started = time.perf_counter()
    found: Json = {
        "paceline_bench": 1,
        "command": command,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {},
        "interrupted": False,
        "mismatches": 0,
        "notes": [],
        "runs": [],
    }
    try:
        found["machine"] = machine.describe()
        show.show_machine(console, found["machine"])
        for subject in subjects(asked, found["notes"]):
            run: Json = {}
            found["runs"].append(run)
            measure(subject, asked, threads, run, console)
        for note in found["notes"]:
            console.print(note)
    except KeyboardInterrupt:
        found["interrupted"] = True
    except PacelineError as error:
        found["error"] = str(error)
        raise
    finally:
        found["mismatches"] = sum(
            len(run.get("suites", {}).get("speculate", {}).get("mismatches", [])) for run in found["runs"]
        )
        found["seconds"] = round(time.perf_counter() - started, 1)
        line = json.dumps(found)
        if asked.out:
            asked.out.write_text(line + "\n")
        print(line, flush=True)
    return INTERRUPTED if found["interrupted"] else int(found["mismatches"] > 0)


def subjects(asked: Asked, notes: list[str]) -> list[Subject]:
    """Return what to measure; what is left out is said in the notes."""
    if asked.model:
        return [Subject(asked.model, asked.draft, asked.quick)]
    chosen = [Subject(DEFAULT_MODEL, asked.draft, True)]
    here = {record.name for record in known_models() if record.path}
    missing = [name for name in PAIR if name not in here]
    if asked.quick:
        notes.append(f"--quick leaves out {PAIR[0]} with {PAIR[1]}")
    elif missing:
        notes.append(
            f"{PAIR[0]} with {PAIR[1]} was not measured: first `paceline pull {' && paceline pull '.join(missing)}`"
        )
    else:
        chosen.append(Subject(*PAIR, False))
    return chosen


def plan_of(asked: Asked, quick: bool) -> Plan:
    """Return how much to measure."""
    suites = tuple(suite for suite in SUITES if not asked.suites or suite in asked.suites)
    contexts = asked.contexts
    if not quick:
        return Plan(suites, asked.repeats or 20, contexts, draft_tokens=asked.draft_tokens or (2, 4, 6, 8))
    return Plan(
        suites,
        asked.repeats or 5,
        contexts,
        draft_tokens=asked.draft_tokens or (4,),
        decode_tokens=64,
        reply_tokens=64,
        suite_seconds=10.0,
        quick=True,
    )


def measure(subject: Subject, asked: Asked, threads: int | None, run: Json, console: Console) -> None:
    """Measure one model; `run` is filled as results come in, so that an interrupted run keeps them."""
    plan, progress = plan_of(asked, subject.quick), Progress()
    progress.show("loading", subject.model)
    llm = LLM(subject.model, draft="off", threads=threads)
    model = llm.engine.parts.model
    pool = new_pool(threads)
    session = Session(llm, pool, native.ReadProbe(pool, model.weight_bytes), plan, subject.draft)  # type: ignore[attr-defined]
    run.update(
        model=subject.model,
        file=resolve(subject.model).name,
        draft=subject.draft,
        quick=subject.quick,
        threads=pool.threads,
        weight_bytes=session.model.weight_bytes,
        plan=asdict(plan),
        load_seconds=round(llm.load_seconds, 3),
        peer=None,
        suites={},
        bars=[],
    )
    progress.clear()
    console.print(
        f"\n[bold]{subject.model}[/bold], {session.model.weight_bytes / 1e6:.0f} MB read per token, "
        f"{pool.threads} threads"
    )
    try:
        if not asked.has_peer:
            run["peer"] = {"missing": "left out by --no-peer"}
            console.print("without llama.cpp: --no-peer")
        else:
            progress.show("starting llama.cpp")
            session.peer = start_peer(session, subject.model, run, console, progress)
        if "floor" not in plan.suites:
            floor.measure(session, {}, progress)  # the others divide by it
        for name in plan.suites:
            play(name, session, run, progress, console)
    finally:
        progress.clear()
        if session.peer:
            run["peer"]["idle_cores"] = round(session.peer.idle_cores, 2)
            session.peer.close()
        run["bars"] = judge(
            Path(subject.model).stem if subject.model.endswith(".gguf") else subject.model,
            values(run["suites"], subject.draft),
        )
        report.show_bars(console, run["bars"])
        del session, llm
        gc.collect()


def start_peer(session: Session, model: str, run: Json, console: Console, progress: Progress) -> Peer | None:
    """Start llama.cpp on the same file, or say why not."""
    context = max(2048, max(session.plan.contexts) + 256)
    try:
        peer = Peer(resolve(model), session.pool.threads, context)
    except PeerError as error:
        progress.clear()
        run["peer"] = {"missing": str(error)}
        console.print(f"without llama.cpp: {error}", markup=False)
        return None
    progress.clear()
    run["peer"] = {**peer.about, "threads": session.pool.threads, "context": context}
    console.print(f"llama.cpp built for: {peer.about['system']}", markup=False)
    return peer


def play(name: str, session: Session, run: Json, progress: Progress, console: Console) -> None:
    """Run one suite and print it, also when it ends early."""
    out: Json = run["suites"].setdefault(name, {})
    session.started = time.perf_counter()
    neighbours = machine.Neighbours(*([session.peer.pid] if session.peer else []))
    try:
        SUITES[name](session, out, progress)
    except PeerError as error:
        run["peer"]["lost"] = str(error)
        console.print(f"[red]llama.cpp was lost:[/red] {error}")
        if session.peer:
            session.peer.close()
        session.peer = None
    finally:
        progress.clear()
        if out:
            out["neighbour_cores"] = neighbours.cores()
            out["seconds"] = round(time.perf_counter() - session.started, 2)
            out["over_time"] = session.is_late
            report.show_suite(console, name, out)
        else:
            del run["suites"][name]


def values(suites: Json, draft: str) -> list[tuple[str, float]]:
    """Return the measured values that bars are about."""
    found: dict[str, float | None] = {}
    at: Json = next((part for key, part in suites.get("forward", {}).items() if key.startswith("context_")), {})
    widths = at.get("widths", {})
    for width in ("4", "8"):
        if widths.get(width, {}).get("v"):
            found[f"v{width}"] = widths[width]["v"]["median"]
    found["decode_over_floor"] = at.get("decode_over_floor")
    found["t8_vs_peer_t1"] = at.get("t8_vs_peer_t1", {}).get("median")
    for suite in ("prefill", "decode"):
        found[f"{suite}_vs_peer"] = suites.get(suite, {}).get("vs_peer", {}).get("median")
    speculated = suites.get("speculate", {})
    outside = [
        way["ms_per_round"]["outside"]
        for at in speculated.get("temperatures", {}).values()
        for way in at[ALL]["ways"].values()
    ]
    plain = suites.get("decode", {}).get("outside_forward_ms_per_round", {}).get("median")
    found["outside_ms"] = max([*outside, *([plain] if plain is not None else [])], default=None)
    found["speedup_model"] = speculate.best_speedup(speculated, draft)
    return [(name, value) for name, value in found.items() if value is not None]
