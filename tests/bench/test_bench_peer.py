"""The peer's two ends talk, with a stand-in for its package: what is asked arrives, what goes wrong is said."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from paceline.bench.peer import Peer, PeerError, Timings
from paceline.bench.peers import TransformersPeer, parse_against, start_peers
from paceline.bench.session import Plan, Progress
from paceline.bench.suites import start_peer
from paceline.errors import UsageError

# What the child imports. It writes down what it was asked; a token id of 13 or 14 makes it fail in a way of its own.
PACKAGE = """
import json, os, sys
from types import SimpleNamespace as Space

class CommonParams(Space):
    def __init__(self):
        draft = Space(mparams=Space(path=""), cpuparams=Space(), cpuparams_batch=Space())
        super().__init__(model=Space(path=""), cpuparams=Space(), cpuparams_batch=Space())
        self.speculative = Space(types=[0], draft=draft)

common_speculative_type = Space(COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE=1, COMMON_SPECULATIVE_TYPE_NGRAM_MOD=9)

class Server:
    def __init__(self, params):
        if "broken" in params.model.path:
            raise RuntimeError("no such tensor")
        self.params = params

    def handle_completions(self, asked):
        print("chatter that must not reach the parent")
        os.write(1, b"chatter of native code\\n")
        if 13 in asked["prompt"]:
            return {"code": 400, "message": "an unlucky token"}
        if 14 in asked["prompt"]:
            os._exit(3)
        p = self.params
        draft = p.speculative.draft
        used = [p.speculative.types, draft.mparams.path, getattr(draft.cpuparams, "n_threads", None)]
        made = [p.n_ctx, p.n_parallel, p.cpuparams.n_threads, p.cpuparams_batch.n_threads]
        with open(p.model.path, "w") as file:
            json.dump({"asked": asked, "made": made, "speculative": used}, file)
        timings = {"prompt_n": len(asked["prompt"]), "prompt_ms": 250.0}
        if p.speculative.types != [0]:
            timings |= {"draft_n": 10, "draft_n_accepted": 7}
        return {"timings": {**timings, "predicted_n": asked["max_tokens"], "predicted_ms": 1500.0}}

def get_system_info():
    return "  FAKE = 1 | "
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a peer on a file of the given name; it is ended whatever happens."""
    (tmp_path / "xllamacpp.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    peers = []

    def call(name="model.gguf", **options):
        peers.append(Peer(tmp_path / name, threads=3, context=512, **options))
        return peers[-1]

    yield call
    for peer in peers:
        peer.close()


def test_a_completion_arrives_as_asked_and_its_timings_come_back(start, tmp_path):
    peer = start()
    assert peer.about == {"system": "FAKE = 1", "package": "xllamacpp"}
    for keep in (False, True):
        timings = peer.complete([5, 6, 7], 4, keep=keep)
        assert timings == Timings(prompt_tokens=3, prompt_seconds=0.25, tokens=4, decode_seconds=1.5)
        assert timings.seconds_per_token == 0.5  # three tokens after the first
        seen = json.loads((tmp_path / "model.gguf").read_text())
        assert seen["made"] == [512, 1, 3, 3]
        assert seen["speculative"] == [[0], "", None]
        assert seen["asked"] == {
            "prompt": [5, 6, 7],
            "max_tokens": 4,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
            "cache_prompt": keep,
            "samplers": ["temperature"],
        }
    assert peer.idle_cores == 0.0


def test_draft_and_look_up_modes_tell_what_they_drafted(start, tmp_path):
    small = tmp_path / "small.gguf"
    for options, used in (
        ({"mode": "draft", "draft": small}, [[1], str(small), 3]),
        ({"mode": "ngram-mod"}, [[9], "", None]),
    ):
        peer = start(**options)
        timings = peer.complete([5], 4, temperature=0.5, seed=9, ignore_eos=False)
        assert (timings.drafted, timings.accepted) == (10, 7)
        seen = json.loads((tmp_path / "model.gguf").read_text())
        assert seen["speculative"] == used
        assert [seen["asked"][name] for name in ("temperature", "seed", "ignore_eos")] == [0.5, 9, False]


def test_a_mode_the_package_does_not_have_is_said(start):
    with pytest.raises(PeerError, match="NGRAM_CACHE"):
        start(mode="ngram-cache")


def test_peers_that_cannot_start_are_noted_and_the_others_run(start, tmp_path):
    company = start_peers(
        ("llama.cpp:plain,draft,ngram-mod,ngram-cache",), tmp_path / "m.gguf", None, threads=2, context=9
    )
    try:
        assert list(company.running) == ["llama.cpp plain", "llama.cpp ngram-mod"]
        assert company.about == {"llama.cpp": {"system": "FAKE = 1", "package": "xllamacpp"}}
        assert company.missing["llama.cpp draft"] == "no draft model among the ways"
        assert "NGRAM_CACHE" in company.missing["llama.cpp ngram-cache"]
    finally:
        company.close()


def test_a_peer_failing_plainly_skips_its_other_modes(start, tmp_path):
    company = start_peers(("llama.cpp",), tmp_path / "broken.gguf", None, threads=2, context=9)
    assert list(company.missing) == ["llama.cpp plain"]
    assert company.running == {}


@pytest.mark.parametrize("name", ["llama", "llama.cpp:", "llama.cpp:eagle", "transformers:ngram-mod"])
def test_unknown_peers_and_modes_are_wrong_calls(name):
    with pytest.raises(UsageError, match="got `"):
        parse_against(name)


def test_closing_ends_the_child(start):
    peer = start()
    peer.close()
    assert peer._child.poll() == 0


def test_a_model_it_cannot_load_is_said(start):
    with pytest.raises(PeerError, match="RuntimeError: no such tensor"):
        start("broken.gguf")


def test_a_refused_completion_is_said_and_the_next_one_works(start):
    peer = start()
    with pytest.raises(PeerError, match="an unlucky token"):
        peer.complete([13], 1)
    assert peer.complete([1], 1) == Timings(1, 0.25, 1, 1.5)


def test_a_lost_child_is_said_with_its_exit_code(start):
    peer = start()
    with pytest.raises(PeerError, match="exit code 3"):
        peer.complete([14], 1)
    with pytest.raises(PeerError, match="exit code 3"):
        peer.complete([1], 1)


def test_unreadable_files_and_a_missing_package_are_said(start, monkeypatch):
    with pytest.raises(PeerError, match=r"`folder` is none"):
        start("folder")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PeerError, match=r"paceline\[bench\]"):
        start()


class Session:
    plan = Plan(("decode",), 1, contexts=(4000,))

    class pool:
        threads = 2


def test_the_report_names_the_peer_or_why_there_is_none(start, tmp_path, monkeypatch):
    shown = StringIO()
    for name in ("model.gguf", "broken.gguf"):
        monkeypatch.setattr("paceline.bench.suites.resolve", lambda model, name=name: tmp_path / name)
        run = {}
        peer = start_peer(Session, "m", run, Console(file=shown, width=200), Progress())
        if name == "model.gguf":
            assert run["peer"] == {"system": "FAKE = 1", "package": "xllamacpp", "threads": 2, "context": 4256}
            peer.close()
        else:
            assert peer is None
            assert "no such tensor" in run["peer"]["missing"]
    assert "llama.cpp built for: FAKE = 1" in shown.getvalue()
    assert "without llama.cpp: llama.cpp: RuntimeError: no such tensor" in shown.getvalue()


# What the transformers child imports: five tokens come one by one, or two and three at once if something drafts.
TORCH = """
import contextlib
from types import SimpleNamespace as Space

__version__, bfloat16 = "2", "bf16"
inference_mode = contextlib.nullcontext
seen = []

class Ids(list):
    @property
    def shape(self):
        return (1, len(self[0]))

    def numel(self):
        return len(self[0])

def tensor(ids):
    return Ids(ids)

def ones_like(ids):
    return ids

def manual_seed(seed):
    seen.append(seed)

def set_num_threads(threads):
    seen.append(threads)
"""
TRANSFORMERS = """
import json
from pathlib import Path
from torch import Ids, seen

__version__ = "5"

class Model:
    dtype = "bf16"

    def __init__(self, folder, **options):
        self.folder, self.options = str(folder), options

    def eval(self):
        return self

    def generate(self, prompt, attention_mask, streamer, assistant_model=None, prompt_lookup_num_tokens=0, **options):
        drafted = assistant_model or prompt_lookup_num_tokens
        streamer.put(prompt)
        for count in [2, 3] if drafted else [1] * 5:
            streamer.put(Ids([[0] * count]))
        streamer.end()
        draft = assistant_model and assistant_model.options
        known = {"folder": self.folder, "file": self.options, "draft": draft, "asked": options, "seen": seen}
        Path(self.folder, "asked.json").write_text(json.dumps(known))
        return Ids([[0] * (len(prompt[0]) + 5)])

class AutoModelForCausalLM:
    from_pretrained = Model
"""


def test_transformers_answers_in_the_same_words(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "transformers.py").write_text(TRANSFORMERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    for mode, draft, rest in (("plain", None, 4), ("draft", tmp_path / "small.gguf", 3)):
        peer = TransformersPeer(tmp_path / "m.gguf", 3, 512, mode=mode, draft=draft)
        try:
            assert peer.about == {"system": "transformers 5, torch 2, bf16", "package": "transformers"}
            timings = peer.complete([7, 8], 5, temperature=0.5, seed=4)
        finally:
            peer.close()
        assert (timings.prompt_tokens, timings.tokens) == (2, rest + 1)  # those that came at first count as one
        seen = json.loads((tmp_path / "asked.json").read_text())
        assert seen["folder"] == str(tmp_path)
        assert seen["file"] == {"dtype": "bf16", "gguf_file": "m.gguf"}
        assert seen["draft"] == (draft and {"dtype": "bf16", "gguf_file": "small.gguf"})
        assert seen["seen"] == [3, 4]
        asked = {
            "max_new_tokens": 5,
            "min_new_tokens": 5,
            "do_sample": True,
            "temperature": 0.5,
            "top_k": 0,
            "top_p": 1.0,
        }
        assert seen["asked"] == asked


def test_what_transformers_cannot_read_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(PeerError, match=r"`m\.bin` is neither"):
        TransformersPeer(tmp_path / "m.bin", 1, 512)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PeerError, match=r"paceline\[transformers\]"):
        TransformersPeer(tmp_path / "m.gguf", 1, 512)
