"""Drafts of other vocabularies, of several models and in stages change nothing but the time."""

import dataclasses

import numpy as np
import pytest
from pairs import LETTERS, loaded, overlapping, permuted, setting_of, singers, target_of
from parity_tools import run
from sweep import sweep
from tiny import VOCAB, tiny

from paceline.core.request import SamplingParams, View
from paceline.core.round import Budget
from paceline.draft.compose.mixture import MixtureDrafter
from paceline.draft.compose.staged import StagedDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.vocab.pairing import drafter_for
from paceline.engine.loading import make_drafter
from paceline.errors import VocabMismatch
from paceline.testing import TinyModel
from paceline.verify.block import BlockVerifier
from paceline.verify.tree import GreedyTreeVerifier, RejectionVerifier, TreeVerifier

GREEDY, SAMPLED = SamplingParams(max_tokens=40), SamplingParams(0.8, seed=3, max_tokens=40)
BOTH = pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "T=0.8"])
OWN = pytest.mark.parametrize("draws", ["shared", "chain"])


def drafter_of(name, target, draws="shared"):
    drafts = [permuted(target, name="twin"), overlapping("stranger"), loaded("blunt", TinyModel(16, reach=4, seed=7))]
    return make_drafter(name, setting_of(target, drafts, draws))


NAMES = [
    "twin",
    "stranger",
    "staged:blunt",
    "ensemble:twin+blunt",
    "ensemble:stranger+twin+blunt",
    "branches:twin+stranger",
]


@BOTH
@OWN
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", sweep((1, 5), fast=(5,)))
def test_alone_and_in_a_batch_nothing_changes(length, name, draws, params):
    """Matching the target's own sample keeps its output whatever the guesses were drawn with."""
    target = target_of(seed=2)
    chance = np.random.default_rng(0)
    prompts = [chance.integers(16, size=length).tolist() for length in (3, 17, 70)]
    each = [SamplingParams(params.temperature, seed=s, max_tokens=m) for s, m in ((1, 30), (2, 5), (3, 20))]
    plain = [run(target.model, [prompt], one)[0] for prompt, one in zip(prompts, each, strict=True)]
    drafter = drafter_of(name, target, draws)
    together = run(target.model, prompts, each, drafter, length=length)
    assert [said.key() for said in together] == [said.key() for said in plain]
    for voice in getattr(drafter, "voices", [drafter]):
        if hasattr(voice, "reader"):
            voice.reader.cache.check()
            assert voice.reader.cache.held() == 0


@pytest.mark.parametrize("verifier", [RejectionVerifier, BlockVerifier, TreeVerifier, GreedyTreeVerifier])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", sweep((12, 40), fast=(12,)))
def test_verifiers_that_weigh_distributions_take_these_drafts(count, name, verifier):
    """Greedy replies are the target's; drawn ones end, and have their distributions where the verifier looks for
    them.
    """
    target = target_of(seed=2)
    greedy, sampled = (dataclasses.replace(params, max_tokens=count) for params in (GREEDY, SAMPLED))
    (plain,) = run(target.model, [[1, 2, 3]], greedy)
    for params in (greedy, sampled):
        drafter = drafter_of(name, target, verifier.draws)
        (said,) = run(target.model, [[1, 2, 3]], params, drafter, verifier=verifier())
        assert len(said.tokens) == count
        assert params is sampled or said.key() == plain.key()


@BOTH
def test_c05_a_vocabulary_in_another_order_is_translated_exactly(params):
    """The draft is the target under other ids: every guess is right, or an id was taken for another."""
    target = target_of()
    drafter = drafter_of("twin", target)
    assert drafter.sources == ("twin (tli)",)
    (plain,) = run(target.model, [[1, 2, 3]], params)
    (said,) = run(target.model, [[1, 2, 3]], params, drafter, length=4)
    assert said.key() == plain.key()
    assert said.metrics.acceptance_rate == 1


def test_c05_a_thousand_swapped_ids_are_translated_exactly():
    chance = np.random.default_rng(0)
    pieces = [b"%03x" % i for i in range(3000)]
    swapped = pieces.copy()
    places = chance.choice(3000, 1000, replace=False)
    for i, j in zip(places, np.roll(places, 1), strict=True):
        swapped[i] = pieces[j]
    ids = {piece: i for i, piece in enumerate(swapped)}
    to_draft = np.array([ids[piece] for piece in pieces])
    model = TinyModel(3000, reach=2)
    back = np.argsort(to_draft)
    target = loaded("big", model, pieces)
    draft = loaded(
        "small", TinyModel(3000, reach=2, distribution=lambda seen: model.logits_after(back[seen])[back]), swapped
    )
    (said,) = run(model, [[5, 6]], SAMPLED, drafter_for(setting_of(target), draft), tokenizer=target.tokenizer)
    assert said.metrics.acceptance_rate == 1


@pytest.mark.parametrize("bug", ["guesses off by one id", "context off by one id"])
def test_a_map_that_is_off_by_one_shows(bug):
    target = target_of()
    drafter = drafter_of("twin", target)
    words = drafter.voices[0].words
    wrong = {
        "guesses off by one id": {"draft": np.roll(words.draft, 1)},
        "context off by one id": {"partners": np.roll(words.partners, 1)},
    }[bug]
    drafter.voices[0].words = dataclasses.replace(words, **wrong)
    (said,) = run(target.model, [[1, 2, 3]], GREEDY, drafter, length=4)
    assert said.metrics.acceptance_rate < 0.7


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_by_way_of_text_two_tokenizers_sing_one_verse(length):
    target, draft = singers()
    prompt = target.tokenizer.encode("lorem ipsum dol")
    params = SamplingParams(max_tokens=80)
    drafter = drafter_for(setting_of(target), draft)
    assert drafter.sources == ("small (slem)",)
    settings = {"tokenizer": target.tokenizer, "context": 1024}
    (plain,) = run(target.model, [prompt], params, **settings)
    (said,) = run(target.model, [prompt], params, drafter, length=length, **settings)
    assert said.key() == plain.key()
    assert "amet consectetur lorem" in said.text
    assert said.metrics.acceptance_rate > 0.6, "a guess may end inside a syllable, no more"
    assert said.metrics.rounds < 90 / (0.6 * length + 1)
    assert drafter.reader.cache.held() == 0


@BOTH
def test_retokenised_guesses_of_an_ignorant_draft_change_nothing(params):
    target, draft = singers()
    stranger = dataclasses.replace(draft, model=TinyModel(draft.model.spec.vocab, seed=4, context=1024))
    model = TinyModel(target.model.spec.vocab, reach=3, seed=8, context=1024)
    prompts = [[1, 2, 3], [4, 5, 6, 7] * 9, [0]]
    settings = {"tokenizer": target.tokenizer, "context": 1024}
    plain = [run(model, [prompt], params, **settings)[0].key() for prompt in prompts]
    drafter = drafter_for(setting_of(dataclasses.replace(target, model=model)), stranger)
    together = run(model, prompts, params, drafter, **settings)
    assert [said.key() for said in together] == plain


# ---- vocabularies that differ in their padding


@BOTH
@pytest.mark.parametrize(("ours", "theirs"), [(16, 20), (20, 16), (18, 20)])
def test_padded_vocabularies_draft_as_they_are(ours, theirs, params):
    """16 letters; what lies behind them is padding, and never guessed."""
    model = TinyModel(ours, reach=3, seed=3)

    def distribution(seen):
        logits = np.full(theirs, 60, np.float32)  # a draft that prefers its padding
        logits[:16] = model.logits_after(seen)[:16]
        return logits

    target, draft = loaded("big", model), loaded("small", TinyModel(theirs, reach=3, distribution=distribution))
    drafter = drafter_for(setting_of(target), draft)
    assert drafter.sources == ("small",)
    prompt = [1, 2, ours - 1, 4]  # an id the draft may lack
    (plain,) = run(model, [prompt], params, tokenizer=loaded("", model, [*LETTERS, b"?", b"!", b"+", b"-"]).tokenizer)
    engine_tokenizer = loaded("", model, [*LETTERS, b"?", b"!", b"+", b"-"]).tokenizer
    (said,) = run(model, [prompt], params, drafter, tokenizer=engine_tokenizer)
    assert said.key() == plain.key()
    assert said.metrics.acceptance_rate > (0.05 if ours > 16 else 0.95)


def test_models_without_a_common_text_are_refused_by_name():
    target = target_of()
    draft = loaded("small", TinyModel(16), [bytes([48 + i]) for i in range(10)] + [bytes([65 + i]) for i in range(6)])
    with pytest.raises(VocabMismatch) as caught:
        drafter_for(setting_of(target), draft)
    for part in ("`small`", "`big`", "16 ids differ", "`0`", "'a'", "'0'"):
        assert part in str(caught.value)
    assert caught.value.hint


# ---- several drafts


def test_a_mixture_learns_which_member_is_right():
    target = target_of()
    drafter = drafter_of("ensemble:blunt+twin", target)
    assert isinstance(drafter, MixtureDrafter)
    (said,) = run(target.model, [[1, 2, 3]], SamplingParams(0.8, seed=1, max_tokens=100), drafter, length=4)
    assert drafter.weights.current()[1] > 0.9
    assert said.metrics.acceptance_rate > 0.8


@BOTH
def test_branches_are_right_where_any_of_them_is(params):
    target = target_of()
    drafter = drafter_of("branches:blunt+twin", target)
    assert drafter.sources == ("blunt", "twin (tli)")
    (said,) = run(target.model, [[1, 2, 3]], params, drafter, length=8)
    assert said.metrics.rounds < 25
    assert said.metrics.by_source["twin (tli)"]["accepted"] > 10


# ---- what the readers share


@BOTH
@pytest.mark.parametrize("name", NAMES)
def test_a_text_outgrowing_the_draft_is_drafted_from_its_end(name, params):
    target = target_of(seed=2, context=512)
    drafts = [
        permuted(dataclasses.replace(target, context=64), name="twin"),
        overlapping("stranger", context=64),
        loaded("blunt", TinyModel(16, reach=4, seed=2, context=64)),
    ]
    params = dataclasses.replace(params, max_tokens=120)
    (plain,) = run(target.model, [[1, 2, 3]], params)
    (said,) = run(target.model, [[1, 2, 3]], params, make_drafter(name, setting_of(target, drafts)), length=4)
    assert said.key() == plain.key()
    assert said.metrics.drafted_tokens > 3 * said.metrics.rounds, (
        "the drafts read half of its reply, and draft all of it"
    )


@pytest.mark.parametrize("name", ["small", "staged:small", "ensemble:small+other", "branches:small+other", "self:1"])
@pytest.mark.parametrize("rows", [0, 100])
def test_every_draft_model_guesses_frequent_tokens_only(name, rows, monkeypatch):
    """`--draft-head` under every drafter that asks the model; the prompt's own tokens have rows as well."""
    monkeypatch.setattr(
        "paceline.draft.model.token_frequency.ranked", lambda tokenizer, vocab, folder: np.arange(vocab)
    )
    pieces = [b"%03d" % i for i in range(VOCAB)]
    target = loaded("big", tiny("llama"), pieces)
    drafts = [loaded(each, tiny("llama"), pieces) for each in ("small", "other")]
    setting = setting_of(target, drafts)
    setting = dataclasses.replace(setting, config=dataclasses.replace(setting.config, draft_head=rows))
    view = View(0, np.array([250, 251, 252, 7], np.int32), SamplingParams(1.5, seed=1))
    (draft,) = make_drafter(name, setting).propose([view], [Budget(12, 6)])
    assert draft.drafted > 3
    rare = set(draft.tree.tokens[1:].tolist()) - {250, 251, 252, *range(100)}
    assert not rare if rows else rare


@pytest.mark.parametrize("draws", ["shared", "chain"])
@pytest.mark.parametrize("seed", range(3))
def test_a_staged_reduced_draft_guesses_as_its_model_does(seed, draws):
    """Rows that follow the text included."""
    chance = np.random.default_rng(seed)
    model, outputs = tiny("llama"), chance.permutation(VOCAB)[:120].astype(np.int32)
    staged = StagedDrafter(model, context=256, outputs=outputs, draws=draws)
    alone = ModelDrafter(model, context=256, outputs=outputs, draws=draws)
    tokens = chance.integers(VOCAB, size=30).tolist() * 2
    for _ in range(6):
        view = View(0, np.array(tokens, np.int32), SamplingParams(0.8, seed=seed))
        ours, theirs = (one.propose([view], [Budget(5, 5)])[0] for one in (staged, alone))
        assert {*tokens[-4:]} <= {*staged.reader.head.ids.tolist()}
        assert ours.tree.tokens.tolist() == theirs.tree.tokens.tolist()
        assert all(
            np.array_equal(ours.distributions[node], distribution)
            for node, distribution in theirs.distributions.items()
        )
        tokens += [*ours.tree.tokens[1:3].tolist(), *chance.integers(VOCAB, size=2).tolist()]
