"""Importing the package and asking for help cost nothing; what is public is there."""

import subprocess
import sys

import pytest

import paceline

HEAVY = ("torch", "transformers", "numpy", "tokenizers", "jinja2", "huggingface_hub", "safetensors", "paceline._native")


def modules_after(code):
    """Return which heavy modules a fresh interpreter holds after `code`."""
    report = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules], file=sys.__stdout__)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()[-1]


def test_importing_the_package_imports_nothing_heavy():
    assert modules_after("import paceline; paceline.__version__; dir(paceline)") == "[]"


def modules_after_runs(*calls):
    return modules_after(f"from paceline.cli.main import run\nfor call in {calls!r}: run(call)")


def test_the_top_of_the_command_line_imports_nothing_heavy():
    assert modules_after_runs(["--help"], ["--version"], [], ["nonsense"]) == "[]"


def test_the_help_of_a_command_does_not_load_the_kernels():
    """One interpreter for all: what any of them loads is there at the end."""
    found = modules_after_runs(*([command, "--help"] for command in ("generate", "chat", "pull", "models", "bench")))
    assert not (set(HEAVY) - {"numpy"}) & set(eval(found)), found


@pytest.mark.parametrize("name", paceline.__all__)
def test_every_public_name_is_there(name):
    assert getattr(paceline, name) is not None
    assert name in dir(paceline)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute `LLLM`"):
        paceline.LLLM  # noqa: B018


def test_the_error_classes_form_one_tree():
    errors = [getattr(paceline, name) for name in paceline.__all__ if isinstance(getattr(paceline, name), type)]
    errors = [kind for kind in errors if issubclass(kind, Exception)]
    assert len(errors) == 12
    assert all(issubclass(kind, paceline.PacelineError) for kind in errors)


def test_load_passes_settings_on():
    with pytest.raises(paceline.UsageError, match="draft_tokenz"):
        paceline.load("smollm2-135m", draft_tokenz=3)
