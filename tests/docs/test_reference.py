"""The reference is made from the code, and says all of it."""

import re
from pathlib import Path

import reference

from paceline import LLM
from paceline.cli.main import COMMANDS
from paceline.config import LLMConfig
from paceline.engine.json_keys import KEYS
from paceline.environment import VARIABLES

ROOT = Path(__file__).parents[2]


def keys_of(said, at=""):
    for key, value in said.items():
        yield f"{at}{key}"
        if isinstance(value, dict) and key != "by_source":
            yield from keys_of(value, f"{at}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from keys_of(value[0], f"{at}{key}[].")


def test_each_key_of_a_replys_json_is_described(talker):
    llm = LLM(talker, draft="off", threads=1)
    said = set(keys_of(llm.generate("abc", max_tokens=3, logprobs=1).to_json(llm.tokenizer)))
    said |= {"error.message", "error.hint"}
    inner = {key for key in said if "top_logprobs[]." in key}
    whole = {"usage", "usage.completion_tokens_details", "speculation", "timing"}
    assert said - inner - whole == set(KEYS)


def test_each_environment_variable_is_described():
    sources = "".join(path.read_text() for path in (ROOT / "paceline").rglob("*.py") if path.name != "environment.py")
    read = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", sources)) | {"PACELINE_API_KEY", "PACELINE_ISA"}
    assert read <= set(VARIABLES)


def test_pages_name_every_command_and_setting(tmp_path):
    reference.write(tmp_path)
    pages = {path.stem: path.read_text() for path in tmp_path.iterdir()}
    assert all(f"## paceline {name}\n" in pages["cli"] for name in COMMANDS)
    assert all(f"| `{name}` |" in pages["settings"] for name in [*LLMConfig.__dataclass_fields__, *VARIABLES])
    assert "PacelineError" in pages["python"]
    assert not re.search(r"\| +\|$", "".join(pages.values()).replace("|  |\n|---", "")), "an empty description"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    reference.write(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
