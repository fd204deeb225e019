"""The audit passes what is right and catches a fault in a verifier, a draft distribution, the cache and the
penalties.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import paceline
import paceline.service.llm as engine
import paceline.verify.coupled as coupled
from paceline.audit.audit import Audit, audit, reply
from paceline.audit.distribution_check import check
from paceline.audit.forced import first_difference
from paceline.audit.prompts import OURS, read
from paceline.cli.audit import show_audit
from paceline.cli.main import run
from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams, View
from paceline.core.tree import Draft, TokenTree, Verdict
from paceline.draft.base import empty_draft
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.errors import UsageError
from paceline.model.cache import PagedCache
from paceline.service.llm import LLM
from paceline.testing import ByteTokenizer, TinyModel
from paceline.verify.coupled import CoupledVerifier
from paceline.verify.tree import RejectionVerifier
from tests.talker import write_talker

REPEATING = "Repeat: a b c d a b c d a b c d a b c d a b c d"
SHORT = SamplingParams(max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(talker):
    return LLM(talker, draft="ngram", control="fixed", draft_tokens=4, context=256)


def examine(llm, params=SHORT, prompts=(REPEATING,)):
    return audit(llm, prompts, params, distribution_seconds=0)


def test_what_is_right_passes(llm):
    found = examine(llm)
    assert found.passed
    assert found.finished
    said = found.to_json()
    assert said["drafted"] > 0
    assert said["replies"] == 2
    assert said["differences"] == []


class EmitsTheDraft(CoupledVerifier):
    """Fault: the refused guess goes out."""

    def verify(self, draft, logits, view):
        verdict = super().verify(draft, logits, view)
        children = draft.tree.children(verdict.nodes[-1] if verdict.nodes else 0)
        return Verdict(verdict.nodes, int(draft.tree.tokens[children[0]])) if children else verdict


def test_a_verifier_fault_is_caught_with_place_tokens_and_margin(llm):
    with llm.engine.playing(replace(llm.engine.parts, verifier=EmitsTheDraft())):
        found = examine(llm)
    assert not found.passed
    (one, *_) = [one for one in found.compared if one.forced]
    assert one.forced.verdict == "bug"
    assert one.forced.margin > 0
    assert one.forced.wanted != one.forced.got
    assert one.plain.position == one.forced.position


class Beside(NgramDrafter):
    """Guesses the right tokens behind a wrong one beside each first, so that a path must be gathered in the cache."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def propose(self, views, budgets):
        drafts = []
        for view, budget in zip(views, budgets, strict=True):
            right = self.text[len(view.tokens) : len(view.tokens) + min(2, budget.depth)]
            if budget.nodes < 3 or len(right) < 2:
                drafts.append(empty_draft(view))
                continue
            tokens = np.array([view.tokens[-1], (right[0] + 1) % 1000, *right], np.int32)
            tree = TokenTree(tokens, np.array([-1, 0, 0, 2], np.int32))
            drafts.append(Draft(tree, np.ones(4, np.float32), np.zeros(4, np.int8)))
        return drafts


def test_a_fault_in_the_caches_rollback_is_caught(llm, monkeypatch):
    ids = llm.encode(REPEATING, chat=True)
    commit = PagedCache.commit
    answer = [*ids, *reply(llm, ids, SHORT, plain=True).token_ids]

    def careless(self, sequence, nodes, tokens):
        """Fault: the refused guess's keys and values stay where the accepted one's belong."""
        store = self.store
        self.store = SimpleNamespace(pages=store.pages, copy_page=store.copy_page, copy_tokens=lambda source, to: None)
        try:
            commit(self, sequence, nodes, tokens)
        finally:
            self.store = store

    with llm.engine.playing(replace(llm.engine.parts, drafter=Beside(answer))):
        assert examine(llm).passed
        monkeypatch.setattr(PagedCache, "commit", careless)
        assert not examine(llm).passed


def forget_penalties(monkeypatch):
    real = coupled.draw

    def forgetful(logits, view, path=(), *, peaks=None):
        """Fault: penalties do not see the drafted path."""
        behind = View(view.id, np.concatenate([view.tokens[: len(view.tokens)], np.zeros(0, np.int32)]), view.params)
        return real(logits, replace(behind, prompt_length=len(view.tokens), ends=view.ends), path, peaks=peaks)

    monkeypatch.setattr(coupled, "draw", forgetful)


def test_a_fault_in_the_penalties_is_caught(llm, monkeypatch):
    params = replace(SHORT, max_tokens=20, frequency_penalty=0.6)
    assert examine(llm, params).passed
    forget_penalties(monkeypatch)
    assert not examine(llm, params).passed


# ---- the distribution


def pairs_of(model, drafter, verifier):
    """Return what draws pairs of tokens through a whole engine."""
    tokenizer = ByteTokenizer.letters(model.spec.vocab)
    engine = Engine(model, tokenizer, drafter, FixedController(2), verifier, context=64, slots=16)
    ids = iter(range(10**6))

    def draw_pairs(params, seeds):
        requests = [Request(next(ids), [0, 1, 2], replace(params, seed=seed)) for seed in seeds]
        said = {request.id: [] for request in requests}
        for request in requests:
            engine.add(request)
        for event in engine.run():
            said[event.request] += event.tokens
        return list(said.values())

    return draw_pairs


honest = ModelDrafter.propose


class Lying(ModelDrafter):
    """Fault: says that it drew from another distribution than it did."""

    def propose(self, views, budgets):
        drafts = honest(self, views, budgets)
        return [
            replace(
                d,
                distributions={
                    n: np.full(len(distribution), 1 / len(distribution)) for n, distribution in d.distributions.items()
                },
            )
            for d in drafts
        ]


@pytest.mark.parametrize(("kind", "passes"), [(ModelDrafter, True), (Lying, False)])
def test_a_drafters_lie_about_its_distribution_is_caught(kind, passes):
    model = TinyModel(6, reach=2, seed=1)
    drafter = kind(TinyModel(6, reach=2, seed=9), context=64, draws="chain")
    view = View(0, np.array([0, 1, 2], np.int32), SamplingParams(), 3)
    found = check(pairs_of(model, drafter, RejectionVerifier()), model, view, is_late=lambda: False, most=640)
    assert found.passed == passes, found
    assert found.draws == 640
    assert 0 < found.visible < 0.5


@pytest.mark.parametrize("lies", [False, True])
def test_the_whole_audit_catches_a_drafters_lie_about_its_distribution(talker, tmp_path, monkeypatch, lies):
    """No reply shows it: every token of a falsely accepted guess is possible."""
    other = write_talker(tmp_path / "other.gguf", seed=2)
    llm = LLM(talker, draft=str(other), verify="rejection", control="fixed", draft_tokens=2, context=256)
    if lies:
        monkeypatch.setattr(ModelDrafter, "propose", Lying.propose)
    found = audit(llm, [REPEATING], replace(SHORT, max_tokens=8), distribution_seconds=0.5)
    assert all(one.passed for one in found.compared)
    assert found.distribution.drafted > 0
    assert found.passed != lies, found.distribution


def test_the_distribution_check_drafts_whatever_the_controller_decides(talker):
    llm = LLM(talker, draft=str(talker), context=256)
    with llm.engine.playing(replace(llm.engine.parts, controller=FixedController(0))):
        found = audit(llm, [REPEATING], replace(SHORT, max_tokens=4), distribution_seconds=0.01)
    assert found.drafted == 0
    assert found.distribution.drafted > 0


def test_a_distribution_check_without_drafts_says_so(talker, capsys):
    llm = LLM(talker, draft="off", context=256)
    found = audit(llm, [REPEATING], replace(SHORT, max_tokens=4), distribution_seconds=0.01)
    said = found.to_json()
    assert found.passed
    assert (said["drafted"], said["speculated"]) == (0, False)
    assert (said["distribution"]["drafted"], said["distribution"]["speculated"]) == (0, False)
    show_audit(llm, found, 0.8, interrupted=False)
    assert capsys.readouterr().out.count("say nothing of speculation") == 1
    show_audit(llm, replace(found, distribution=None), 0.8, interrupted=False)
    assert "PASSED, but nothing was drafted" in capsys.readouterr().out


# ---- parts


def test_a_text_of_another_seed_is_found_out(llm):
    ids = llm.encode(REPEATING, chat=True)
    params = replace(SHORT, temperature=1.0, seed=1)
    said = llm.generate(ids, params).token_ids
    view = View(0, np.array(ids, np.int32), params, len(ids), frozenset())
    model = llm.engine.parts.model
    assert first_difference(model, view, said) is None
    other = replace(view, params=replace(params, seed=2))
    assert first_difference(model, other, said).verdict == "bug"
    assert first_difference(model, other, said, is_keyed=False) is None, "possible all the same"


def test_an_interrupted_audit_keeps_what_it_has(llm):
    found = Audit({})

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(llm, [REPEATING] * 2, replace(SHORT, max_tokens=2), distribution_seconds=0, found=found, progress=stop)
    assert len(found.compared) == 2
    assert not found.finished


@pytest.mark.parametrize(("text", "prompts"), [
    ("one\n\ntwo\n", ["one", "two"]), ('["a\\nb", "c"]', ["a\nb", "c"]), ("[x", None), ("[1]", None), ("\n \n", None),
])  # fmt: skip
def test_prompts_come_one_a_line_or_as_a_list(text, prompts, tmp_path):
    file = tmp_path / "prompts"
    file.write_text(text)
    if prompts is None:
        with pytest.raises(UsageError, match="prompts"):
            read(file)
    else:
        assert read(file) == prompts
        file.write_text(text, encoding="utf-8-sig")  # a mark of the byte order is none of the text
        assert read(file) == prompts


def test_a_missing_prompt_file_is_told_with_its_format(tmp_path):
    with pytest.raises(UsageError, match="cannot read") as error:
        read(tmp_path / "none")
    assert "one prompt a line" in error.value.hint


def test_our_prompts_are_twenty_different_ones():
    assert len(set(OURS)) == 20


def test_the_command_says_it_and_ends_with_its_code(llm, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(engine, "LLM", lambda *arguments, **settings: llm)
    file = tmp_path / "prompts"
    file.write_text(REPEATING)
    call = ["audit", "--draft", "ngram", "--max-tokens", "20", "--prompts", str(file), "--distribution-seconds", "0.01"]
    assert run([*call, "--ignore-eos", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["passed"]
    assert said["distribution"]["draws"] > 0
    assert run([*call, "--ignore-eos"]) == 0
    assert "PASSED" in capsys.readouterr().out
    assert run([*call, "--max-tokens", "1"]) == 1, "a pass without a guess proves nothing"
    assert "nothing was drafted" in capsys.readouterr().out
    assert run(["audit", "--prompts", str(tmp_path / "none")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_the_command_finds_a_fault_in_the_penalties(llm, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(engine, "LLM", lambda *arguments, **settings: llm)
    file = tmp_path / "prompts"
    file.write_text(REPEATING)
    call = ["audit", "--max-tokens", "20", "--ignore-eos", "--prompts", str(file), "--distribution-seconds", "0"]
    call += ["--frequency-penalty", "0.6", "--bad-word", "zz", "--logit-bias", "70=1", "--temperature", "1"]
    assert run(call) == 0
    assert "at temperature 1 by the seed" in capsys.readouterr().out
    forget_penalties(monkeypatch)
    assert run(call) == 1
    assert "FAILED" in capsys.readouterr().out


def test_replies_are_audited_with_their_prediction(talker):
    llm = LLM(talker, draft="predicted", control="fixed", draft_tokens=4, context=256)
    said = llm.generate(REPEATING, SHORT, chat=True).text
    found = audit(llm, [REPEATING], SHORT, temperature=0, prediction=said, distribution_seconds=0)
    (one,) = found.compared
    assert one.passed
    assert one.accepted > 0


def test_the_audit_is_a_function_too(llm):
    said = paceline.run_audit(llm, [REPEATING], replace(SHORT, max_tokens=8), temperature=0, distribution_seconds=0.01)
    assert json.loads(json.dumps(said))["passed"]
    assert (said["replies"], said["finished"]) == (1, True)
