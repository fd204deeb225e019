"""`python -m paceline.bench [SUITE…]`: tables for people, then one line of JSON with everything."""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from paceline.bench import floor, forward, machine, replies, report, show, speculate
from paceline.bench.bars import judge
from paceline.bench.peer import Peer, PeerError
from paceline.bench.session import Plan, Progress, Session
from paceline.bench.summary import ALL
from paceline.config import DEFAULT_MODEL
from paceline.errors import PacelineError, UsageError
from paceline.kernels.native import native, new_pool
from paceline.model.sources import known_models, resolve
from paceline.service.llm import LLM
from paceline.types import Json

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


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m paceline.bench",
        description="Measure this machine. Without --model: the default model quickly, then the Qwen pair if here.",
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of {', '.join(SUITES)}; all unless named")
    parser.add_argument("--model", metavar="SRC", help="what to measure")
    parser.add_argument("--draft", metavar="SRC", default="off", help="a model that drafts for it")
    parser.add_argument("--draft-tokens", metavar="K,…", type=_numbers, help="lengths to draft (2,4,6,8)")
    parser.add_argument("--context", metavar="N,…", type=_numbers, help="tokens before a forward (64)")
    parser.add_argument("--threads", metavar="N", type=int, help="one per usable core unless told")
    parser.add_argument(
        "--repeats", metavar="N", type=int, help="forwards of each width (20, quick 5); replies a third"
    )
    parser.add_argument("--quick", action="store_true", help="few repeats, two prompts")
    parser.add_argument("--no-peer", action="store_true", help="leave llama.cpp out")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the JSON to a file as well")
    options = parser.parse_args(arguments)
    unknown = [suite for suite in options.suites if suite not in SUITES]
    if unknown:
        parser.error(f"no suite is called `{unknown[0]}`; there are {', '.join(SUITES)}")
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got `{options.repeats}`")
    if options.out and not options.out.parent.is_dir():
        parser.error(f"--out names a file in `{options.out.parent}`, which is no folder")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; returns 1 if any reply differed from plain decoding or a model could not be loaded."""
    options = parse(arguments)
    # In a file or a pipe tables keep their full width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    started = time.perf_counter()
    found: Json = {
        "paceline_bench": 1,
        "command": shlex.join(sys.argv[1:] if arguments is None else list(arguments)),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {},
        "interrupted": False,
        "mismatches": 0,
        "notes": [],
        "runs": [],
    }
    code = 0
    try:
        found["machine"] = machine.describe()
        show.show_machine(console, found["machine"])
        for subject in subjects(options, found["notes"]):
            run: Json = {}
            found["runs"].append(run)
            measure(subject, options, run, console)
        for note in found["notes"]:
            console.print(note)
    except KeyboardInterrupt:
        found["interrupted"], code = True, INTERRUPTED
    except PacelineError as error:
        found["error"], code = str(error), 2 if isinstance(error, UsageError) else 1
        sys.stderr.write(f"error: {error}\n")
        if error.hint:
            sys.stderr.write(f"\nhint: {error.hint}\n")
    found["mismatches"] = sum(
        len(run.get("suites", {}).get("speculate", {}).get("mismatches", [])) for run in found["runs"]
    )
    found["seconds"] = round(time.perf_counter() - started, 1)
    line = json.dumps(found)
    if options.out:
        options.out.write_text(line + "\n")
    print(line, flush=True)
    return code or int(found["mismatches"] > 0)


def subjects(options: argparse.Namespace, notes: list[str]) -> list[Subject]:
    """Return what to measure; what is left out is said in the notes."""
    if options.model:
        return [Subject(options.model, options.draft, options.quick)]
    chosen = [Subject(DEFAULT_MODEL, options.draft, True)]
    here = {record.name for record in known_models() if record.path}
    missing = [name for name in PAIR if name not in here]
    if options.quick:
        notes.append(f"--quick leaves out {PAIR[0]} with {PAIR[1]}")
    elif missing:
        notes.append(
            f"{PAIR[0]} with {PAIR[1]} was not measured: first `paceline pull {' && paceline pull '.join(missing)}`"
        )
    else:
        chosen.append(Subject(*PAIR, False))
    return chosen


def plan_of(options: argparse.Namespace, quick: bool) -> Plan:
    """Return how much to measure."""
    suites = tuple(suite for suite in SUITES if not options.suites or suite in options.suites)
    contexts = options.context or (64,)
    if not quick:
        return Plan(suites, options.repeats or 20, contexts, draft_tokens=options.draft_tokens or (2, 4, 6, 8))
    return Plan(
        suites,
        options.repeats or 5,
        contexts,
        draft_tokens=options.draft_tokens or (4,),
        decode_tokens=64,
        reply_tokens=64,
        suite_seconds=10.0,
        quick=True,
    )


def measure(subject: Subject, options: argparse.Namespace, run: Json, console: Console) -> None:
    """Measure one model; `run` is filled as results come in, so that an interrupted run keeps them."""
    plan, progress = plan_of(options, subject.quick), Progress()
    progress.show("loading", subject.model)
    llm = LLM(subject.model, draft="off", threads=options.threads)
    model = llm.engine.parts.model
    pool = new_pool(options.threads)
    session = Session(llm, pool, native().ReadProbe(pool, model.weight_bytes), plan, subject.draft)  # type: ignore[attr-defined]
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
        if options.no_peer:
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


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if not all(1 <= number <= 1 << 20 for number in numbers):
        raise ValueError(text)
    return numbers


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit keeps what was measured, like Ctrl-C
    sys.exit(main())
