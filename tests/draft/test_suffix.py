"""What the suffix drafter guesses, learns and keeps."""

from time import perf_counter

import numpy as np
import pytest
from views import outcome

from paceline.choices import DRAFTERS
from paceline.config import LLMConfig
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree, Verified
from paceline.draft import tree_ops
from paceline.draft.base import Loaded, Setting
from paceline.draft.lookup.corpus import Corpus
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.tree_ops import prune
from paceline.errors import ModelFileError
from paceline.estimate.acceptance import Tilt
from paceline.testing import ByteTokenizer, TinyModel

BYTES = ByteTokenizer()


def view(tokens, name=0, prompt_length=0):
    return View(name, np.asarray(tokens, np.int32), SamplingParams(), prompt_length)


def guess(drafter, tokens, nodes=4, depth=None, price=None, name=0):
    (draft,) = drafter.propose([view(tokens, name)], [Budget(nodes, nodes if depth is None else depth, price)])
    assert draft.tree.tokens[0] == tokens[-1]
    return draft


def committed(draft, tokens):
    """What was verified when these tokens came."""
    path = draft.tree.follow(tokens)
    return Verified(draft.tree, tuple(path), np.array(tokens[: len(path) + 1], np.int32), np.zeros((0, 0), np.float32))


def setting(draws="shared"):
    target = Loaded("tiny", TinyModel(256), BYTES, 512)
    return Setting(target, LLMConfig(), lambda name: target, draws)


def same(one, other):
    for name in ("acceptance_prob", "source"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.tree.tokens, other.tree.tokens)
    np.testing.assert_array_equal(one.tree.parents, other.tree.parents)


def test_the_longest_context_comes_first_and_others_branch_off():
    draft = guess(SuffixDrafter(), [9, 1, 2, 3, 50, 8, 2, 3, 60, 7, 1, 2, 3], 4, 1)
    assert draft.tree.tokens[1:].tolist() == [50, 60]
    assert draft.tree.parents[1:].tolist() == [0, 0]
    assert guess(SuffixDrafter(is_chain=True), [9, 1, 2, 3, 50, 8, 2, 3, 60, 7, 1, 2, 3], 2).tree.tokens.tolist() == [
        3,
        50,
        8,
    ]


def test_a_text_of_its_own_kind_is_continued():
    assert guess(SuffixDrafter(), [5, 6, 7, 8] * 4 + [5, 6], 5).tree.tokens.tolist() == [6, 7, 8, 5, 6, 7]
    assert guess(SuffixDrafter(), [1, 2, 3]).drafted == 0
    assert guess(SuffixDrafter(), [1]).drafted == 0
    assert guess(SuffixDrafter(), [5, 5, 5], 0).drafted == 0
    assert guess(SuffixDrafter(), [5, 5, 5], 3, 0).drafted == 0


@pytest.mark.parametrize("seed", range(8))
def test_cut_by_price_is_what_prune_keeps(seed):
    chance = np.random.default_rng(seed)
    text = chance.integers(4, size=200).tolist()
    whole = guess(SuffixDrafter(), text, 12, 4)
    price = np.cumsum(np.concatenate([[0.0], chance.random(12) * 0.3]))
    same(guess(SuffixDrafter(), text, 12, 4, price), prune(whole, Budget(12, 4, price)))
    assert max(whole.tree.depths()) <= 4


def test_what_was_pruned_is_learned_from_all_the_same():
    """At a price nothing pays at first; the guesses prove right, and are drafted."""
    text, price = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], 0.7 * np.arange(4)
    drafter = SuffixDrafter()
    assert guess(drafter, text, 3, price=price).drafted == 0
    for name in range(20):
        draft = guess(drafter, text, 3, price=price, name=name)
        drafter.observe(view(text, name), draft, committed(draft, [3, 4, 5, 6]))
    assert guess(drafter, text, 3, price=price, name=99).drafted == 3


def test_confidence_follows_what_was_kept():
    text, estimates = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], {}
    for kept in (0, 4):
        drafter = SuffixDrafter()
        for name in range(40):
            draft = guess(drafter, text, name=name)
            drafter.observe(view(text, name), draft, outcome(draft, kept))
            drafter.release(name)
        estimates[kept] = float(guess(drafter, text, name=99).acceptance_prob[1])
    assert estimates[0] < 0.1 < 0.9 < estimates[4] <= 1


def test_a_deviating_text_counts_less_and_another_starts_afresh():
    text, drafter = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], SuffixDrafter()
    for name in range(20):  # kinds that are right in most texts
        draft = guess(drafter, text, name=name)
        drafter.observe(view(text, name), draft, outcome(draft, 4 if name % 4 else 0))
        drafter.release(name)
    usual = float(guess(drafter, text, name=50).acceptance_prob[1])
    said = []
    for _ in range(6):
        draft = guess(drafter, text, name=50)
        said.append(float(draft.acceptance_prob[1]))
        drafter.observe(view(text, 50), draft, outcome(draft, 0))
    assert (np.diff(said) < 0).all(), said
    alone = float(drafter._acceptance.rates().max())
    assert said[-1] < 0.5 * usual, "the text speaks louder than its kinds' record"
    assert usual / 2 < float(guess(drafter, text, name=51).acceptance_prob[1]) <= alone


@pytest.mark.parametrize("seed", range(6))
def test_after_any_schedule_it_guesses_as_a_fresh_one(seed):
    """Accepts, stops, cancels and rewritten texts; what was learned of kinds and of the text is put aside."""
    chance = np.random.default_rng(seed)
    drafter = SuffixDrafter()
    texts = {name: chance.integers(4, size=30).tolist() for name in range(3)}
    for _ in range(40):
        name = int(chance.integers(3))
        draft = guess(drafter, texts[name], 6, 3, name=name)
        coming = chance.integers(4, size=5).tolist()
        if chance.random() < 0.5 and draft.drafted:
            coming = [*draft.tree.tokens[draft.tree.path(draft.drafted)].tolist(), *coming]
        verified = committed(draft, coming)
        drafter.observe(view(texts[name], name), draft, verified)
        drafter._states[name].tilt = Tilt()
        texts[name] += verified.tokens.tolist()
        if chance.random() < 0.15:
            drafter.release(name)
        if chance.random() < 0.15:
            texts[name] = [*texts[name][: int(chance.integers(1, len(texts[name])))], 3, 2]
        fresh = SuffixDrafter()
        fresh._acceptance = drafter._acceptance
        same(guess(drafter, texts[name], 6, 3, name=name), guess(fresh, texts[name], 6, 3))


def test_judged_follows_its_own_proposal():
    tree = TokenTree(np.array([0, 1, 2, 3, 4, 5], np.int32), np.array([-1, 0, 0, 1, 1, 3], np.int32))
    assert tree_ops.tested_nodes(tree, [1, 4]) == [(1, True), (2, False), (3, False), (4, True)]
    assert tree_ops.tested_nodes(tree, [9]) == [(1, False), (2, False)]
    assert tree_ops.tested_nodes(tree, [1]) == [(1, True), (2, False)], "what came behind is not known"


# ---- the corpus


def play(drafter, name, prompt, output):
    text = [*prompt]
    while output:
        draft = guess(drafter, text, name=name)
        verified = committed(draft, output)
        drafter.observe(view(text, name, len(prompt)), draft, verified)
        text += verified.tokens.tolist()
        output = output[len(verified.tokens) :]
    drafter.release(name)


def test_outputs_stay_for_later_requests_and_prompts_do_not():
    drafter = SuffixDrafter(Corpus(BYTES))
    play(drafter, 0, [1, 2, 3, 4, 5], [40, 41, 42, 43, 44, 45, 46])
    assert [text.tolist() for text in drafter.corpus.texts] == [[40, 41, 42, 43, 44, 45, 46]]
    draft = guess(drafter, [9, 8, 40, 41], 3, name=1)
    assert draft.tree.tokens[1:].tolist() == [42, 43, 44]
    assert [drafter.sources[int(i)] for i in draft.source[1:]] == ["corpus"] * 3
    assert guess(drafter, [1, 2, 3, 4], 3, name=2).drafted == 0


def test_a_named_corpus_is_saved_and_found_again(tmp_path):
    path = tmp_path / "kept"
    drafter = DRAFTERS["suffix"].make(setting(), str(path))
    play(drafter, 0, [1, 2, 3], [40, 41, 42, 43, 44])
    assert not path.exists(), "not after every request"
    del drafter
    again = DRAFTERS["suffix"].make(setting(), str(path))
    assert guess(again, [40, 41], 2).tree.tokens.tolist() == [41, 42, 43]
    path.write_bytes(b"other")
    with pytest.raises(ModelFileError, match="must be a corpus"):
        DRAFTERS["suffix"].make(setting(), str(path))


def test_a_corpus_that_cannot_be_saved_costs_no_reply(tmp_path, caplog):
    (tmp_path / "folder").mkdir()
    drafter = DRAFTERS["suffix"].make(setting(), str(tmp_path / "folder" / "kept"))
    play(drafter, 0, [1, 2], [40, 41, 42])
    (tmp_path / "folder").rmdir()
    drafter._saved = -1e9
    play(drafter, 1, [1, 2], [40, 41, 42])
    assert "could not be saved" in caplog.text


def test_made_for_chains_where_the_verifier_wants_them():
    text = [1, 2, 5, 1, 2, 6, 1, 2]
    for draws, children in (("shared", 2), ("chain", 1), ("tree", 2)):
        draft = guess(DRAFTERS["suffix"].make(setting(draws), ""), text, 6, 2)
        assert len(draft.tree.children(0)) == children


def test_a_round_costs_the_same_behind_50_000_tokens():
    """Generous for busy machines; on an idle one it is about 30 us, most of it Python."""
    chance = np.random.default_rng(0)
    tokens = np.tile(chance.integers(1000, size=5040), 10).astype(np.int32)
    drafter, seconds = SuffixDrafter(Corpus(BYTES)), []
    for end in range(50_000, 50_400, 4):
        one = View(0, tokens[:end], SamplingParams())
        started = perf_counter()
        (draft,) = drafter.propose([one], [Budget(4, 4)])
        drafter.observe(
            one, draft, Verified(draft.tree, (1, 2, 3), tokens[end : end + 4], np.zeros((0, 0), np.float32))
        )
        seconds.append(perf_counter() - started)
    assert np.median(seconds) < 500e-6, np.median(seconds)
    assert isinstance(draft, Draft)
