"""Judge controllers without a machine's noise: recorded replies on a virtual clock; see docs/guides/replay.md.

python tools/replay.py                      what the controller makes on every machine, and what hindsight makes
python tools/replay.py --control fixed:4    the same of another
python tools/replay.py ablate               what each number and device of the policy is worth
python tools/replay.py record               record anew, with the models
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from rig.ablate import CHANGES, ablate
from rig.judge import Question, complaints, judge
from rig.machines import MACHINES
from rig.play import AUTO, control_of
from rig.recording import HOME, save
from rig.show import ablation_of, table_of

from paceline.errors import PacelineError


def main(arguments: list[str] | None = None) -> int:
    """Run a command."""
    options = _options(arguments)
    try:
        return {"play": _play, "ablate": _ablate, "record": _record}[options.command](options)
    except (PacelineError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="replay.py", description="Judge controllers without a machine's noise.")
    parser.add_argument("command", nargs="?", default="play", choices=("play", "ablate", "record"))
    parser.add_argument("--control", default="optimal", help="optimal, fixed:K, ema, schedule or confidence")
    parser.add_argument("--draft", default=AUTO, help="some of %(default)s, with commas between them")
    parser.add_argument("--machines", default=",".join(MACHINES), help="some of %(default)s")
    parser.add_argument("--sessions", type=int, default=2, help="orders of the texts, each with noise of its own")
    parser.add_argument("--seed", type=int, default=0, help="of the first session; 0 has the texts as recorded")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--file", type=Path, default=HOME, help="a recording; `record` writes it")
    parser.add_argument("--json", action="store_true", help="print one line of JSON only")
    changing = parser.add_argument_group("ablate")
    changing.add_argument("--only", default="", help="changes with this in their name")
    making = parser.add_argument_group("record")
    making.add_argument("--model", default="qwen2.5-coder-1.5b")
    making.add_argument("--with", dest="model_of_draft", default="qwen2.5-coder-0.5b", help="the draft model")
    making.add_argument("--workloads", default="code,edit,chat,math,summarise,rag")
    making.add_argument("--prompts", type=int, default=4)
    making.add_argument("--max-tokens", type=int, default=160)
    making.add_argument("--threads", type=int)
    return parser.parse_args(arguments)


def _play(options: argparse.Namespace) -> int:
    started, question = time.perf_counter(), _question(options)
    found = judge(question, processes=options.processes)
    wrong = complaints(found)
    if not options.json:
        print(table_of(found), end="\n\n")
        print(f"{time.perf_counter() - started:.0f} s")
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    print(json.dumps(found))
    return bool(wrong)


def _ablate(options: argparse.Namespace) -> int:
    names = [name for name in CHANGES if options.only in name]
    if not names:
        raise ValueError(f"no change has `{options.only}` in its name")
    show = None if options.json else lambda doing: print(doing, end="\r", file=sys.stderr, flush=True)
    found = ablate(_question(options), names, processes=options.processes, show=show)
    if not options.json:
        print(ablation_of(found), end="\n\n")
    print(json.dumps(found))
    return 0


def _record(options: argparse.Namespace) -> int:
    from rig.record import record

    from paceline.bench.workloads import asks

    wanted = asks(tuple(options.workloads.split(",")), options.prompts, options.max_tokens)
    for recording in record(options.model, options.model_of_draft, wanted, threads=options.threads):
        size = save(recording, options.file)  # what there is, should it be broken off
    print(f"{size} bytes, {len(recording.vocabulary)} tokens: {options.file}")
    return 0


def _question(options: argparse.Namespace) -> Question:
    control_of(options.control)
    machines = tuple(options.machines.split(","))
    if wrong := next((name for name in machines if name not in MACHINES), None):
        raise ValueError(f"a machine must be one of {', '.join(MACHINES)}, got `{wrong}`")
    sessions = tuple(range(options.seed, options.seed + options.sessions))
    return Question(options.control, options.draft, machines, sessions, options.file)


if __name__ == "__main__":
    sys.exit(main())
