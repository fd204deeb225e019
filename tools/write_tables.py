"""Write what users may choose by name into the documentation, from where the names stand.

    python tools/write_tables.py        rewrites the tables of docs/guides/speculation.md

A table stands between `<!-- table: KIND -->` and `<!-- end -->`; a test compares it with what is written here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from paceline.choices import CONTROLLERS, DRAFTERS, VERIFIERS, VerifierChoice  # noqa: E402

PAGE = ROOT / "docs/guides/speculation.md"


def table(*rows: Iterable[str]) -> str:
    """Return rows as a table, the first as its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * (lines[0].count(" | ") + 1) + "|", *lines[1:]])


def verifier_row(choice: VerifierChoice) -> list[str]:
    """Return a verifier's row: what it promises, it says itself."""
    made = choice.make(choice.example) if choice.argument else choice.make()
    seed = "always: with any drafter, or none" if made.reproducible else "no: the text depends on what is drafted"
    return [f"`{choice.usage}`", choice.how, seed, "yes" if made.lossless else "**no**"]


def tables() -> dict[str, str]:
    """Return the tables by kind."""
    return {
        "draft": table(
            ["name", "guesses by", "good for"], *([f"`{c.usage}`", c.how, c.use] for c in DRAFTERS.values())
        ),
        "verify": table(["name", "how", "a seed repeats", "lossless"], *map(verifier_row, VERIFIERS.values())),
        "control": table(["name", "guesses"], *([f"`{c.usage}`", c.how] for c in CONTROLLERS.values())),
    }


def written(text: str) -> str:
    """Return a page with its tables written anew."""
    for kind, lines in tables().items():
        begin, end = f"<!-- table: {kind} -->", "<!-- end -->"
        text, count = re.subn(f"{begin}.*?{end}", lambda _, new=f"{begin}\n{lines}\n{end}": new, text, flags=re.DOTALL)
        assert count == 1, f"{PAGE} must have one {begin}, has {count}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
