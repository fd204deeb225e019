"""Drafts by the target itself, candidates that are chosen among, and names that cannot be meant."""

import numpy as np
import pytest
from pairs import loaded, overlapping, permuted, setting_of, singers, target_of
from parity_tools import run
from tiny import VOCAB, _Kept, alone, file_of, pool_of, same, tiny

from paceline.config import LLMConfig, make_verifier, verify_name
from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.core.tree import Draft, TokenTree
from paceline.draft.base import Loaded, Setting
from paceline.engine.loading import make_drafter
from paceline.errors import UsageError, VocabMismatch
from paceline.lab.best_of import CANDIDATES
from paceline.lab.best_of_verifier import BestOfVerifier
from paceline.model.native import NativeModel
from paceline.testing import ByteTokenizer, TinyModel
from paceline.verify.coupled import CoupledVerifier

GREEDY, SAMPLED = SamplingParams(max_tokens=12), SamplingParams(0.8, seed=3, max_tokens=12)


def native_setting(model, load=None):
    tokenizer = ByteTokenizer([b"%03d" % i for i in range(VOCAB)])
    target = Loaded("big", model, tokenizer, 128)
    return Setting(target, LLMConfig(slots=4), load or (lambda source, quant=None: None), "shared"), tokenizer


@pytest.mark.parametrize("name", ["llama", "gemma3", "smollm3"])
def test_first_layers_are_the_model_cut_short(name):
    """Its logits are those of a model made of these layers alone, to the last bit; the weights are the same ones."""
    whole = tiny(name)
    for count in range(1, whole.spec.layers):
        shallow = whole.first_layers(count)

        class Short(_Kept):
            spec = shallow.spec

        own = NativeModel(Short(file_of(name)), pool_of())
        same(alone(shallow, [3, 1, 4, 1, 5]), alone(own, [3, 1, 4, 1, 5]), f"{count} layers")
        assert shallow.weights.layers[0] is whole.weights.layers[0]
        assert shallow.weights.head is whole.weights.head
        assert shallow.weight_bytes == own.weight_bytes


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "T=0.8"])
@pytest.mark.parametrize("argument", ["self:1", "self:2", "self", "self:q8"])
def test_self_drafts_change_nothing(argument, params):
    whole = tiny("wide" if "q" in argument or argument == "self" else "gemma3")
    asked = []

    def load(source, quant=None):
        asked.append(quant)
        return Loaded(source, tiny("wide", quant=quant), None, 128)

    setting, tokenizer = native_setting(whole, load)
    prompts = [[1, 2, 3], list(range(40))]
    plain = [run(whole, [prompt], params, tokenizer=tokenizer, context=128)[0].key() for prompt in prompts]
    drafter = make_drafter(argument, setting)
    said = run(whole, prompts, params, drafter, tokenizer=tokenizer, context=128)
    assert [one.key() for one in said] == plain
    assert asked == {"self": ["q4"], "self:q8": ["q8"]}.get(argument, [])
    if asked:
        assert drafter.sources == (f"self:{asked[0]}",)
        assert sum(one.metrics.accepted_tokens for one in said) > 4


def test_a_copy_no_smaller_than_the_target_is_refused():
    setting, _ = native_setting(tiny("wide", quant="q4"))
    for argument in ("self", "self:q4", "self:q8", "self:bf16"):
        with pytest.raises(UsageError, match=r"`5\.\d` bits a weight already"):
            make_drafter(argument, setting)


@pytest.mark.parametrize("argument", ["self:0", "self:99", "self:3", "self:-1", "self:q3", "self:auto", "self:1.5"])
def test_layers_the_target_does_not_have_are_refused(argument):
    setting, _ = native_setting(tiny("gemma3"))
    with pytest.raises(UsageError, match=f"from 1 to 2.*`{argument}`"):
        make_drafter(argument, setting)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ensemble:A", "2 to 3 different models.*`A`"),
        ("ensemble:", "2 to 3 different models.*`ensemble:`"),
        ("ensemble:A+A", "different models.*`A[+]A`"),
        ("ensemble:A+B+C+D", "2 to 3"),
        ("branches:A+", "2 to 3"),
        ("staged:", "needs the model"),
        ("staged", "needs the model"),
        ("best_of", "needs the model"),
        ("self", "native kernels, got `TinyModel`"),
    ],
)
def test_names_that_cannot_be_meant_are_refused(name, words):
    with pytest.raises(UsageError, match=words) as caught:
        make_drafter(name, setting_of(target_of()))
    assert caught.value.hint


def test_branches_of_one_name_are_refused():
    setting = setting_of(target_of(), [loaded("a/x.gguf", TinyModel(16)), loaded("b/x.gguf", TinyModel(16))])
    with pytest.raises(UsageError, match="different names, got `x, x`"):
        make_drafter("branches:a/x.gguf+b/x.gguf", setting)


def test_members_sharing_too_few_tokens_are_refused_under_a_distribution():
    target, far = singers()
    near = loaded("near", TinyModel(target.model.spec.vocab), target.tokenizer.pieces)
    setting = setting_of(target, [far, near])
    with pytest.raises(VocabMismatch, match=r"75 %.*`small`") as caught:
        make_drafter("ensemble:near+small", setting)
    assert "branches" in caught.value.hint
    assert make_drafter("branches:near+small", setting).sources == ("near", "small (slem)")
    with pytest.raises(VocabMismatch, match="`small` and `big`"):
        make_drafter("staged:small", setting)


# ---- best_of: not lossless


def test_the_likeliest_branch_is_kept_whole():
    chance = np.random.default_rng(0)
    logits = chance.standard_normal((7, 5)).astype(np.float32)
    tree = TokenTree(np.array([0, 1, 2, 3, 4, 1, 0], np.int32), np.array([-1, 0, 0, 0, 1, 2, 3], np.int32))
    view = View(0, np.array([0], np.int32), SamplingParams())
    verdict = BestOfVerifier().verify(Draft(tree, np.ones(7, np.float32), np.zeros(7, np.int8)), logits, view)
    distribution = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    scores = {
        (a, b): distribution[0, tree.tokens[a]] + distribution[a, tree.tokens[b]] for a, b in ((1, 4), (2, 5), (3, 6))
    }
    assert verdict.nodes == max(scores, key=scores.get)
    assert verdict.bonus == logits[verdict.nodes[-1]].argmax()
    root = Draft(TokenTree.chain([0]), np.ones(1, np.float32), np.zeros(1, np.int8))
    assert BestOfVerifier().verify(root, logits[:1], view).nodes == ()


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "T=0.8"])
def test_candidates_are_drawn_apart_and_one_is_emitted_whole(params):
    target = target_of()
    setting = setting_of(target, [permuted(target, name="twin"), overlapping("stranger")])
    drafter = make_drafter("best_of:stranger", setting)
    view = View(1, np.array([1, 2, 3], np.int32), params)
    (draft,) = drafter.propose([view], [Budget(3 * CANDIDATES, 3)])
    assert len(draft.tree.children(0)) > 1
    assert max(draft.tree.depths()) == 3
    assert draft.drafted <= 3 * CANDIDATES
    drafter.release(1)
    assert [drafter.propose([view], [Budget(n, 3)])[0].drafted <= n for n in (0, 1, 2)] == [True] * 3
    drafter.release(1)
    (said,) = run(target.model, [[1, 2, 3]], params, drafter, verifier=BestOfVerifier(), length=6)
    assert said.metrics.accepted_per_position[0] == said.metrics.rounds - 1, "some branch always wins"
    (plain,) = run(target.model, [[1, 2, 3]], params)
    assert said.tokens != plain.tokens, "the draft's distribution shows: that is why it is called lossy"


def test_best_of_brings_its_verifier_and_stands_alone():
    def of(**settings):
        return make_verifier(LLMConfig.of(**settings))

    assert isinstance(of(draft="best_of:x"), BestOfVerifier)
    assert verify_name(LLMConfig(draft="best_of:x")) == "best_of"
    assert not of(draft="best_of:x").lossless
    assert of(draft="ngram").lossless
    assert isinstance(of(draft="best_of:x", draft_tokens=0), CoupledVerifier)
    for draft in ("best_of:x,ngram", "ngram, best_of:x"):
        with pytest.raises(UsageError, match="only drafter"):
            of(draft=draft)
    contradiction = LLMConfig(draft="best_of:x", verify="block")
    with pytest.raises(UsageError, match="--verify block"):
        make_verifier(contradiction)
    with pytest.raises(UsageError):
        of(verify="best_of")
