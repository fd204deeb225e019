"""How a publisher wants replies to be drawn, from a folder and from a GGUF file."""

import json

import pytest
from gguf_writer import tiny_metadata, tiny_tensors, write_gguf

from paceline.formats.generation import own_settings

TOKENS = {"tokenizer.ggml.tokens": ["a", "b"]}


def test_a_folder_says_it_in_a_file_of_its_own(tmp_path):
    file = tmp_path / "generation_config.json"
    file.write_text(
        json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20.0, "eos_token_id": 2})
    )
    assert own_settings(tmp_path) == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    file.write_text(json.dumps({"temperature": 0.6, "repetition_penalty": 1.1}))
    assert own_settings(tmp_path) == {"repetition_penalty": 1.1}, "without do_sample it is greedy"


def test_a_gguf_file_says_it_among_its_keys(tmp_path):
    own = {"general.sampling.temp": 0.5, "general.sampling.top_k": 40, "general.sampling.penalty_repeat": 1.25}
    metadata = tiny_metadata()
    path = write_gguf(tmp_path / "m.gguf", metadata | own | TOKENS, tiny_tensors(metadata))
    assert own_settings(path) == {"temperature": 0.5, "top_k": 40, "repetition_penalty": 1.25}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"do_sample": true, "temperature": "hot", "top_p": 7, "min_p": null}']
)
def test_what_is_not_sound_is_left_out(tmp_path, text):
    (tmp_path / "generation_config.json").write_text(text)
    assert own_settings(tmp_path) == {}
    assert own_settings(tmp_path / "nowhere") == {}
