"""Lets every folder of tests import the shared helpers: `tiny` from here, `gguf_writer` from tests/model.

Models that many tests want are made or loaded once, by each worker that runs tests.
"""

import contextlib
import functools
import os
import sys
from pathlib import Path

import pytest

from paceline.formats.catalog import models_folder

sys.path.insert(0, str(Path(__file__).parent / "model"))

# Numpy's threads and the pool's would wait for each other's cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# What tests measure of this machine is kept beside the build, not among the user's measurements; models are the user's.
HOME = Path(__file__).parent.parent / "build" / "home-of-tests"
HOME.mkdir(parents=True, exist_ok=True)
with contextlib.suppress(FileExistsError):
    (HOME / "models").symlink_to(models_folder(), target_is_directory=True)
os.environ["PACELINE_HOME"] = str(HOME)

# What drafters learn in tests is not kept, and what they do must not depend on what the user's have learnt.
os.environ["PACELINE_MEMORY"] = "off"


@pytest.fixture(autouse=True, scope="session")
def one_core():
    """Load models on one thread where a test asks for no number: on a busy machine, two wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.kernels.native.usable_cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def loaded():
    """Load the default model once for each set of settings; a test that changes its parts puts them back."""
    from paceline.service.llm import LLM

    return functools.cache(lambda **settings: LLM("smollm2-135m", **settings))


@pytest.fixture
def own_names(monkeypatch):
    """Let a test register names that are gone after it."""
    from paceline import choices

    for registry in (choices.DRAFTERS, choices.VERIFIERS, choices.CONTROLLERS):
        monkeypatch.setattr(registry, "_choices", dict(registry._choices))


@pytest.fixture(scope="session")
def talker(tmp_path_factory):
    """The path of a tiny model that talks: it loads and replies in milliseconds."""
    from talker import write_talker

    return write_talker(tmp_path_factory.mktemp("talker") / "talker.gguf")
