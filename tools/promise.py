"""Hold the promise to the machine: replies with `--draft auto` against `off`, after bad calibrations and beside load.

    python tools/promise.py                       poisoned file, and a calibration beside busy loops; then beside load
    python tools/promise.py poisoned busy         some of it: poisoned, busy, fresh, load
    python tools/promise.py --model smollm2-135m --prompts 8 --tokens 128

Each process of `poisoned`, `busy` and `fresh` is new and loads both ways; their replies take turns. With `--apart` it
loads one way, as a user's does, and processes take turns: a small model's weights stay in a cache that two copies do
not share. `load` compares threads beside 0, 1 and 2 busy loops. Prints a table and, last, one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KINDS = ("fresh", "poisoned", "busy", "load")
BUSY = 14  # loops beside which the calibration of `busy` is made
WORKLOADS = ("code", "chat", "math", "edit")


def main() -> None:
    options = parsed()
    if options.child:
        print(json.dumps(child(options)))
        return
    results = {}
    with tempfile.TemporaryDirectory() as home:
        models = Path(os.environ.get("PACELINE_HOME", Path.home() / ".cache" / "paceline")) / "models"
        (Path(home) / "models").symlink_to(models)
        os.environ["PACELINE_HOME"] = home
        for what in options.what or KINDS:
            results[what] = beside_load(options) if what == "load" else after(what, options, Path(home))
    print(json.dumps({"model": options.model, "results": results}))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="fresh, poisoned, busy, load; all of them if none is named")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--replies", type=int, default=3, help="of a process")
    parser.add_argument("--processes", type=int, default=2, help="of eight sequences at once, one after the other")
    parser.add_argument("--apart", action="store_true", help="a process for each way")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--sequences", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--draft", default="auto", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.prompts, options.tokens, options.replies, options.processes) < 1:
        parser.error("numbers are from 1 on")
    if unknown := {*options.what} - {*KINDS}:
        parser.error(f"one of {', '.join(KINDS)} is wanted, got `{unknown.pop()}`")
    return options


# ---- in a process of its own


def prompts(count: int, seed: int | None = None) -> list[str]:
    """Return prompts of several workloads, each with a number of its own, so that nothing cached fits."""
    from paceline.bench.workloads import asks

    rng = random.SystemRandom() if seed is None else random.Random(seed)
    return [ask.fresh(rng) for ask in asks(WORKLOADS, 1 + count // len(WORKLOADS), None)][:count]


def child(options: argparse.Namespace) -> object:
    """Do one process's part: calibrate and spoil the file, or reply."""
    from paceline import LLM, SamplingParams

    params = SamplingParams(max_tokens=options.tokens, ignore_eos=True)
    if options.child == "load":
        llm = LLM(options.model, draft=options.draft, threads=options.threads)
        replies = [llm.generate(text, params, chat=True) for text in prompts(options.prompts)]
        return sum(len(r.token_ids) - 1 for r in replies) / sum(r.timing.decode_seconds for r in replies)
    if options.child == "apart":
        return apart(options, params)
    auto = LLM(options.model, draft="auto")
    if options.child == "calibrate":
        return {"seconds": auto.load_seconds}
    if options.child == "poison":
        return poison(auto)
    off = LLM(options.model, draft="off")
    asked = prompts(options.prompts)
    found = []
    for i in range(options.replies):
        texts = asked if options.sequences > 1 else [asked[(options.first + i) % len(asked)]]
        seconds, said = {}, {}
        for name in ("off", "auto") if (i + options.first) % 2 else ("auto", "off"):
            started = time.perf_counter()
            said[name] = {"off": off, "auto": auto}[name].generate(texts, params, chat=True)
            seconds[name] = time.perf_counter() - started
        assert [r.token_ids for r in said["off"]] == [r.token_ids for r in said["auto"]]
        found.append(seconds["off"] / seconds["auto"])
    return {"ratios": found, "reason": auto.engine.parts.controller.reason}


def apart(options: argparse.Namespace, params: object) -> object:
    """Return the seconds of each reply of one way, and why it drafted as it did."""
    from paceline import LLM

    llm, asked, seconds = LLM(options.model, draft=options.draft), prompts(options.prompts, options.seed), []
    for i in range(options.replies):
        texts = asked if options.sequences > 1 else [asked[(options.first + i) % len(asked)]]
        started = time.perf_counter()
        llm.generate(texts, params, chat=True)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "reason": getattr(llm.engine.parts.controller, "reason", "")}


def poison(auto: object) -> object:
    """Replace what was calibrated by what a busy machine once left: a token 40 times as long, and draft steps alike."""
    from paceline.engine.calibrate import known
    from paceline.engine.keyed_store import path_of

    key = auto.calibration_key
    path, found = path_of(key), known(key)
    said = json.loads(path.read_text())
    steps = dict.fromkeys(said["step_seconds"], 1.06)
    said.update(forward_seconds={"1": 1.69, "2": 1.7}, step_seconds=steps)
    said["quality"]["doubts"] = []
    path.write_text(json.dumps(said))
    return {"was": found.to_json(), "is": said}


# ---- from outside


def run(options: argparse.Namespace, what: str, **settings: object) -> object:
    """Run a part in a new process and return what it says."""
    flags = [part for name, value in settings.items() if value is not None for part in (f"--{name}", str(value))]
    same = ["--model", options.model, "--prompts", options.prompts, "--tokens", options.tokens]
    line = [sys.executable, __file__, "--child", what, *map(str, same), *flags]
    done = subprocess.run(line, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"error: the part `{what}` of {options.model} ended with {done.returncode}; its own words are above")
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def loops(count: int) -> Iterator[None]:
    """Keep so many cores busy, as far as there are any."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        yield
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


def after(what: str, options: argparse.Namespace, home: Path) -> object:
    """Return auto ÷ off, by reply of a process, one and eight at once, after a calibration of a kind."""

    def spoil() -> None:
        for file in (home / "measured").glob("*.json") if (home / "measured").exists() else ():
            file.unlink()
        if what == "poisoned":
            run(options, "poison")
        elif what == "busy":
            with loops(BUSY):
                run(options, "calibrate")

    found = {}
    for sequences, processes in ((1, options.prompts), (8, options.processes)):
        rows, reasons = [], []
        for first in range(processes):
            if first % max(processes // 2, 1) == 0:  # the process after is one that finds what the one before left
                spoil()
            settings = {"first": first, "sequences": sequences, "replies": options.replies}
            said = turns(options, settings, first) if options.apart else run(options, "reply", **settings)
            rows.append(said["ratios"])
            reasons.append(said["reason"])
        by_reply = [statistics.geometric_mean(column) for column in zip(*rows, strict=True)]
        found[sequences] = {"by_reply": by_reply, "processes": rows, "reasons": reasons}
        shown = "  ".join(f"{value:.2f}" for value in by_reply)
        firsts = [round(row[0], 2) for row in rows]
        print(f"{what:>9}, {sequences} at once: auto ÷ off by reply {shown}   (first ones {firsts})", flush=True)
    return found


def turns(options: argparse.Namespace, settings: dict[str, int], turn: int) -> dict[str, object]:
    """Return auto ÷ off of a process each, with the same prompts; which one is first changes with the turn."""
    seed, found = random.SystemRandom().randrange(1 << 30), {}
    for draft in ("off", "auto") if turn % 2 else ("auto", "off"):
        found[draft] = run(options, "apart", draft=draft, seed=seed, **settings)
    ratios = [off / auto for off, auto in zip(found["off"]["seconds"], found["auto"]["seconds"], strict=True)]
    return {"ratios": ratios, "reason": found["auto"]["reason"]}


def beside_load(options: argparse.Namespace) -> object:
    """Return tokens a second beside 0, 1 and 2 busy loops: the default, one and two threads, and without drafting."""
    ways = {
        "default": {}, "threads 1": {"threads": 1}, "threads 2": {"threads": 2}, "off": {"draft": "off"},
        "off, threads 1": {"draft": "off", "threads": 1}, "off, threads 2": {"draft": "off", "threads": 2},
    }  # fmt: skip
    for settings in ways.values():
        run(options, "load", **settings)  # calibrated while it is quiet
    found = {}
    for count in (0, 1, 2):
        rates: dict[str, list[float]] = {name: [] for name in ways}
        with loops(count):
            for _ in range(3):
                for name, settings in ways.items():
                    rates[name].append(run(options, "load", **settings))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        best = max(value for name, value in medians.items() if name != "default")
        found[count] = {"rates": rates, "ratio": medians["default"] / best}
        shown = ", ".join(f"{name} {value:.1f}" for name, value in medians.items())
        print(f"beside {count} busy loops: default ÷ best {medians['default'] / best:.2f}   ({shown})")
    return found


if __name__ == "__main__":
    main()
