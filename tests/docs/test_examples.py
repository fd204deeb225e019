"""The examples run, and so does every Python block of the documentation and every command line parses."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import openai
import pytest
import typer

import paceline
from paceline.service.llm import LLM
from tests.server.conftest import serving

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/[gc]*/*.md"), ROOT / "docs/index.md"])
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.fixture
def small(talker, monkeypatch, own_names):
    """Let every model's name mean the tiny one that talks, on one thread and with short replies."""
    from paceline.engine import loading

    monkeypatch.setattr(loading, "resolve", lambda source, **_: Path(talker))
    real = LLM.__init__

    def short(self, model="talker", **settings):
        real(self, model, **{"threads": 1, **settings})

    monkeypatch.setattr(LLM, "__init__", short)


@pytest.fixture(scope="module")
def server(talker):
    with serving(lambda: LLM(talker, draft="suffix", context=512, threads=1)) as server:
        yield server


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "openai_client.py"])
def test_an_example_runs(name, small, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "talker"])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_client_of_openai_runs(server, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["openai_client.py", f"{server.url}/v1"])
    runpy.run_path(str(ROOT / "examples" / "openai_client.py"), run_name="__main__")
    assert "tokens; speculation: {" in capsys.readouterr().out


def test_the_page_of_examples_lists_them_all():
    page = (ROOT / "examples" / "README.md").read_text()
    assert sorted(re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE)) == EXAMPLES


def blocks(language):
    return [
        pytest.param(path, [text for kind, text in BLOCK.findall(path.read_text()) if kind == language], id=path.name)
        for path in PAGES
        if f"```{language}\n" in path.read_text()
    ]


@pytest.mark.parametrize(("path", "texts"), blocks("python"))
def test_the_python_of_a_page_runs(path, texts, small, server, monkeypatch):
    """Blocks of a page are one program; a client of OpenAI's talks to a server with one model for all names."""
    real = openai.OpenAI.__init__
    monkeypatch.setattr(
        openai.OpenAI, "__init__", lambda self, **more: real(self, **{**more, "base_url": f"{server.url}/v1"})
    )
    names = {"paceline": paceline, "lower_case_ids": [5, 6], "llm": paceline.load("talker", draft="off")}
    for text in texts:
        exec(compile(text, str(path), "exec"), names)


@pytest.mark.parametrize(("path", "texts"), blocks("sh"))
def test_the_commands_of_a_page_are_known(path, texts):
    """Every option and every choice of a command line is one that the command takes."""
    from paceline.cli.main import ALIASES, COMMANDS

    for text in texts:
        for line in re.split(r"\n(?! )", text.replace("\\\n", " ")):
            for part in re.split(r"[|&;]", line):
                words = words_of(part)
                if "paceline" not in words[:1] or len(words) < 2:
                    continue
                name = ALIASES.get(words[1], words[1])
                assert name in COMMANDS, part
                module = __import__(f"paceline.cli.{name}", fromlist=["app"])
                typer.main.get_command(module.app).make_context(name, words[2:], resilient_parsing=True)


def words_of(line):
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a prompt over several lines
        return []
    return words[: next((i for i, word in enumerate(words) if word in (">", "<", "2>")), len(words))]


@pytest.mark.parametrize("path", sorted({*PAGES, *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")}), ids=str)
def test_the_links_of_a_page_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
        made = path.parent.name in ("docs", "guides", "concepts") and "reference/" in target
        assert target.startswith("http") or made or (path.parent / target).exists(), target
