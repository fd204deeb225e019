"""What a recording holds is what was recorded, and a damaged or inconsistent one is refused."""

import lzma
from dataclasses import replace

import numpy as np
import pytest
from rig.recording import DEEP, LIKELY, dense, load, save
from tiny_recording import END, pair, tiny_recording


@pytest.fixture
def file(tmp_path):
    save(tiny_recording(), tmp_path / "tiny")
    return tmp_path / "tiny"


def same(one, other):
    arrays = ("prompt", "reply", "likely", "guesses", "sure", "beside", "prediction")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


def test_a_recording_comes_back_as_it_was_written(file):
    before, after = tiny_recording(), load(file)
    assert all(same(*pair) for pair in zip(before.texts, after.texts, strict=True))
    assert [t.name for t in before.texts] == [t.name for t in after.texts]
    assert (before.vocabulary == after.vocabulary).all()
    assert (before.ends, before.about) == (after.ends, after.about)


def test_it_says_what_the_models_say():
    """Along each reply the target's likeliest, the draft's guess; behind a wrong guess the draft's own chain."""
    recording, (target, draft) = tiny_recording(), pair()
    ids = recording.vocabulary
    for text in recording.texts:
        for place in range(len(text.reply) + 1):
            context = ids[[*text.prompt, *text.reply[:place]]].tolist()
            likely = np.argsort(-target.logits_after(context), kind="stable")[:LIKELY]
            assert (ids[text.likely[place]] == likely).all()
            chain = [int(token) for token in text.guesses[place] if token >= 0]
            is_right = place < len(text.reply) and chain[0] == text.reply[place]
            assert len(chain) == (1 if is_right else DEEP)
            for depth, token in enumerate(chain):
                logits = draft.logits_after(context)
                order = np.argsort(-logits, kind="stable")
                assert ids[token] == order[0]
                assert ids[text.beside[place, depth]].tolist() == order[1:3].tolist()
                share = 1 / np.exp(logits - logits.max()).sum()
                assert text.sure[place, depth] / 65535 == pytest.approx(share, abs=1e-4)
                context.append(int(ids[token]))


def test_ids_become_dense_and_keep_their_order():
    text = tiny_recording().texts[0]
    far = {name: 1000 * getattr(text, name) + 7 for name in ("prompt", "reply")}
    far |= {
        name: np.where(a >= 0, 1000 * a + 7, -1)
        for name in ("likely", "guesses", "beside")
        for a in [getattr(text, name)]
    }
    ends = [1000 * end + 7 for end in tiny_recording().ends]
    found = dense([replace(text, **far)], [*ends, 10**6], {})
    used = np.unique(np.concatenate([a[a >= 0].ravel() for a in far.values()]))
    assert found.vocabulary.tolist() == used.tolist()
    assert (found.vocabulary[found.texts[0].reply] == far["reply"]).all()


CASES = {
    "a reply that is not the likeliest": lambda t: replace(t, reply=np.roll(t.reply, 1)),
    "a place too few": lambda t: replace(t, likely=t.likely[:-1]),
    "an id that there is not": lambda t: replace(t, prompt=t.prompt + 1000),
    "a missing chain": lambda t: replace(t, guesses=np.full_like(t.guesses, -1)),
    "a chain that stops early": lambda t: replace(t, guesses=np.where(np.arange(DEEP) < 3, t.guesses, -1)),
    "a reply that goes on": lambda t: replace(t, max_tokens=len(t.reply) + 1, reply=_without_end(t)),
    "more tokens than asked for": lambda t: replace(t, max_tokens=1),
}


def _without_end(text):
    return np.where(text.reply == END, 0, text.reply)


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_refused(case, file, tmp_path):
    recording = tiny_recording()
    with pytest.raises(ValueError, match=r"short 0"):
        replace(recording, texts=(CASES[case](recording.texts[0]),)).check()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other", "missing"])
def test_a_damaged_file_is_refused(damage, file):
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(
            {
                "cut": whole[: len(whole) // 2],
                "flipped": whole[:200] + bytes([whole[200] ^ 255]) + whole[201:],
                "empty": b"",
                "other": lzma.compress(b"something else"),
            }[damage]
        )
    with pytest.raises(ValueError, match="is no recording of version 1"):
        load(file)
