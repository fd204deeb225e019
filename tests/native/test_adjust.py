"""Penalties, bias and bans: the native row is the plain one, bit for bit, and both are what the words say."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.core.request import Edits, SamplingParams, View
from paceline.errors import NumericalError, ProcessorError
from paceline.sample.coupled import adjust_fast, draw, draw_plain
from paceline.sample.distribution import distribution
from paceline.sample.penalties import adjust
from paceline.sample.weights import UNIT, depths, weigh


def view_of(tokens, prompt_length=0, ends=(), banned=(), **settings):
    params = SamplingParams(**settings)
    edits = Edits.of(params, banned) if banned else None
    return View(0, np.array(tokens, np.int32), params, prompt_length, frozenset(ends), None, edits)


def random_case(chance, vocab):
    def some(most, low=0):
        return chance.integers(low, vocab, chance.integers(1, most)).tolist()

    tokens, path = some(40), some(6) if chance.random() < 0.7 else []
    written = [*tokens, *path]
    words = [written[-n:] for n in (1, 2, 3)] + [some(4) for _ in range(3)]
    settings = {
        "repetition_penalty": float(chance.choice([1.0, 1.3, 0.5, 100])),
        "presence_penalty": float(chance.choice([0.0, 1.5, -2])),
        "frequency_penalty": float(chance.choice([0.0, 0.7, -2])),
        "logit_bias": {t: float(b) for t, b in zip(some(5), chance.normal(0, 50, 5).clip(-100, 100), strict=False)},
        "allowed_tokens": None if chance.random() < 0.6 else tuple(some(vocab + 1)),
        "min_tokens": int(chance.integers(0, 40)),
        "temperature": float(chance.choice([0, 0.8, 2])),
        "typical_p": float(chance.choice([1, 0.8])),
        "top_p": float(chance.choice([1, 0.8])),
        "seed": int(chance.integers(2**62)),
    }
    settings = {name: value for name, value in settings.items() if chance.random() < 0.6}
    banned = [[*w[:-1], int(chance.integers(vocab))] for w in words if chance.random() < 0.5]
    return view_of(tokens, int(chance.integers(len(tokens) + 1)), some(4), banned, **settings), path


def rows(chance, vocab):
    normal = (4 * chance.standard_normal(vocab)).astype(np.float32)
    yield normal
    yield np.where(chance.random(vocab) < 0.3, np.float32(-np.inf), normal)
    yield np.where(normal > 0, np.float32(0), np.float32(-0.0))
    yield np.round(normal)
    yield np.full(vocab, -np.inf, np.float32)


@pytest.mark.parametrize("vocab", [1, 7, 64, 300])
def test_native_rows_and_draws_are_the_plain_ones(vocab):
    chance = np.random.default_rng(vocab)
    for _ in range(30):
        view, path = random_case(chance, vocab)
        for logits in rows(chance, vocab):
            plain, ours = adjust(logits, view, path), adjust_fast(logits, view, path)
            np.testing.assert_array_equal(ours.view(np.int32), plain.view(np.int32), err_msg=f"{view} {path}")
            if np.isfinite(plain).any():
                assert draw(logits, view, path) == draw_plain(logits, view, path), (view, path, logits)
            else:
                for refuse in (draw, draw_plain):
                    with pytest.raises(NumericalError, match="forbidden"):
                        refuse(logits, view, path)


def test_nothing_is_copied_when_nothing_adjusts():
    logits = np.zeros(9, np.float32)
    for view in (view_of([1, 2]), view_of([1, 2], 0, [3], min_tokens=2), view_of([1], temperature=0.7, top_k=3)):
        assert adjust(logits, view, []) is logits
        assert adjust_fast(logits, view, []) is logits


@pytest.mark.parametrize("change", [adjust, adjust_fast])
def test_each_setting_does_what_it_says(change):
    row = np.array([2.0, -2.0, 1.0, -1.0, 0.5], np.float32)

    def after(tokens, path=(), prompt=0, **settings):
        return change(row, view_of(tokens, prompt, **settings), list(path)).tolist()

    # Prompt and output alike, the drafted path too; how often does not matter.
    assert after([0, 0], [1], 2, repetition_penalty=2.0) == [1.0, -4.0, 1.0, -1.0, 0.5]
    # The output alone: once, or for each time.
    assert after([0, 1, 2, 2], [2, 3], 2, presence_penalty=0.5) == [2.0, -2.0, 0.5, -1.5, 0.5]
    assert after([0, 1, 2, 2], [2, 3], 2, frequency_penalty=0.5) == [2.0, -2.0, -0.5, -1.5, 0.5]
    assert after([0], logit_bias={0: 1.5, 4: -100}) == [3.5, -2.0, 1.0, -1.0, -99.5]
    inf = np.inf
    assert after([0], allowed_tokens=[1, 3]) == [-inf, -2.0, -inf, -1.0, -inf]
    # A banned sequence's last token, where the output ends with the others; the prompt does not count.
    banned = [[1, 2, 0], [4]]
    assert after([3, 1], [2], 0, banned=banned) == [-inf, -2.0, 1.0, -1.0, -inf]
    assert after([3, 1], [2], 2, banned=banned) == [2.0, -2.0, 1.0, -1.0, -inf]
    assert after([3, 1], [1], 0, banned=banned) == [2.0, -2.0, 1.0, -1.0, -inf]
    # Ends wait for the third token of the output.
    assert after([3, 3, 3], [3], 2, ends=[2, 4], min_tokens=3) == [2.0, -2.0, -inf, -1.0, -inf]
    assert after([3, 3, 3], [3, 3], 2, ends=[2, 4], min_tokens=3) == row.tolist()
    assert row.tolist() == [2.0, -2.0, 1.0, -1.0, 0.5]


def test_ids_beyond_the_row_are_left_out():
    view = view_of([0, 99, -5], repetition_penalty=2.0, frequency_penalty=1.0)
    row = np.ones(4, np.float32)
    for change in (adjust, adjust_fast):
        assert change(row, view, [2**31 - 1, -1, 1]).tolist() == [-0.5, -0.5, 1.0, 1.0]


# ---- processors


def test_a_processor_sees_the_path_and_its_own_row():
    seen = []

    def double(tokens, logits):
        seen.append((tokens.tolist(), tokens.dtype, logits.dtype))
        logits *= 2
        tokens[:] = 0
        return logits

    view, row = view_of([1, 2], logits_processors=[double, double]), np.array([1, 2, 4], np.float32)
    assert adjust(row, view, [7]).tolist() == adjust_fast(row, view, [7]).tolist() == [4, 8, 16]
    assert seen == [([1, 2, 7], np.int32, np.float32)] * 4
    assert row.tolist() == [1, 2, 4]


def raises(tokens, logits):
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (raises, "KeyError: 'lost'"),
        (lambda tokens, logits: None, "got None"),
        (lambda tokens, logits: logits[:-1], r"shape \(2,\)"),
        (lambda tokens, logits: logits[None], r"shape \(1, 3\)"),
        (lambda tokens, logits: "no row", "no row"),
        (lambda tokens, logits: logits * np.nan, "NaN"),
        (lambda tokens, logits: logits + np.inf, "got inf"),
        (lambda logits: logits, "TypeError"),
    ],
    ids=range(8),
)
def test_a_processor_that_fails_is_named(processor, said):
    view = view_of([1], logits_processors=[lambda tokens, logits: logits, processor])
    for refuse in (draw, draw_plain, distribution):
        with pytest.raises(ProcessorError, match=said) as caught:
            refuse(np.zeros(3, np.float32), view, [])
        assert "logits_processors[1]" in str(caught.value)


# ---- weights


def test_weights_are_powers_of_two_to_float_precision():
    logits = np.linspace(-30, 0, 20_001).astype(np.float32)
    weights, moments = weigh(depths(logits, np.float32(0), 0.8))
    exact = np.exp(logits / 0.8)
    heavy = exact > 2.0**-20
    np.testing.assert_allclose(weights[heavy] / UNIT, exact[heavy], rtol=3e-6)
    np.testing.assert_allclose(weights / UNIT, exact, rtol=0, atol=2e-7)
    np.testing.assert_allclose(moments / UNIT, exact * logits / 0.8 / np.log(2), rtol=0, atol=1e-6)
    assert weigh(depths(np.array([-np.inf, -1e38], np.float32), np.float32(3e38), 1.0))[0].tolist() == [0, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_typical_set_is_the_one_of_the_definition(temperature):
    """Float64 throughout: tokens by |-log p - H| until they hold the share (2202.00666, eq. 8)."""
    chance, differ = np.random.default_rng(5), 0
    for part in (0.2, 0.5, 0.9, 0.99):
        for _ in range(20):
            logits = (3 * chance.standard_normal(200)).astype(np.float32)
            view = replace(view_of([0]), params=SamplingParams(temperature, typical_p=part))
            p = np.exp(logits.astype(float) / temperature)
            p /= p.sum()
            order = np.argsort(np.abs(-np.log(p) + (p * np.log(p)).sum()))
            wanted = order[: 1 + int(np.searchsorted(np.cumsum(p[order]), part))]
            assert set(distribution(logits, view).ids.tolist()) == set(wanted.tolist())
            differ += int(logits.argmax()) not in wanted
    assert differ > 0, "the likeliest token is not always typical"
