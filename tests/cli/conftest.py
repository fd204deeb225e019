"""Ways to run the command line: in this process for speed, in another one where signals and pipes matter."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from paceline.cli.main import run

MODEL = "smollm2-135m"


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capfd):
    """Run a command line in this process."""

    def call(*arguments):
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        return Result(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def model():
    """The default model, which `make test` fetches."""
    from paceline.formats.catalog import known_models

    if next(record for record in known_models() if record.name == MODEL).path is None:
        pytest.fail(f"this test needs the default model: paceline pull {MODEL}", pytrace=False)
    return MODEL


@pytest.fixture
def one_load(model, monkeypatch):
    """Load each set of settings once for all tests of the session."""
    from paceline.service import llm as home

    real = home.LLM

    def load(*arguments, **settings):
        key = (arguments, tuple(sorted(settings.items())))
        if key not in _LOADED:
            _LOADED[key] = real(*arguments, **settings)
        return _LOADED[key]

    monkeypatch.setattr(home, "LLM", load)


_LOADED = {}


@pytest.fixture
def spawn():
    """Start `paceline` in a process of its own; it is killed at the end whatever happens."""
    started = []

    def start(*arguments, **options):
        environment = os.environ | {"PYTHONUNBUFFERED": "1"} | options.pop("env", {})
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *map(str, arguments)],
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def is_an_error(text):
    """Say whether stderr holds one error in the one form, and no traceback."""
    lines = text.rstrip("\n").split("\n")
    hinted = len(lines) >= 3 and lines[-2] == "" and lines[-1].startswith("hint: ")
    return lines[0].startswith("error: ") and "Traceback" not in text and (hinted or "hint:" not in text)
