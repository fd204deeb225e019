"""Keyed noise is Random123's, and the native draw is the plain one's equal: same distribution, same token, same
refusals.
"""

from dataclasses import replace

import numpy as np
import pytest
from sweep import sweep
from views import distribution_of_row, draw_at, draw_plain_at

from paceline import _native
from paceline.core.request import SamplingParams
from paceline.errors import NumericalError, UsageError
from paceline.sample.params import validate
from paceline.sample.rng import Stream, gumbel, philox, uniform, words

# Known answers of philox4x32-10 (Random123, kat_vectors): counter, key, words.
ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(counter, key, expected):
    assert tuple(philox(key, np.array([counter], np.uint64))[0].tolist()) == expected


def _first(count):
    return np.arange(count, dtype=np.int32)


@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 65, 200, 1000])
def test_native_words_are_numpys(count):
    for seed, stream, position in [(0, 0, 0), (1, 3, 7), (2**64 - 1, 1, 2**32 + 5), (0x9E3779B97F4A7C15, 2, 2**31)]:
        ours = words(seed, Stream(stream), position, np.arange(count))
        assert np.array_equal(_native.philox(seed, stream, position, _first(count)), ours), (seed, stream, position)


def test_native_words_are_numpys_for_late_tokens():
    # The first lanes of every one of 4 000 blocks: a vocabulary of 256 000.
    ours = words(42, Stream.GUMBEL, 9, np.arange(256_000))
    assert np.array_equal(_native.philox(42, 0, 9, _first(256_000)), ours)


def test_uniforms_use_all_32_bits_and_never_reach_the_ends():
    extremes = uniform(np.array([0, 0xFFFFFFFF], np.uint32))
    assert extremes.tolist() == [2.0**-33, 1 - 2.0**-33]
    assert np.isfinite(gumbel(np.array([0, 0xFFFFFFFF], np.uint32))).all()


def test_each_of_seed_stream_position_and_token_changes_the_word():
    base = words(5, Stream.GUMBEL, 10, np.arange(64))
    for other in (
        words(6, Stream.GUMBEL, 10, np.arange(64)),
        words(5 + 2**32, Stream.GUMBEL, 10, np.arange(64)),
        words(5, Stream.DRAFT, 10, np.arange(64)),
        words(5, Stream.GUMBEL, 11, np.arange(64)),
        words(5, Stream.GUMBEL, 10 + 2**32, np.arange(64)),
        words(5, Stream.GUMBEL, 10, np.arange(64) + 64),
    ):
        assert not (other == base).any()


# ---- the draw

SIZES = [1, 2, 3, 5, 7, 13, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 200]
REPEATS = pytest.mark.parametrize("repeats", sweep((4, 25), fast=(4,)))


def rows(chance, vocab):
    """Rows of every shape that has fooled a sampler."""
    normal = chance.standard_normal(vocab).astype(np.float32)
    yield normal * np.float32(chance.choice([0.01, 1, 5, 50]))
    yield np.round(normal * 2).astype(np.float32) / 2  # ties everywhere
    yield np.full(vocab, normal[0], np.float32)  # all equal
    masked = normal.copy()
    masked[chance.random(vocab) < 0.7] = -np.inf
    masked[chance.integers(vocab)] = 0.0
    yield masked
    lonely = np.full(vocab, -np.inf, np.float32)
    lonely[chance.integers(vocab)] = normal[0]
    yield lonely  # one finite
    twins = np.full(vocab, -4.0, np.float32)
    twins[chance.integers(vocab, size=3)] = 4.0
    yield twins
    yield (normal * 1e4).astype(np.float32)
    zeros = np.zeros(vocab, np.float32)
    zeros[::2] = -0.0
    yield zeros


def settings(chance):
    seed = int(chance.integers(2**63))
    temperature = float(chance.choice([0.0, 1e-5, 1.1e-5, 0.05, 0.3, 0.8, 1.0, 2.5, 1e3, 1e8]))
    return SamplingParams(
        temperature=temperature,
        top_k=int(chance.choice([0, 0, 1, 2, 5, 40, 64, 65, 1000])),
        top_p=float(chance.choice([1.0, 1.0, 0.999, 0.9, 0.5, 0.1, 1e-6, 1e-300])),
        min_p=float(chance.choice([0.0, 0.0, 1e-6, 0.05, 0.5, 1.0])),
        typical_p=float(chance.choice([1.0, 1.0, 0.999, 0.9, 0.5, 0.1, 1e-6])),
        seed=seed,
    )


@pytest.mark.parametrize("vocab", SIZES)
@REPEATS
def test_native_draw_is_the_plain_draw(vocab, repeats):
    chance = np.random.default_rng(vocab)
    for _ in range(repeats):
        for logits in rows(chance, vocab):
            params, position = settings(chance), int(chance.integers(10_000))
            ours, plain = draw_at(logits, params, position), draw_plain_at(logits, params, position)
            assert ours == plain, (params, position, logits.tolist(), ours, plain)


@pytest.mark.parametrize("vocab", SIZES)
@REPEATS
def test_a_draw_among_some_tokens_is_the_whole_rows(vocab, repeats):
    """Of a row that lacks tokens the native draw sees those it has; the plain one sees -inf for the others."""
    chance = np.random.default_rng(2000 + vocab)
    for _ in range(repeats):
        wide = vocab * int(chance.choice([1, 2, 9, 40]))
        tokens = np.sort(chance.choice(wide, vocab, replace=False)).astype(np.int32)
        for logits in rows(chance, vocab):
            params, position = replace(settings(chance), typical_p=1.0), int(chance.integers(10_000))
            whole = np.full(wide, -np.inf, np.float32)
            whole[tokens] = logits
            distribution = (params.temperature, params.top_k, params.top_p, params.min_p, params.seed)
            ours, plain = (
                _native.draw_among(logits, tokens, *distribution, position),
                draw_plain_at(whole, params, position),
            )
            assert ours == plain, (params, position, logits.tolist(), tokens.tolist(), ours, plain)


def test_tokens_that_do_not_ascend_are_refused():
    row = np.zeros(3, np.float32)
    for wrong, said in (([0, 0, 1], "ascend"), ([0, 2, 1], "ascend"), ([0, 1], "disagree")):
        with pytest.raises(ValueError, match=said):
            _native.draw_among(row, np.array(wrong, np.int32), 0.0, 0, 1.0, 0.0, 0, 0)


@pytest.mark.parametrize("vocab", SIZES)
@REPEATS
def test_native_survivors_are_the_distributions_tokens(vocab, repeats):
    chance = np.random.default_rng(1000 + vocab)
    for _ in range(repeats):
        for logits in rows(chance, vocab):
            params = settings(chance)
            ours = _native.survivors(
                logits, params.temperature, params.top_k, params.top_p, params.min_p, params.typical_p
            )
            wanted = distribution_of_row(logits, params).ids
            assert ours.tolist() == wanted.tolist(), (params, logits.tolist(), ours, wanted)


def test_a_large_vocabulary_draws_the_same():
    chance = np.random.default_rng(3)
    for scale in (0.1, 1.0, 4.0):
        logits = (scale * chance.standard_normal(50_001)).astype(np.float32)
        for top_k, top_p, min_p in [(0, 1, 0), (50, 1, 0), (0, 0.95, 0), (0, 1, 0.01), (1000, 0.9, 0.001)]:
            for position in range(4):
                params = SamplingParams(0.9, top_k=top_k, top_p=top_p, min_p=min_p, seed=7)
                assert draw_at(logits, params, position) == draw_plain_at(logits, params, position), (
                    scale,
                    params,
                    position,
                )


def test_blocks_are_skipped_only_when_they_cannot_win():
    """A token whose noise just beats the leader's, or just fails to, by one unit of the logit's last place."""
    vocab, params = 640, SamplingParams(1.0, seed=11)
    for position in range(60):
        noise = gumbel(words(params.seed, Stream.GUMBEL, position, np.arange(vocab)))
        leader, rival = 5, 64 + int(noise[64:].argmax())
        edge = np.float32(noise[leader] - noise[rival])  # rival + edge ties with leader + 0
        for logit in (edge, np.nextafter(edge, np.float32(-99)), np.nextafter(edge, np.float32(99))):
            logits = np.full(vocab, -60.0, np.float32)
            logits[leader], logits[rival] = 0.0, logit
            ours, plain = draw_at(logits, params, position), draw_plain_at(logits, params, position)
            assert ours == plain, (position, leader, rival, float(logit), ours, plain)


def test_the_strongest_noise_still_wins_from_far_behind():
    """Blocks whose best logit lies 22 below the leader's are not skipped: the noise spans 22.87 + 3.13."""
    chance, differ = np.random.default_rng(4), 0
    for position in range(100):
        logits = np.full(4096, -8.3, np.float32)  # 4 095 tokens together as likely as the leader
        logits[chance.integers(4096)] = 0.0
        params = SamplingParams(1.0, seed=position)
        ours = draw_at(logits, params, position)
        assert ours == draw_plain_at(logits, params, position)
        differ += ours != int(logits.argmax())
    assert 20 < differ < 80, differ  # half of 100, give or take 6 standard deviations


def test_greedy_ties_go_to_the_lower_id():
    for vocab in SIZES:
        logits = np.zeros(vocab, np.float32)
        assert draw_at(logits, SamplingParams(), 0) == 0
        logits[vocab // 2 :] = 1.0
        assert draw_at(logits, SamplingParams(), 0) == vocab // 2
        assert draw_at(logits, SamplingParams(1e-6), 0) == vocab // 2


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("vocab", [1, 65, 200])
def test_rows_nothing_can_be_drawn_from_are_refused(bad, temperature, vocab):
    logits = np.full(vocab, -np.inf, np.float32)
    logits[vocab // 2] = bad
    params = SamplingParams(temperature)
    for refuse in (draw_at, draw_plain_at):
        with pytest.raises(NumericalError, match="NaN" if np.isnan(bad) else "-inf"):
            refuse(logits, params, 0)


def test_one_nan_among_numbers_is_refused():
    for place in range(130):
        logits = np.zeros(130, np.float32)
        logits[place] = np.nan
        with pytest.raises(NumericalError, match="NaN"):
            draw_at(logits, SamplingParams(0.8), 0)


# ---- settings


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("temperature", [-0.1, float("nan"), float("inf"), 10**400, "1", None, True]),
        ("top_p", [0, -1, 1.01, 10**400, float("nan"), "0.9", None]),
        ("min_p", [-0.1, 1.1, float("nan"), None]),
        ("typical_p", [0, -1, 1.01, float("nan"), "0.9", None]),
        ("repetition_penalty", [0, -1, 0.001, 101, float("nan"), float("inf"), "1", None, True]),
        ("presence_penalty", [-2.1, 2.1, -(10**400), float("nan"), "1", None]),
        ("frequency_penalty", [-2.1, 2.1, float("nan"), "1", None]),
        ("min_tokens", [-1, 1.5, 257, None, True]),
        ("logprobs", [-1, 21, 1.5, "3", True]),
        ("bad_words", ["text", ("",), (1,), None]),
        ("allowed_tokens", [(), (-1,), (1.5,), ("a",), (True,), 7]),
        ("logits_processors", [(1,), ("f",), None, len]),
        ("logit_bias", [((1, 101),), ((-1, 1),), ((1, "a"),), (("a", 1),), ((1, float("nan")),), ((1, 2), (1, 3)), 5]),
        ("top_k", [-1, 1.5, 2**31, "3", None, True]),
        ("seed", [-1, 2**64, 0.5]),
        ("max_tokens", [0, -1, 1.5, None, 2**31]),
        ("ignore_eos", ["false", None, 0]),
        ("stop", [("",), ("a", ""), (1,), (b"a",)]),
    ],
)
def test_a_bad_setting_is_named_with_its_value(setting, values):
    for value in values:
        with pytest.raises(UsageError) as caught:
            validate(SamplingParams(**{setting: value}))
        assert str(caught.value).startswith(setting), value
        last = value[-1] if setting == "logit_bias" and isinstance(value, tuple) else value
        assert (
            any(f"{part}" in str(caught.value) for part in (value, last, *last[-1:], *last[:1]))
            if isinstance(last, tuple)
            else f"{value}" in str(caught.value)
        ), (value, str(caught.value))


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"temperature": 100},
        {"top_p": 1},
        {"top_p": 1e-9},
        {"min_p": 1},
        {"top_k": 2**31 - 1},
        {"seed": 2**64 - 1},
        {"seed": None},
        {"max_tokens": 1},
        {"stop": ("a", "b")},
        {"stop": "a"},
        {"stop": ["a"]},
        {"stop": {"a"}},
        {"temperature": 10**300},
        {"logit_bias": {3: -100, 5: 100.0}},
        {"logit_bias": {np.int64(3): 1}},
        {"allowed_tokens": [1, 2]},
        {"allowed_tokens": {0}},
        {"bad_words": ["a"]},
        {"min_tokens": 256},
        {"typical_p": 1e-9},
        {"logprobs": 0},
        {"logits_processors": [lambda tokens, logits: logits]},
        {"repetition_penalty": 0.01},
    ],
)
def test_settings_at_their_edges_are_taken(good):
    validate(SamplingParams(**good))


def test_numpy_numbers_are_numbers():
    given = SamplingParams(
        np.float32(0.5),
        top_k=np.int64(3),
        top_p=np.float64(0.9),
        seed=np.uint64(2**63),
        max_tokens=np.array(7),
        ignore_eos=np.bool_(True),
        allowed_tokens=np.array([1, 2]),
        logit_bias={np.int64(4): np.float32(0.5)},
        stop=["a"],
    )
    validate(given)
    assert given == SamplingParams(
        0.5, 3, 0.9, seed=2**63, max_tokens=7, ignore_eos=True, allowed_tokens=(1, 2), logit_bias={4: 0.5}, stop=("a",)
    )
    assert SamplingParams(allowed_tokens=[np.int32(1)]).allowed_tokens == (1,)
    assert SamplingParams(allowed_tokens=range(2)).allowed_tokens == (0, 1)
    with pytest.raises(UsageError, match="or more, got `nan`"):
        validate(SamplingParams(np.float32(np.nan)))
