"""The tokenizer of a Hugging Face folder says what the folder's files say, and is honest about bad ones."""

import json

import pytest
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from paceline.errors import ModelFileError, ModelNotFound
from paceline.text.pretokenizers import PRETOKENIZERS
from paceline.text.tokenizer import Tokenizer

from .conftest import byte_level


def folder_with(tmp_path, config, **files):
    library = LibraryTokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate([*byte_level()["tokenizer.ggml.tokens"]][:-3])}, merges=[("h", "e")]
        )
    )
    split = pre_tokenizers.Split(Regex(PRETOKENIZERS["qwen2"].patterns[0]), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>"), AddedToken("<|extra|>")])
    library.add_tokens([AddedToken("<|tool|>", normalized=False)])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_text(content)
    return Tokenizer.from_file(tmp_path)


def test_a_folder_tells_what_its_files_say(tmp_path):
    tokenizer = folder_with(
        tmp_path,
        {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>", "chat_template": "x"},
        generation_config__json='{"eos_token_id": [5, 261]}',
    )
    assert tokenizer.chat_template == "x"
    assert tokenizer.eos_ids == {tokenizer.find("<|im_end|>"), 5, 261}
    assert tokenizer.bos_id == tokenizer.find("<|im_start|>")
    assert not tokenizer.add_bos
    text = "hé <|im_end|> <|tool|>"
    plain, parsed = tokenizer.encode(text), tokenizer.encode(text, parse_special=True)
    assert tokenizer.find("<|im_end|>") not in plain
    assert tokenizer.find("<|im_end|>") in parsed
    assert tokenizer.find("<|tool|>") in plain
    assert tokenizer.decode(plain) == text == tokenizer.decode(parsed, skip_special=False)


def test_byte_order_marks_in_a_folders_files_are_no_text(tmp_path):
    names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
    folder_with(
        tmp_path, {"eos_token": "<|tool|>"}, generation_config__json='{"eos_token_id": 5}', chat_template__jinja="j"
    )
    for name in names:
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
    tokenizer = Tokenizer.from_file(tmp_path)
    assert tokenizer.eos_ids >= {5, tokenizer.find("<|tool|>")}
    assert tokenizer.chat_template == "j"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelFileError, match=r"`chat_template\.jinja` must be UTF-8 text; byte 0"):
        Tokenizer.from_file(tmp_path)


def test_a_folder_may_keep_several_templates(tmp_path):
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert folder_with(tmp_path, {"chat_template": named}).chat_template == "d"
    assert folder_with(tmp_path, {"chat_template": named}, chat_template__jinja="j").chat_template == "j"


@pytest.mark.parametrize("value", ["265", "-1", "[5, 4294967295]", '"5"', "true", "1.5"])
@pytest.mark.parametrize("name", ["config__json", "generation_config__json"])
def test_an_end_that_is_no_folder_token_is_refused(tmp_path, name, value):
    with pytest.raises(ModelFileError, match=rf"{name.replace('__', '.')}'s `eos_token_id` must be ids of tokens"):
        folder_with(tmp_path, {}, **{name: f'{{"eos_token_id": {value}}}'})
    with pytest.raises(ModelFileError, match="`eos_token` must be a token"):
        folder_with(tmp_path, {"eos_token": "<|no-such|>"})


def test_a_folders_end_ends_a_reply_whatever_its_type(tmp_path):
    tokenizer = folder_with(tmp_path, {"eos_token": "<|tool|>"})
    assert tokenizer.eos_ids == {tokenizer.find("<|im_end|>"), tokenizer.find("<|tool|>")}
    assert not tokenizer.is_special(tokenizer.find("<|tool|>"))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        Tokenizer.from_file(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelFileError, match="got"):
        Tokenizer.from_file(tmp_path)


def raw_folder(tmp_path, tokenizer, config="{}"):
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(config)
    return tmp_path


def bare(**more):
    parts = ("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding")
    decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [], "decoder": decoder, **dict.fromkeys(parts), **more}


def test_a_folder_cannot_claim_memory_by_its_ids(tmp_path):
    model = {"type": "WordLevel", "vocab": {"a": 2147483647, "b": 1}, "unk_token": "a"}
    with pytest.raises(ModelFileError, match="gaps"):
        Tokenizer.from_file(raw_folder(tmp_path, bare(model=model)))


def test_what_the_library_cannot_cut_is_the_files_fault(tmp_path):
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "missing"}
    with pytest.raises(ModelFileError, match="must cut any text"):
        Tokenizer.from_file(raw_folder(tmp_path, bare(model=model))).encode("zebra")


def test_a_config_of_brackets_is_refused(tmp_path):
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    with pytest.raises(ModelFileError, match="tokenizer_config"):
        Tokenizer.from_file(raw_folder(tmp_path, bare(model=model), "[" * 100_000))
