"""The glossary names each thing once, and says where it lives."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ROWS = [tuple(part.strip() for part in line.strip("|").split("|")) for line in PAGE.splitlines() if line[:1] == "|"]
TERMS = {word: (meaning, places) for word, meaning, places in ROWS if word != "word" and set(word) != {"-"}}


@pytest.mark.parametrize("word", TERMS)
def test_a_words_modules_exist(word):
    _, places = TERMS[word]
    assert (found := re.findall(r"`([^`]+)`", places)), f"`{word}` lives nowhere"
    assert [name for name in found if not (ROOT / "paceline" / name).is_file()] == []


def test_each_word_has_one_meaning():
    names = [name for word, *_ in ROWS if word in TERMS for name in word.split(", ")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_glossary_is_linked(page):
    assert "(docs/glossary.md)" in (ROOT / page).read_text()
