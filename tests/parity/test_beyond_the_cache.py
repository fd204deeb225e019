"""A text whose keys or values sixteen bits cannot hold ends with an error that names the layer; others go on."""

import numpy as np
import pytest
from gguf_writer import tiny_metadata, tiny_tensors, write_gguf
from parity_tools import engine_of
from tiny import pool_of

from paceline.core.request import SamplingParams
from paceline.core.tree import Draft, TokenTree
from paceline.draft.base import Drafter
from paceline.engine.sequence import Request
from paceline.errors import NumericalError
from paceline.formats.files import open_model
from paceline.model.native import NativeModel
from paceline.testing import ByteTokenizer

VOCAB, LARGE = 32, 7  # the token whose values are too large


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    metadata = tiny_metadata(width=64, heads=2, kv_heads=1)
    tensors = tiny_tensors(metadata, vocab=VOCAB, tied=False)
    random = np.random.default_rng(1)
    embeddings = random.standard_normal((VOCAB, 64)).astype(np.float32)
    embeddings[:, 0] = 0
    embeddings[LARGE, 0] = 1
    values = random.standard_normal((32, 64)).astype(np.float32) / 8
    values[3, 0] = 1e6
    tensors |= {"token_embd.weight": embeddings, "blk.0.attn_v.weight": values}
    head = random.standard_normal((VOCAB, 64)).astype(np.float32)
    head[LARGE] = 0  # never the likeliest
    tensors |= {"output.weight": head}
    path = write_gguf(tmp_path_factory.mktemp("large") / "m.gguf", metadata, tensors)
    return NativeModel(open_model(path), pool_of(), quant="f32")


class Guesser(Drafter):
    """Guesses the large token, which is always wrong."""

    sources = ("wrong",)

    def propose(self, views, budgets):
        return [
            Draft(
                TokenTree.chain(np.array([view.tokens[-1], LARGE, LARGE][: 1 + min(budget.nodes, 2)], np.int32)),
                np.full(1 + min(budget.nodes, 2), 0.5, np.float32),
                np.zeros(1 + min(budget.nodes, 2), np.int8),
            )
            for view, budget in zip(views, budgets, strict=True)
        ]


def play(model, prompts, drafter=None, slots=8):
    engine = engine_of(model, drafter, context=200, slots=slots, tokenizer=ByteTokenizer.letters(VOCAB))
    for i, prompt in enumerate(prompts):
        engine.add(Request(i, prompt, SamplingParams(max_tokens=20, ignore_eos=True)))
    said, errors = {i: [] for i in range(len(prompts))}, {}
    for event in engine.run():
        said[event.request] += event.tokens
        if event.error is not None:
            errors[event.request] = event.error
    engine.check()
    return said, errors


@pytest.mark.parametrize("place", [0, 30, 59])
def test_the_guilty_request_ends_alone_and_the_error_names_the_layer(model, place):
    fine, guilty = [1, 2, 3], [5] * 60
    guilty[place] = LARGE
    said, errors = play(model, [fine, guilty, fine])
    assert isinstance(errors[1], NumericalError)
    assert "layer 0" in str(errors[1])
    assert said[1] == []
    alone, none = play(model, [fine])
    assert not none
    assert said[0] == said[2] == alone[0]
    assert len(alone[0]) == 20


def test_nothing_of_it_is_found_in_the_cache_afterwards(model):
    guilty = [5] * 100 + [LARGE] + [5] * 30
    said, errors = play(model, [guilty, guilty], slots=1)
    assert said == {0: [], 1: []}
    assert all("layer 0" in str(error) for error in errors.values())
    assert len(errors) == 2


def test_a_wrong_guess_of_it_harms_nothing(model):
    alone, _ = play(model, [[1, 2, 3]])
    said, errors = play(model, [[1, 2, 3]], Guesser())
    assert not errors
    assert said == alone
