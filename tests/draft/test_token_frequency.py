"""Which tokens keep their row: the frequent ones, by the pieces that ship with the package."""

from importlib import resources

import numpy as np
import pytest

from paceline.draft.base import Loaded
from paceline.draft.model import token_frequency as frequent
from paceline.engine.loading import read_tokenizer
from paceline.formats.catalog import resolve
from paceline.formats.files import open_model
from paceline.testing import ByteTokenizer, TinyModel

TEXT = """def read(path: str) -> list[int]:
    \"\"\"Return the numbers of a file, one in each line.\"\"\"
    with open(path, encoding="utf-8") as file:
        return [int(line) for line in file if line.strip()]

The train leaves at 9:40 and travels 210 km at 84 km/h. Therefore it takes 210 / 84 = 2.5 hours, which is 2 hours and
30 minutes. The answer is 12:10. Wie geht es dir heute? Je ne sais pas.
"""


@pytest.fixture(scope="module")
def tokenizer():
    file = open_model(resolve("smollm2-135m"))
    try:
        return read_tokenizer(file)
    finally:
        file.close()


@pytest.fixture(scope="module")
def ids(tokenizer, tmp_path_factory):
    return frequent.ranked(tokenizer, tokenizer.vocab_size, tmp_path_factory.mktemp("ranks"))


def test_every_token_is_ranked_once_and_control_tokens_come_first(tokenizer, ids):
    assert np.array_equal(np.sort(ids), np.arange(tokenizer.vocab_size))
    control = {i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)} | set(tokenizer.eos_ids)
    assert set(ids[: len(control)].tolist()) == control


def test_a_quarter_of_the_vocabulary_covers_common_text(tokenizer, ids):
    tokens = np.array(tokenizer.encode(TEXT))
    covered = np.isin(tokens, ids[: len(ids) // 4]).mean()
    assert covered > 0.92, covered


def test_a_ranking_is_kept_and_a_damaged_one_made_again(tokenizer, ids, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(frequent, "rank", lambda *given: made.append(1) or ids)
    for _ in range(2):
        assert np.array_equal(frequent.ranked(tokenizer, len(ids), tmp_path), ids)
    assert len(made) == 1
    (path,) = tmp_path.iterdir()
    for damage in (b"", b"\x93NUMPY", path.read_bytes()[:-4], path.read_bytes()[:-4] + b"\0\0\0\0"):
        path.write_bytes(damage)
        made.clear()
        assert np.array_equal(frequent.ranked(tokenizer, len(ids), tmp_path), ids)
        assert made, damage[:8]


def test_a_folder_that_cannot_be_written_is_no_error(tokenizer, ids, tmp_path, monkeypatch):
    monkeypatch.setattr(frequent, "rank", lambda *given: ids)
    (tmp_path / "file").write_text("")
    assert np.array_equal(frequent.ranked(tokenizer, len(ids), tmp_path / "file" / "below"), ids)


def test_the_data_is_small_and_of_counted_pieces():
    data = resources.files("paceline.draft.model").joinpath("pieces.json.xz").read_bytes()
    assert len(data) < 300_000


def test_a_head_is_cut_only_where_that_saves_much():
    loaded = Loaded("d", TinyModel(60), ByteTokenizer(), 512)
    assert frequent.outputs_for(loaded, 0) is None
    assert frequent.outputs_for(loaded, 40) is None, "60 tokens are not twice 40"
    assert frequent.outputs_for(loaded, 10) is None, "not a model on our kernels"
