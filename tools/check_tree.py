"""Enforce the shape of the tree: imports point one way, no file outgrows 400 lines, and prose is about components.

    python tools/check_tree.py        exits 1 and lists what is wrong

Reads imports from the syntax tree, so also those inside functions and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT = 400
SIZED = (".py", ".cpp", ".h", ".inc")

# A module imports its own level and lower ones.
LEVELS = {
    **dict.fromkeys(("core", "errors", "registry", "choices", "config", "environment", "hardware", "store"), 0),
    **dict.fromkeys(("text", "formats", "model", "kernels", "sample", "verify", "estimate", "control", "_native"), 1),
    "draft": 2,
    "lab": 2,
    "engine": 3,
    "service": 4,
    **dict.fromkeys(("testing", "server", "bench", "plan", "audit", "doctor", "train"), 5),
    "cli": 6,
    "__main__": 7,
}
# Neighbours on one level that must not know each other: distributions and control are pure maths (drawing has a
# native twin).
FORBIDDEN = {
    "sample": ("model", "text", "verify", "control", "estimate"),
    "verify": ("model", "kernels", "text", "control", "estimate"),
    "control": ("model", "kernels", "text", "verify"),
    "estimate": ("model", "kernels", "text", "verify", "control", "sample"),
    "model": ("sample", "verify", "control", "estimate"),
    "formats": ("model", "sample", "verify", "control", "estimate", "text"),
}
# A backend is known by what it declares (model/base.py), not by its class.
BACKENDS = ("model.native",)
BACKEND_HOME = "model/"
TORCH_HOMES = ("model/transformers.py", "bench/peer_transformers.py", "train/")
TORCH = ("torch", "transformers")
# A source, a thread or a sequence is not a person: a sentence in the package's sources names the component.
PEOPLE = re.compile(r"\b(?:who|whoever|whom|nobody|everybody|somebody|anybody)\b", re.IGNORECASE)
# Sources point only at what is in the repository: no numbers of cases, and no pages that are not here.
CASE = re.compile(r"\b[CD]\d\d\b|\bALGORITHM[S]\b")
PAGE = re.compile(r"\b[\w/-]+\.md\b")


def imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything a module imports; `package` resolves relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def complaints(path: Path, source: str) -> list[str]:
    """Return what is wrong with the imports of one module; `path` is relative to the package folder."""
    own = path.with_suffix("").parts[0]
    if own == "__init__":
        return []  # the lazy public names
    package = ".".join(("paceline", *path.parent.parts))
    found = []
    if own not in LEVELS:
        return [f"paceline/{path}: `{own}` has no level; give it one in tools/check_tree.py"]
    for line, name in imports(ast.parse(source), package):
        top, *rest = name.split(".")
        where = f"paceline/{path}:{line}"
        if top in TORCH and not str(path.as_posix()).startswith(TORCH_HOMES):
            found.append(f"{where}: `{top}` belongs to {' and '.join(TORCH_HOMES)} only")
        if top != "paceline" or not rest or rest[0] not in LEVELS:
            continue  # the standard library, a dependency, or a public name of the package
        target = rest[0]
        if ".".join(rest[:2]) in BACKENDS and not path.as_posix().startswith(BACKEND_HOME):
            found.append(f"{where}: backends are chosen in {BACKEND_HOME}backend.py; ask for their capabilities")
        if LEVELS[target] > LEVELS[own]:
            found.append(f"{where}: `{own}` (level {LEVELS[own]}) imports `{target}` (level {LEVELS[target]})")
        elif target in FORBIDDEN.get(own, ()):
            found.append(f"{where}: `{own}` must not know `{target}`")
    return found


def oversized(root: Path) -> list[str]:
    """Return the sources that are longer than the limit."""
    found = []
    for folder in ("paceline", "tests", "tools"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SIZED and (count := len(path.read_bytes().splitlines())) > LIMIT:
                found.append(f"{path.relative_to(root)}: {count} lines, at most {LIMIT}")
    return found


def wording(path: str, source: str, root: Path) -> list[str]:
    """Return the words that a source must not have; `path` is relative to the root, with slashes."""
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        where = f"{path}:{number}"
        if path.startswith("paceline/") and (word := PEOPLE.search(line)):
            found.append(f"{where}: `{word.group()}` is a person; name the component instead")
        if case := CASE.search(line):
            found.append(f"{where}: `{case.group()}` points outside the repository; say what it is about")
        for page in PAGE.findall(line):
            if not any((folder / page).is_file() for folder in (root, root / "docs")):
                found.append(f"{where}: `{page}` is not in the repository")
    return found


def main() -> int:
    """Check the whole tree."""
    package = ROOT / "paceline"
    found = oversized(ROOT)
    for path in sorted(package.rglob("*.py")):
        found += complaints(path.relative_to(package), path.read_text())
    for folder in ("paceline", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SIZED:
                found += wording(path.relative_to(ROOT).as_posix(), path.read_text(), ROOT)
    print("\n".join(found) if found else "imports point one way; no file is too long; sources name components")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
