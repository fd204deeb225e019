"""Count what texts are made of, for the draft's output rows: writes paceline/draft/model/pieces.json.xz.

    python tools/make_pieces.py        reads files of this machine for a minute or two

Sources, none of which is copied, only counted: Python's own library and installed packages (code and docstrings),
documentation under /usr/share/doc and in packages (Markdown, reStructuredText, HTML, text), C and C++ headers under
/usr/include, JavaScript, JSON, SQL and shell files of installed programs, and the translated messages of installed
programs in the most spoken languages. A piece is a word with the character before it, a digit, a run of marks or of
white space: what tokenizers cut first. Counts are kept as a logarithm, so that the file stays small.
"""

from __future__ import annotations

import gettext
import json
import lzma
import math
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parent.parent / "paceline" / "draft" / "model" / "pieces.json.xz"
PIECE = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)\b|(?:[^\w\r\n]|_)?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHARACTERS = 12_000_000  # read of each kind
MOST = 52_000  # pieces kept
LONGEST = 24  # characters of a piece
# fmt: off
LANGUAGES = ("de", "fr", "es", "it", "pt", "pt_BR", "nl", "pl", "sv", "tr", "id", "vi", "ru", "uk", "ar", "he", "hi",
             "ko", "ja", "zh_CN", "zh_TW")
# fmt: on

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
KINDS: dict[str, tuple[float, list[tuple[Path, str]]]] = {  # share of the whole, where to look
    "python": (0.30, [(LIBRARY, "*.py"), (Path("/usr/lib/python3"), "*.py")]),
    "prose": (0.30, [(Path("/usr/share/doc"), "*.md"), (LIBRARY, "*.md"), (LIBRARY, "*.rst"), (LIBRARY, "*.txt"),
                     (Path("/usr/share/common-licenses"), "*"), (Path("/usr/share/perl"), "*.pod")]),
    "script": (0.10, [(Path("/usr/lib/node_modules"), "*.js"), (Path("/usr/share"), "*.js"), (Path("/usr"), "*.ts")]),
    "headers": (0.10, [(Path("/usr/include"), "*.h"), (Path("/usr/include"), "*.hpp"),
                      (Path("/usr/include/c++"), "*")]),
    "pages": (0.05, [(Path("/usr/share"), "*.html"), (Path("/usr/share"), "*.css"), (Path("/usr/share"), "*.xml")]),
    "data": (0.05, [(Path("/usr/lib"), "*.json"), (Path("/usr"), "*.sql"), (Path("/usr/share"), "*.sh"),
                    (Path("/usr"), "*.go"), (Path("/usr"), "*.java"), (Path("/usr"), "*.rs"), (Path("/usr"), "*.cs")]),
}  # fmt: skip
TRANSLATED = 0.10


def texts(places: list[tuple[Path, str]]) -> Iterator[str]:
    """Yield the files of a kind, from all over the tree, until enough was read of each place."""
    for folder, pattern in places:
        files = sorted(path for path in folder.rglob(pattern) if path.is_file())
        left, step = CHARACTERS // len(places), max(len(files) // 4000, 1)
        for path in (path for first in range(step) for path in files[first::step]):
            text = path.read_text(errors="ignore")[:100_000]
            yield text
            left -= len(text)
            if left < 0:
                break


def translations(language: str) -> Iterator[str]:
    """Yield the messages of installed programs in a language."""
    for path in sorted(Path("/usr/share/locale").glob(f"{language}/LC_MESSAGES/*.mo")):
        try:
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        except (OSError, UnicodeDecodeError):
            continue
        yield "\n".join(text for text in catalog.values() if isinstance(text, str))


def shares(found: Iterator[str]) -> dict[str, float]:
    """Return each piece's share of all pieces."""
    counts: Counter[str] = Counter()
    for text in found:
        counts.update(piece for piece in PIECE.findall(text) if len(piece) <= LONGEST)
    total = sum(counts.values()) or 1
    return {piece: count / total for piece, count in counts.items() if count > 2}


def main() -> None:
    """Count, weigh, and write."""
    sums: Counter[str] = Counter()
    for name, (weight, places) in KINDS.items():
        found = shares(texts(places))
        print(name, len(found))
        for piece, share in found.items():
            sums[piece] += weight * share  # type: ignore[assignment]
    for language in LANGUAGES:
        for piece, share in shares(translations(language)).items():
            sums[piece] += TRANSLATED / len(LANGUAGES) * share  # type: ignore[assignment]
    groups: dict[int, list[str]] = {}
    for piece, share in sums.most_common(MOST):
        groups.setdefault(round(-4 * math.log2(share)), []).append(piece)
    # The share of a group's pieces is 2^(-key/4).
    content = json.dumps({key: sorted(pieces) for key, pieces in sorted(groups.items())}, ensure_ascii=False)
    OUT.write_bytes(lzma.compress(content.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{sum(map(len, groups.values()))} pieces, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
