"""Rows of a model's output that no token has are never drawn, drafted, biased, read or listed; no neighbour suffers."""

import numpy as np
import pytest
from gguf_writer import tiny_metadata, tiny_tensors, write_gguf
from tiny import pool_of

from paceline import LLM, SamplingParams
from paceline.control.fixed import FixedController
from paceline.core.tree import TokenTree
from paceline.draft.base import NoDrafter
from paceline.draft.model.token_frequency import ranked
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.errors import UsageError
from paceline.formats.files import open_model
from paceline.model.flatten import flatten
from paceline.model.native import NativeModel
from paceline.testing import ByteTokenizer, TinyModel
from paceline.verify.coupled import CoupledVerifier
from tests.text.conftest import byte_level

ROWS = 300
FILE = byte_level()
NAMES = FILE["tokenizer.ggml.tokens"]
COUNT = len(NAMES)
HOLES = [COUNT, COUNT + 1]  # with a token behind them
MORE = COUNT + 2
PADDING = [*HOLES, *range(MORE + 1, ROWS)]  # two of them named, the others without a name
LETTERS = [NAMES.index(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]


def write(path, *, seed=1, layers=2):
    names = [*NAMES, "[PAD0]", "[PAD1]", "<|more|>", "[PAD2]", "[PAD3]"]
    kinds = [*FILE["tokenizer.ggml.token_type"], 5, 5, 4, 5, 5]
    metadata = tiny_metadata(heads=2, kv_heads=1, layers=layers) | {"llama.context_length": 2048}
    tensors = tiny_tensors(metadata, vocab=ROWS, seed=seed)
    chance = np.random.default_rng(seed)
    head = np.zeros((ROWS, metadata["llama.embedding_length"]), np.float32)
    head[LETTERS] = chance.standard_normal((len(LETTERS), head.shape[1]))
    head[PADDING] = 3 * chance.standard_normal((len(PADDING), head.shape[1]))  # mostly the likeliest of all
    named = {"tokenizer.ggml.tokens": names, "tokenizer.ggml.token_type": kinds}
    return write_gguf(path, metadata | FILE | named, tensors | {"output.weight": head})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("padding") / "padded.gguf")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write(tmp_path_factory.mktemp("padding") / "small.gguf", seed=1, layers=1)


@pytest.fixture(scope="module")
def plain(path):
    return LLM(path, draft="off", context=512)


def zeros(tokens, logits):
    return np.zeros_like(logits)


SETTINGS = [
    {}, {"temperature": 3.0}, {"temperature": 0.8, "top_k": 40}, {"temperature": 3.0, "top_p": 0.5},
    {"temperature": 3.0, "top_p": 0.95}, {"temperature": 3.0, "min_p": 0.05}, {"temperature": 3.0, "typical_p": 0.6},
    {"temperature": 1.0, "repetition_penalty": 1.5}, {"temperature": 1.0, "repetition_penalty": 0.5},
    {"frequency_penalty": -2.0, "presence_penalty": 2.0}, {"temperature": 2.0, "logit_bias": {97: -100.0}},
    {"temperature": 2.0, "bad_words": ("a",)}, {"min_tokens": 8}, {"logits_processors": (zeros,), "temperature": 1.0},
    {"logits_processors": (lambda tokens, logits: -logits.clip(-50, 50),)},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_padded_row_is_never_drawn(plain, settings):
    for seed in range(20):
        reply = plain.generate([1, 2, 3], SamplingParams(max_tokens=12, seed=seed, **settings))
        assert not {*reply.token_ids} & {*PADDING}
        assert reply.finish_reason in ("stop", "length")


@pytest.mark.parametrize("verify", ["coupled", "rejection", "block", "tree", "greedy_tree", "typical", "lenient:0.5"])
@pytest.mark.parametrize("draft", ["recycle", "small"])
def test_no_draft_and_no_verifier_brings_a_padded_row(path, small, plain, verify, draft):
    llm = LLM(path, draft=small if draft == "small" else draft, verify=verify, control="fixed", context=512)
    for settings in SETTINGS:
        for seed in range(2):
            params = SamplingParams(max_tokens=12, seed=seed, **settings)
            reply = llm.generate([1, 2, 3], params)
            assert not {*reply.token_ids} & {*PADDING}
            if verify == "coupled":
                assert reply.token_ids == plain.generate([1, 2, 3], params).token_ids


def test_no_draft_model_guesses_a_padded_row(path, small):
    for verify in ("coupled", "greedy_tree"):
        llm, seen = LLM(path, draft=small, verify=verify, control="fixed", context=512), []
        drafter = llm.engine.parts.drafter
        own = drafter.propose

        def propose(views, budgets, own=own, seen=seen):
            drafts = own(views, budgets)
            for draft in drafts:
                seen += draft.tree.tokens[1:].tolist()
                assert all(
                    len(distribution) == MORE + 1 and not distribution[HOLES].any()
                    for distribution in draft.distributions.values()
                )
            return drafts

        drafter.propose = propose
        for seed in range(5):
            llm.generate([1, 2, 3], SamplingParams(temperature=2.0, seed=seed, max_tokens=20))
        assert seen
        assert not {*seen} & {*PADDING}


@pytest.mark.parametrize("token", [HOLES[0], MORE + 1, MORE + 3, ROWS - 1, ROWS])
def test_a_padded_id_is_refused_by_name(plain, token):
    for prompt, params, said in [
        ([1, token, 2], {}, "prompt token ids"),
        ([1], {"logit_bias": {token: 5.0}}, "logit_bias"),
        ([1], {"allowed_tokens": [token]}, "allowed_tokens"),
        ([1], {"allowed_tokens": [97, token]}, "allowed_tokens"),
    ]:
        with pytest.raises(UsageError, match=f"{said}.*`{token}`"):
            plain.generate(prompt, SamplingParams(**params))


def test_logprobs_sum_to_one_without_padded_rows(plain):
    reply = plain.generate([1, 2, 3], SamplingParams(max_tokens=8, logprobs=20, temperature=1.0))
    for one in reply.logprobs:
        assert not {token for token, _ in one.top} & {*PADDING}
    logits = logits_of(plain.target.model, [1, 2, 3])
    rest = logits[-1][np.isfinite(logits[-1])].astype(np.float64)
    likeliest = rest.max() - np.log(np.exp(rest).sum())
    np.testing.assert_allclose(reply.logprobs[0].top[0][1], likeliest, rtol=1e-6)


def logits_of(model, tokens):
    cache = model.new_cache(64)
    tree = TokenTree.chain(np.array(tokens, np.int32))
    return np.array(model.forward(flatten(cache, [cache.open()], [tree], [len(tokens)]), cache).logits)


@pytest.mark.parametrize("quant", ["auto", "q8", "q4"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_other_rows_are_the_same_bits_with_and_without(path, quant, threads):
    file, pool = open_model(path), pool_of(threads)
    whole = logits_of(NativeModel(file, pool, quant=quant), [1, 2, 3, 4])
    model = NativeModel(file, pool, quant=quant, padding=PADDING)
    found = logits_of(model, [1, 2, 3, 4])
    real = [i for i in range(MORE + 1) if i not in HOLES]
    assert whole.shape == (4, ROWS)
    assert found.shape == (4, MORE + 1)
    assert np.array_equal(found[:, real], whole[:, real])
    assert np.isneginf(found[:, HOLES]).all()
    assert (model.spec.vocab, model.spec.padding) == (MORE + 1, tuple(HOLES))


def test_a_neighbour_is_untouched(plain):
    params = [SamplingParams(max_tokens=10, temperature=3.0, seed=seed) for seed in range(6)]
    together = plain.generate_each([1, 2, 3], params)
    alone = [plain.generate([1, 2, 3], one) for one in params]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]


def test_any_model_is_heard_over_its_tokens_only():
    engine = Engine(
        TinyModel(16, reach=None),
        ByteTokenizer.letters(5),
        NoDrafter(),
        FixedController(0),
        CoupledVerifier(),
        context=64,
    )
    for seed in range(8):
        engine.add(Request(seed, [1, 2], SamplingParams(3.0, seed=seed, max_tokens=20)))
    said = [event for event in engine.run() if event.tokens]
    assert all(token < 5 for event in said for token in event.tokens)
    with pytest.raises(UsageError, match="from 0 to 4, got `5`"):
        engine.add(Request(9, [5], SamplingParams()))


def test_padding_is_ranked_last_among_what_is_worth_guessing(plain, tmp_path):
    order = ranked(plain.tokenizer, MORE + 1, tmp_path)
    assert sorted(order[-2:].tolist()) == HOLES
