"""A report shows everything that was measured, on one page that needs nothing else."""

import re
import sys
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console
from run_tools import SETTINGS, prompt, prompts, start

from paceline.bench.page import bench_report, page
from paceline.bench.records import Records
from paceline.bench.show import show_run
from paceline.bench.summary import summarise
from paceline.errors import UsageError

PEERS = {"llama.cpp plain": {"tokens_per_second": 5.0, "tokens": 9, "drafted": 0, "accepted": 0}}
WRONG = {"position": 4, "plain": [1], "speculated": [2]}


@pytest.fixture(scope="module")
def shown():
    pytest.importorskip("matplotlib")
    last = prompt("code", 3, 10.0, 20.0, 15.0, peers=PEERS)
    last["replies"]["ngram fixed:4"]["difference"] = WRONG
    return page([summarise(SETTINGS, [start()], [*prompts(), last])])


class Outline(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.headings, self.tags = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.open.append(tag)
        for name, value in attributes:
            assert name not in ("src", "onload", "onclick"), (tag, name)
            assert name not in ("href", "xlink:href") or value.startswith("#"), value

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data)


def test_the_page_has_every_part_and_loads_nothing(shown):
    outline = Outline()
    outline.feed(shown)
    assert outline.headings == [
        "Speculation, measured",
        "tiny",
        "Temperature 0",
        "Speed-up by workload",
        "Tokens per second",
        "What is accepted",
        "Where a round's time goes",
        "What verifying costs: v(M)",
        "Is the output the same?",
        "Notes",
    ]
    assert not outline.tags & {"script", "link", "img", "iframe", "object"}
    assert "@import" not in shown
    assert shown.count("<svg") == 5


def test_numbers_stand_on_the_page(shown):
    assert "1 of 10" in shown
    assert "token 4: [1] became [2]" in shown
    assert "llama.cpp plain" in shown
    assert re.search(r"<td>1\.41</td>|>1\.41<", shown)  # ngram over both workloads
    assert "commit abc" in shown


def test_ink_is_the_page_s_own_and_names_are_escaped(shown):
    assert "#010203" not in shown
    assert "currentColor" in shown
    assert "A &lt;fast&gt; one" in shown
    assert "<fast>" not in shown


def test_files_become_a_page(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("paceline.bench.page.page", lambda found: f"a page of {len(found)}")
    records = Records(tmp_path / "r.jsonl", SETTINGS, resume=False)
    with pytest.raises(UsageError, match="holds no prompt"):
        bench_report([tmp_path / "r.jsonl"], tmp_path / "r.html")
    records.start(start())
    for record in prompts():
        records.add(record)
    (found,) = bench_report([tmp_path / "r.jsonl"], tmp_path / "r.html")
    assert found["prompts"] == 4
    assert (tmp_path / "r.html").read_text() == "a page of 1"
    with pytest.raises(UsageError, match="cannot write"):
        bench_report([tmp_path / "r.jsonl"], tmp_path)


def test_without_matplotlib_the_cure_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="cannot read") as wrong:
        bench_report([tmp_path / "none.jsonl"], tmp_path / "r.html")
    assert "bench run --out FILE" in wrong.value.hint
    with pytest.raises(UsageError, match="needs matplotlib") as wrong:
        bench_report([], tmp_path / "r.html")
    assert wrong.value.hint == 'pip install "paceline[plot]"'


def test_the_table_says_the_same():
    out = StringIO()
    found = summarise(SETTINGS, [start()], [prompt("code", 0, 10.0, 20.0, 15.0, peers=PEERS)])
    show_run(Console(file=out, width=140), found)
    text = out.getvalue()
    for word in (
        "2.00 (2.00–2.00)",
        "llama.cpp plain",
        "v(4) 1.30",
        "floor 8.0 ms",
        "all 2 replies",
        "of each workload, too: 4.00",
    ):
        assert word in text
    out = StringIO()
    show_run(Console(file=out), summarise(SETTINGS, [], []))
    assert "no prompt was measured" in out.getvalue()
