"""The verifiers through the whole engine with a model that draws; and what they do with zeros, ties and nonsense.

Every chi-square has a false-alarm probability of at most 1e-6 and a fixed seed; a z of 5 has 6e-7.
"""

from dataclasses import replace

import numpy as np
import pytest
from distribution_tools import fits
from round_tools import Growing
from sweep import sweep
from test_coupled import PARAMS, markov, play, transitions
from views import distribution_of_row

from paceline.choices import VERIFIERS
from paceline.config import LLMConfig, make_verifier, verify_name
from paceline.core.request import SamplingParams, View
from paceline.draft.base import NoDrafter
from paceline.draft.lookup.ngram import NgramDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.errors import NumericalError, UsageError
from paceline.verify.block import BlockVerifier
from paceline.verify.coupled import CoupledVerifier
from paceline.verify.lossy import TypicalVerifier, threshold
from paceline.verify.tree import RejectionVerifier, TreeVerifier

NAMES = [*[name for name in VERIFIERS if name != "lenient"], "lenient:0.8"]
LOSSLESS = {"coupled", "rejection", "block", "tree", "greedy_tree"}


def made(name):
    return make_verifier(LLMConfig.of(verify=name))


class Watched(ModelDrafter):
    """Writes down (last token, drafted, kept) of each round; `lie` is told as the distribution instead of the true
    one.
    """

    def __init__(self, model, draws, lie=None):
        super().__init__(model, context=4096, draws=draws)
        self.rounds, self.lie = [], lie

    def propose(self, views, budgets):
        drafts = super().propose(views, budgets)
        if self.lie is None:
            return drafts
        return [
            replace(draft, distributions={n: self.lie(q) for n, q in draft.distributions.items()}) for draft in drafts
        ]

    def observe(self, view, draft, verified):
        self.rounds.append((int(view.tokens[-1]), draft.drafted, len(verified.nodes)))
        super().observe(view, draft, verified)


def played(name, params, *, tokens=600, length=2, lie=None):
    other, q_table = markov(6, 2)
    verifier = made(name)
    drafter = Watched(other, verifier.draws, lie)
    outputs, p_table = play(verifier, drafter, params, tokens=tokens, requests=tokens // 200, length=length)
    p, q = (
        np.array([distribution_of_row(row, params).probabilities(6) for row in table]) for table in (p_table, q_table)
    )
    return transitions(outputs, 6), p, q, drafter.rounds


@pytest.mark.parametrize("params", ["T=1", "T=0.7, k=3, p=0.8"])
@pytest.mark.parametrize("name", ["rejection", "block"])
@pytest.mark.parametrize("tokens", sweep((600, 1200), fast=(600,)))
def test_the_engine_keeps_the_distribution_of_a_drawing_drafter(name, params, tokens):
    counts, p, _, rounds = played(name, PARAMS[params], tokens=tokens)
    good, message = fits(counts, p)
    assert good, message
    assert sum(kept for _, _, kept in rounds) > tokens / 4


@pytest.mark.slow
@pytest.mark.parametrize("params", ["T=1", "T=0.7, k=3, p=0.8"])
@pytest.mark.parametrize("name", ["rejection", "block", "tree", "greedy_tree"])
def test_the_engine_keeps_the_distribution_of_200_000_draws(name, params):
    counts, p, _, _ = played(name, PARAMS[params], tokens=200_000, length=3)
    good, message = fits(counts, p)
    assert good, message


def calibration(rounds, p, q):
    """z of first guesses kept against the sum of min(p, q): a martingale whatever the text is."""
    wanted = np.array([np.minimum(p[last], q[last]).sum() for last, drafted, _ in rounds if drafted])
    kept = sum(kept > 0 for _, drafted, kept in rounds if drafted)
    return (kept - wanted.sum()) / np.sqrt((wanted * (1 - wanted)).sum())


def test_guesses_are_kept_as_often_as_their_distributions_overlap():
    _, p, q, rounds = played("rejection", PARAMS["T=1"])
    z = calibration(rounds, p, q)
    assert abs(z) < 5, z


def test_calibration_sees_a_distribution_that_was_not_the_drafts():
    """The drafter tells of an even distribution: what is likely to it is kept too seldom or too often, and the text
    is off.
    """
    counts, p, q, rounds = played("rejection", PARAMS["T=1"], tokens=1200, lie=lambda q: np.full(6, 1 / 6))
    z = calibration(rounds, p, q)
    good, message = fits(counts, p)
    assert abs(z) > 5, (z, message)
    assert not good, (z, message)


def test_the_target_as_its_own_drafter_is_always_right():
    model, _ = markov(6, 1)
    for name in ("rejection", "block", "greedy_tree"):
        drafter = Watched(model, made(name).draws)
        play(made(name), drafter, SamplingParams(1.0), tokens=200, requests=1, length=3)
        assert all(kept == drafted or kept == drafted - 1 for _, drafted, kept in drafter.rounds)  # a limit cut one
        assert sum(kept == 3 for _, _, kept in drafter.rounds) > 40


@pytest.mark.parametrize("name", NAMES)
def test_greedy_output_is_the_plain_one_whatever_verifies(name):
    params = SamplingParams(0.0, seed=3)
    plain, _ = play(CoupledVerifier(), NoDrafter(), params, tokens=120, requests=3, per_request=40)
    drafter = ModelDrafter(markov(6, 2)[0], context=4096, draws=made(name).draws)
    assert play(made(name), drafter, params, tokens=120, requests=3, per_request=40)[0] == plain
    assert play(made(name), NgramDrafter(), params, tokens=120, requests=3, per_request=40)[0] == plain


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_repeats_when_the_same_is_drafted(name):
    def reply():
        drafter = ModelDrafter(markov(6, 2)[0], context=4096, draws=made(name).draws)
        return play(made(name), drafter, SamplingParams(1.0), tokens=120, requests=3, per_request=40)[0]

    assert reply() == reply()


@pytest.mark.parametrize("name", ["rejection", "tree", "greedy_tree"])
def test_sure_guesses_do_not_change_what_a_seed_says(name):
    """Where nothing was drawn, the round's own token follows its position's number whatever was guessed."""
    params = SamplingParams(1.0)
    plain = play(made(name), NoDrafter(), params, tokens=120, requests=3, per_request=40)[0]
    assert play(made(name), NgramDrafter(), params, tokens=120, requests=3, per_request=40)[0] == plain


# ---- names


def test_every_verifier_says_what_it_is():
    for name in NAMES:
        verifier = made(name)
        assert verify_name(LLMConfig.of(verify=name)) == name
        assert verifier.lossless == (name in LOSSLESS)
        assert verifier.reproducible == (name == "coupled")


@pytest.mark.parametrize("name", ["lenient", "lenient:", "lenient:0", "lenient:1.1", "lenient:nan", "lenient:x"])
def test_a_lenience_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match=f"above 0 and at most 1, got `{name}`") as caught:
        LLMConfig.of(verify=name)
    assert "lenient:0.8" in caught.value.hint


@pytest.mark.parametrize("name", ["block:2", "typical:0.1", "lenient:L:1", "Block", "", 3])
def test_a_verifier_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="verify"):
        LLMConfig.of(verify=name)


# ---- zeros, ties, nonsense


def one(logits, verifier, token=1, q=(0.5, 0.5, 0.0), seed=0, temperature=1.0):
    growing = Growing([0])
    if q is not None:
        growing.distributions[0] = np.array(q)
    growing.add(0, token, drawn=True)
    rows = np.array([logits, [0.0, 0.0, 0.0]], np.float32)
    return verifier.verify(
        growing.draft(), rows, View(0, np.zeros(4, np.int32), SamplingParams(temperature, seed=seed))
    )


@pytest.mark.parametrize("verifier", [RejectionVerifier(), BlockVerifier()], ids=lambda v: type(v).__name__)
class TestNonsense:
    def test_no_number_in_the_logits_raises(self, verifier):
        for bad in (np.nan, np.inf):
            with pytest.raises(NumericalError):
                one([0.0, bad, 0.0], verifier)
        with pytest.raises(NumericalError):
            one([-np.inf] * 3, verifier)

    def test_a_drawn_guess_its_distribution_forbids_is_a_bug(self, verifier):
        with pytest.raises(
            AssertionError, match=r"token 2 of node 1 was drawn, but its draft distribution gives it 0\.0"
        ):
            one([0.0, 0.0, 0.0], verifier, token=2)
        with pytest.raises(AssertionError, match="must sum to 1, got nan"):
            one([0.0, 0.0, 0.0], verifier, q=(np.nan, 0.5, 0.5))
        with pytest.raises(AssertionError, match=r"must sum to 1, got 1\.5"):
            one([0.0, 0.0, 0.0], verifier, q=(0.5, 0.5, 0.5))
        with pytest.raises(AssertionError, match="no distribution for its parent 0"):
            one([0.0, 0.0, 0.0], verifier, q=None)

    def test_equal_distributions_are_always_right(self, verifier):
        assert all(one([0.0, 0.0, -np.inf], verifier, seed=seed).nodes == (1,) for seed in range(100))

    def test_distributions_equal_but_for_rounding_leave_something_to_draw(self, verifier):
        q = np.array([0.5, 0.5, 0.0]) * [1 + 2e-16, 1 - 2e-16, 1]
        for seed in range(100):
            assert one([0.0, 0.0, -np.inf], verifier, q=q, seed=seed).bonus in (0, 1, 2)

    def test_a_forbidden_guess_is_refused_and_never_comes(self, verifier):
        for seed in range(50):
            verdict = one([0.0, -np.inf, 0.0], verifier, seed=seed)
            assert verdict.nodes == ()
            assert verdict.bonus in (0, 2)

    def test_greedy_takes_the_likeliest_whatever_was_drawn(self, verifier):
        assert one([0.0, 1.0, 0.0], verifier, temperature=0.0).nodes == (1,)
        assert one([2.0, 1.0, 0.0], verifier, temperature=0.0) == one([2.0, 1.0, 0.0], CoupledVerifier(), temperature=0)


def test_twins_among_drawn_siblings_are_a_bug():
    growing = Growing([0])
    growing.distributions[0] = np.array([0.5, 0.5, 0.0])
    growing.add(0, 1, drawn=True)
    growing.add(0, 1, drawn=True)
    logits = np.array([[9.0, -9.0, 0.0]] * 3, np.float32)
    with pytest.raises(AssertionError, match="node 2 was drawn"):
        TreeVerifier().verify(growing.draft(), logits, View(0, np.zeros(1, np.int32), SamplingParams(1.0)))


# ---- typical


def test_typical_keeps_the_longest_path_that_is_not_unusual():
    """0 -> {1 (p .6) , 2 (p .3) -> 3 (p .9)}, and below 3 a token of p .01."""
    p = np.full((5, 5), 0.02)
    p[0] = [0.05, 0.6, 0.3, 0.03, 0.02]
    p[2] = [0.02, 0.04, 0.02, 0.9, 0.02]
    p[3] = [0.96, 0.01, 0.01, 0.01, 0.01]
    growing = Growing([0])
    for parent, token in [(0, 1), (0, 2), (2, 3), (3, 1)]:
        growing.add(parent, token, drawn=False)
    view = View(0, np.zeros(3, np.int32), SamplingParams(1.0, seed=1))
    verdict = TypicalVerifier().verify(growing.draft(), np.log(p).astype(np.float32), view)
    assert verdict.nodes[:2] == (2, 3)


def test_what_counts_as_typical_follows_the_entropy():
    assert threshold(np.array([1.0, 0.0])) == 0.09
    flat = np.full(100, 0.01)
    np.testing.assert_allclose(threshold(flat), 0.3 / 100)


def test_lenient_verifiers_accept_more_and_the_engines_distribution_shows_it():
    kept = {}
    for name in ("rejection", "lenient:0.5"):
        counts, p, _, rounds = played(name, PARAMS["T=1"], tokens=600)
        kept[name] = np.mean([kept for _, drafted, kept in rounds if drafted])
        good, message = fits(counts, p)
        assert good == (name == "rejection"), message
    assert kept["lenient:0.5"] > kept["rejection"] + 0.1, kept
