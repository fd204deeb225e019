"""Install a wheel into an empty environment, with no compiler in reach, and try it there.

    python tools/try_wheel.py dist/paceline-….whl [--model smollm2-135m]

Prints the seconds of the installation and a reply by each instruction set that the processor has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from time import perf_counter

MOST_SECONDS = 20.0  # that the installation may take, with the index's packages at hand
ISAS = "from paceline.kernels.native import native; print(*native.isas())"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = try_it(options.wheel.resolve(), Path(folder), options.model)
    if seconds > MOST_SECONDS:
        sys.exit(f"the installation took {seconds:.1f} s, wanted at most {MOST_SECONDS:.0f}")


def try_it(wheel: Path, folder: Path, model: str) -> float:
    """Install and use a wheel; return the seconds that its own installation took."""
    venv.create(folder / "env", with_pip=True)
    bin = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    bare = {key: value for key, value in os.environ.items() if key not in ("CC", "CXX", "PYTHONPATH")}
    bare |= {"PATH": str(bin), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # neither compiler nor build tools

    def run(*words: str, **extra: str) -> str:
        done = subprocess.run(words, cwd=folder, env=bare | extra, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"`{' '.join(words)}` failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    python = str(bin / "python")
    started = perf_counter()
    run(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", str(wheel))
    seconds = perf_counter() - started
    print(f"installed in {seconds:.1f} s: {run(str(bin / 'paceline'), '--version').strip()}")
    for isa in run(python, "-c", ISAS).split():
        said = json.loads(
            run(str(bin / "paceline"), "generate", "-m", model, "-n", "16", "--json", "Count to ten.", PACELINE_ISA=isa)
        )
        assert len(said["token_ids"]) > 1, said
        print(f"{isa}: {said['text']!r}, {said['timing']['tokens_per_second']:.0f} tokens/s")
    return seconds


if __name__ == "__main__":
    main()
