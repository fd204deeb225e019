"""A drafter that taps layers is shown each verified node's hidden states; what a backend cannot do is refused."""

import numpy as np
import pytest
from parity_tools import engine_of, plain_tokens, run
from tiny import PlainModel, file_of, same, tiny

from paceline.core.request import SamplingParams
from paceline.core.tree import TokenTree
from paceline.draft.compose.mix import MixDrafter
from paceline.engine.sequence import Request
from paceline.errors import UsageError
from paceline.model.base import Capabilities
from paceline.model.flatten import flatten
from paceline.testing import ByteTokenizer, ScriptedDrafter, TinyModel, bush
from paceline.verify.coupled import CoupledVerifier
from paceline.verify.tree import TreeVerifier

PROMPTS = {0: [1, 2, 3, 4, 5], 1: list(range(40, 80))}
PARAMS = SamplingParams(max_tokens=14, ignore_eos=True)
MODELS = {"native": lambda: tiny("smollm3"), "numpy": lambda: PlainModel.of(file_of("smollm3"))}


class Tapping(ScriptedDrafter):
    """Guesses by script and keeps what it is shown."""

    def __init__(self, taps, *settings, **more):
        super().__init__(*settings, **more)
        self.taps, self.seen = taps, []

    def observe(self, view, draft, verified):
        states = {layer: np.array(rows) for layer, rows in verified.taps.items()}
        self.seen.append((view.tokens.tolist(), verified.tree, states))


def letters(model):
    return ByteTokenizer([bytes([65 + i // 26, 97 + i % 26]) for i in range(model.spec.vocab)])


def replies(model, drafter):
    engine = engine_of(model, drafter, tokenizer=letters(model), length=6)
    for name, prompt in PROMPTS.items():
        engine.add(Request(name, prompt, PARAMS))
    return [event for event in engine.run() if event.tokens]


def right(model):
    return {i: plain_tokens(model, prompt, PARAMS, tokenizer=letters(model)) for i, prompt in PROMPTS.items()}


def states_of(model, tokens, layers):
    """The hidden states behind the last of these tokens, which are read one by one in a cache of their own."""
    cache = model.new_cache(len(tokens) + 32)
    sequence = cache.open()
    for token in tokens:
        batch = flatten(cache, [sequence], [TokenTree.chain([token])], [1])
        found = {layer: np.array(rows[0]) for layer, rows in model.forward(batch, cache, taps=layers).taps.items()}
        cache.commit(sequence, [0], [token])
    return found


def seen_by(model, layers):
    drafter = Tapping(layers, bush(model.spec.vocab, right_for=2), right(model))
    replies(model, drafter)
    return drafter.seen


@pytest.mark.parametrize("backend", MODELS)
def test_each_verified_node_comes_with_its_hidden_states(backend):
    model, branches = MODELS[backend](), 0
    for text, tree, states in seen_by(model, (0, 2))[::3]:
        assert states.keys() == {0, 2}
        for node in range(len(tree)):
            alone = states_of(model, [*text, *tree.tokens[tree.path(node)].tolist()], (0, 2))
            for layer, rows in states.items():
                assert rows.shape == (len(tree), model.spec.width)
                if model.capabilities.row_independent:
                    same(rows[node], alone[layer], f"node {node}, layer {layer}")
                else:
                    np.testing.assert_allclose(rows[node], alone[layer], atol=1e-9)
        branches += len(tree) > 2
    assert branches >= 2


def test_both_backends_show_the_same_states():
    native, plain = (seen_by(make(), (1,)) for make in MODELS.values())
    assert [one[:1] for one in native] == [one[:1] for one in plain]
    for (_, tree, ours), (_, other, theirs) in zip(native, plain, strict=True):
        assert tree.tokens.tolist() == other.tokens.tolist()
        np.testing.assert_allclose(ours[1], theirs[1], atol=0.02)


def test_taps_change_no_token_and_nothing_is_brought_unasked():
    model, said = tiny("smollm3"), []
    for taps in ((), (0, 3)):
        drafter = Tapping(taps, bush(model.spec.vocab, right_for=2), right(model))
        said.append([(event.request, event.tokens) for event in replies(model, drafter)])
        assert all(states.keys() == set(taps) for _, _, states in drafter.seen)
    assert said[0] == said[1]


def test_a_mix_asks_for_what_its_members_do():
    model = tiny("smollm3")
    members = [Tapping(taps, bush(model.spec.vocab, right_for=1), right(model)) for taps in ((3, 0), (), (1, 3))]
    for name, member in zip("abc", members, strict=True):
        member.sources = (name,)
    mix = MixDrafter(members)
    assert mix.taps == (0, 1, 3)
    replies(model, mix)
    assert all(states.keys() == {0, 1, 3} for member in members for _, _, states in member.seen)


# ---- what a backend declares


class Chains(TinyModel):
    """Reads chains only."""

    capabilities = Capabilities(row_independent=True)

    def forward(self, batch, cache, *, taps=()):
        for start, end in zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist(), strict=True):
            assert batch.parents[start:end].tolist() == list(range(-1, end - start - 1))
        return super().forward(batch, cache, taps=taps)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_model_of_chains_gets_one_path_per_tree(temperature):
    model, params = Chains(16, reach=None), SamplingParams(temperature, max_tokens=30)
    prompts = [[1, 2, 3], [4, 5]]
    answers = {i: plain_tokens(model, prompt, params) for i, prompt in enumerate(prompts)}
    said = run(model, prompts, params, ScriptedDrafter(bush(16, right_for=2), answers), length=8)
    assert [[*prompt, *one.tokens] for prompt, one in zip(prompts, said, strict=True)] == list(answers.values())
    assert sum(one.metrics.drafted_tokens for one in said) > 20


@pytest.mark.parametrize(
    ("model", "taps", "verifier", "said"),
    [
        (TinyModel(300), (0,), CoupledVerifier(), "may tap no layer of this model, got `0`"),
        (tiny("smollm3"), (1, 4), CoupledVerifier(), "layers from 0 to 3, got `4`"),
        (tiny("smollm3"), (-1,), CoupledVerifier(), "layers from 0 to 3, got `-1`"),
        (Chains(300), (), TreeVerifier(), "reads chains only"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(model, taps, verifier, said):
    drafter = Tapping(taps, bush(300, right_for=1), {})
    with pytest.raises(UsageError, match=said):
        engine_of(model, drafter, tokenizer=letters(model), verifier=verifier)
