"""What pyproject.toml asks for is what is imported, in both directions, and each has its line in the docs."""

import ast
import re
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from check_tree import ROOT, imports

FILE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = FILE["project"]
EXTRAS = PROJECT["optional-dependencies"]
BUILDING = ("docs", "wheels")  # extras that the package itself never imports
OPTIONAL = [name for extra, names in EXTRAS.items() if extra not in ("dev", *BUILDING) for name in names]
OURS = {
    "paceline",
    "tests",
    "check_tree",
    "write_tables",
    "write_stub",
    "rig",
    "llama_server",
    "reference",
    *(path.stem for path in (ROOT / "tests").rglob("*.py")),
}
# Run as commands or plugins, by the Makefile, CMake, pip or pytest, instead of imported.
COMMANDS = {"ruff", "mypy", "clang_format", "cmake", "ninja", "scikit_build_core", "pytest_xdist"}


def declared(requirements):
    return {re.split(r"[^\w.-]", line)[0].lower().replace("-", "_") for line in requirements}


def imported(folder):
    """Return the packages a folder imports that are neither Python's own nor ours."""
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        names |= {name.partition(".")[0] for _, name in imports(ast.parse(path.read_text()), "x")}
    return names - OURS - {"x", "__future__"} - set(sys.stdlib_module_names)


def test_the_package_imports_what_it_declares_and_nothing_else():
    assert imported("paceline") == declared(PROJECT["dependencies"]) | declared(OPTIONAL)


def test_only_the_benchmarks_import_what_only_they_declare():
    elsewhere = {path.name for path in (ROOT / "paceline").iterdir() if path.is_dir()} - {"bench"}
    assert not declared(EXTRAS["bench"]) & set.union(*map(imported, (f"paceline/{name}" for name in elsewhere)))


def test_dev_declares_what_tests_and_tools_import():
    used = imported("tests") | imported("tools")
    packages = declared([*PROJECT["dependencies"], *OPTIONAL])
    assert used - packages == declared(EXTRAS["dev"]) - COMMANDS - declared(
        [*EXTRAS["plot"], *EXTRAS["grammar"], *EXTRAS["serve"], *EXTRAS["docs"]]
    )


def test_the_docs_explain_each_dependency_and_nothing_else():
    text = (ROOT / "docs" / "dependencies.md").read_text()
    rows = re.findall(r"^\| ([\w, -]+) \|", text, re.MULTILINE)
    explained = declared(name for row in rows for name in row.split(", ")) - {"package"}
    built = [name for extra in BUILDING for name in EXTRAS[extra]]
    everything = [*PROJECT["dependencies"], *EXTRAS["dev"], *OPTIONAL, *built, *FILE["build-system"]["requires"]]
    assert explained == declared(everything)
