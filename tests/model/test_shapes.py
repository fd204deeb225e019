"""Any shape either runs or is refused with words: no bare error comes out of the kernels."""

import itertools

import pytest
import tiny as models
from tiny import feed, pool_of, text, write_model

from paceline.errors import ModelFileError, UnsupportedModel
from paceline.formats.files import open_model
from paceline.kernels.tensor import GgmlType
from paceline.model.native import NativeModel


@pytest.fixture
def try_shape(tmp_path, monkeypatch):
    """Load and run a llama of these numbers."""

    def run(sizes, *, head=32, rotary=None, kind=GgmlType.F32, quant="auto"):
        numbers = {"llama.attention.key_length": head, "llama.attention.value_length": head}
        numbers["llama.rope.dimension_count"] = head if rotary is None else rotary
        monkeypatch.setitem(
            models.FAMILIES, "any", ("llama", {"width": 64, "heads": 2, "kv_heads": 1} | sizes, numbers, True)
        )
        model = NativeModel(open_model(write_model(tmp_path / "any.gguf", "any", kind)), pool_of(1), quant=quant)
        cache = model.new_cache(64)
        return feed(model, cache, cache.open(), text(1, 9))

    return run


@pytest.mark.parametrize("head", [2, 16, 24, 48, 544, 1024])
def test_a_head_too_large_for_attention_is_refused_before_packing(try_shape, monkeypatch, head):
    monkeypatch.setattr("paceline.model.native.load_weights", lambda *_: pytest.fail("weights were packed for it"))
    with pytest.raises(UnsupportedModel, match=rf"heads of a multiple of 32 numbers, at most 512; got {head}(\n|$)"):
        try_shape({}, head=head)


@pytest.mark.parametrize("head", [32, 96, 512])
def test_the_heads_that_the_refusal_names_run(try_shape, head):
    assert len(try_shape({}, head=head)) == 9


@pytest.mark.parametrize(("width", "ffn"), [*itertools.product([1, 48, 64], [1, 40, 96])])
@pytest.mark.parametrize("quant", ["auto", "bf16", "q4", "q8", "q4s"])
def test_ragged_widths_run_as_floats_and_are_refused_packed(try_shape, width, ffn, quant):
    if quant.startswith("q") and (width % 32 or ffn % 32):
        with pytest.raises(UnsupportedModel, match="multiple of 32") as caught:
            try_shape({"width": width, "ffn": ffn}, quant=quant)
        assert "--draft-quant" in caught.value.hint
    else:
        assert len(try_shape({"width": width, "ffn": ffn}, quant=quant)) == 9


@pytest.mark.parametrize("rotary", [2, 6, 30])
def test_a_part_of_a_head_may_be_rotated(try_shape, rotary):
    assert len(try_shape({}, rotary=rotary)) == 9


@pytest.mark.parametrize(("sizes", "rotary"), [({}, 3), ({}, 31), ({}, 34), ({"heads": 3, "kv_heads": 2}, 32)])
def test_numbers_that_fit_no_model_are_a_file_error(try_shape, sizes, rotary):
    with pytest.raises(ModelFileError):
        try_shape(sizes, rotary=rotary)
