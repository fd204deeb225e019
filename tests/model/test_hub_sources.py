"""Models of the hub: which files of a repository come, and what is said of those that do not."""

import json

import pytest
from fake_hub import BODY, KNOWN, finals

from paceline.errors import ModelFileError, ModelNotFound, UsageError
from paceline.formats.catalog import resolve

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("source", "words", "hint"),
    [
        ("hf:org/none:x.gguf", "no repository `org/none`", "HF_TOKEN"),
        ("hf:org/none", "no repository `org/none`", "HF_TOKEN"),
        ("hf:org/tiny-GGUF:other.gguf", "`other.gguf` of `org/tiny-GGUF`; the repository has no such file", "hf:org/"),
    ],
)
def test_what_the_hub_lacks_is_said_plainly(hub, source, words, hint):
    with pytest.raises(ModelNotFound) as caught:
        resolve(source)
    assert words in str(caught.value)
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)


def test_gated_repositories_say_what_to_do(hub):
    hub.gated = True
    with pytest.raises(ModelNotFound, match="once its terms are accepted"):
        resolve("hf:org/tiny-GGUF:tiny.gguf")


def test_hub_files_are_fetched_once_and_checked_by_digest(hub, home):
    path = resolve("hf:org/tiny-GGUF:tiny.gguf")
    assert finals(home) == ["hf/org--tiny-GGUF/tiny.gguf"]
    asked = len(hub.requests)
    assert resolve("hf:org/tiny-GGUF:tiny.gguf") == path
    assert len(hub.requests) == asked
    path.unlink()
    hub.corrupt = True
    with pytest.raises(ModelFileError, match=KNOWN.sha256):
        resolve("hf:org/tiny-GGUF:tiny.gguf")
    assert finals(home) == []


def test_a_repository_without_a_file_named_is_chosen_from(hub):
    assert resolve("hf:org/tiny-GGUF").name == "tiny.gguf"
    asked = len(hub.requests)
    assert resolve("hf:org/tiny-GGUF").read_bytes() == BODY
    assert len(hub.requests) == asked
    hub.repos["org/many"] = {f"m-{kind}.gguf": BODY for kind in ("Q8_0", "Q4_K_M", "F16")}
    assert resolve("hf:org/many").name == "m-Q4_K_M.gguf"
    hub.repos["org/unclear"] = {"a.gguf": BODY, "b.gguf": BODY}
    with pytest.raises(ModelNotFound, match=r"it has 2: a\.gguf, b\.gguf"):
        resolve("hf:org/unclear")
    hub.repos["org/none"] = {"pytorch_model.bin": BODY}
    with pytest.raises(ModelNotFound, match="in `org/none`"):
        resolve("hf:org/none")


def test_split_files_come_with_all_their_parts(hub, home):
    hub.repos["org/split"] = {f"q/m-0000{number}-of-00002.gguf": BODY for number in (1, 2)}
    assert resolve("hf:org/split") == home / "hf/org--split/q/m-00001-of-00002.gguf"
    assert finals(home) == [f"hf/org--split/q/m-0000{number}-of-00002.gguf" for number in (1, 2)]


def test_a_safetensors_repository_becomes_a_folder(hub, home):
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": BODY, "flax.msgpack": b"no"}
    hub.repos["org/folder"] = files
    folder = resolve("hf:org/folder")
    assert {path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".msgpack")} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
    }
    hub.repos.clear()
    assert resolve("hf:org/folder") == folder


def holds(hub, *names):
    hub.repos["org/many"] = dict.fromkeys(names, BODY)


QUANTS = (
    "m-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m-Q8_0.gguf",
    "m-IQ4_XS.gguf",
    "m-UD-IQ4_XS.gguf",
    "m.BF16.gguf",
    "M_f16.gguf",
)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q8_0", "m-Q8_0.gguf"),
        ("IQ4_XS", "m-IQ4_XS.gguf"),
        ("UD-IQ4_XS", "m-UD-IQ4_XS.gguf"),
        ("BF16", "m.BF16.gguf"),
        ("F16", "M_f16.gguf"),
    ],
)
def test_a_type_names_the_file_of_that_type(hub, home, kind, name):
    holds(hub, *QUANTS, "mmproj-m-Q8_0.gguf", "README.md")
    assert resolve(f"hf:org/many:{kind}").name == name
    assert finals(home) == [f"hf/org--many/{name}"]
    hub.repos.clear()  # later runs need no network
    asked = len(hub.requests)
    assert resolve(f"hf:org/many:{kind.lower()}").name == name
    assert len(hub.requests) == asked


def test_a_type_names_all_parts_of_a_split_file(hub, home):
    parts = [f"Q8_0/m-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    plain = [f"IQ2_M/m-0000{number}-of-00002.gguf" for number in (1, 2)]
    holds(hub, *parts, *plain, "m-Q4_0.gguf")
    assert resolve("hf:org/many:Q8_0").name == "m-Q8_0-00001-of-00003.gguf"
    assert resolve("hf:org/many:iq2_m").parent.name == "IQ2_M"
    assert finals(home) == sorted(f"hf/org--many/{name}" for name in (*parts, *plain))


@pytest.mark.parametrize("kind", ["Q4_K", "Q4", "Q5_K_M", "F32", "K_M", "latest"])
def test_a_missing_type_is_told_with_those_that_are_there(hub, home, kind):
    holds(hub, *QUANTS)
    with pytest.raises(ModelNotFound) as caught:
        resolve(f"hf:org/many:{kind}")
    types = "BF16, F16, IQ4_XS, Q4_K_M, Q4_K_S, Q8_0, UD-IQ4_XS"
    assert str(caught.value) == f"wanted type `{kind}` of `org/many`; it has {types}"
    assert "hf:org/many:" in caught.value.hint
    assert finals(home) == []


def test_a_type_is_never_guessed(hub):
    holds(hub, "a-Q8_0.gguf", "b-Q8_0.gguf")
    with pytest.raises(ModelNotFound, match=r"one file of type `Q8_0`.*: a-Q8_0\.gguf, b-Q8_0\.gguf") as caught:
        resolve("hf:org/many:Q8_0")
    assert caught.value.hint == "name one: hf:org/many:a-Q8_0.gguf"
    holds(hub, "a.gguf", "b.gguf")
    with pytest.raises(ModelNotFound, match="it has no types") as caught:
        resolve("hf:org/many:Q8_0")
    assert "a.gguf" in caught.value.hint
    hub.repos["org/many"] = {"config.json": b"{}", "model.safetensors": BODY}
    with pytest.raises(ModelNotFound, match="it has no types") as caught:
        resolve("hf:org/many:Q8_0")
    assert "hf:org/many" in caught.value.hint


def sharded(*names, **more):
    """A repository of shards: what its index names, and what lies beside."""
    index = json.dumps({"weight_map": {f"t{i}": name for i, name in enumerate(names)}}).encode()
    return {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors.index.json": index, **more}


def test_a_sharded_repository_brings_only_what_its_index_names(hub, home):
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    beside = ("consolidated.safetensors", "adapter_model.safetensors", "model-00003-of-00002.safetensors")
    hub.repos["org/shards"] = sharded(*shards, **dict.fromkeys((*shards, *beside), BODY))
    folder = resolve("hf:org/shards")
    assert sorted(path.name for path in folder.glob("*.safetensors")) == shards
    assert not [path for _, path, _ in hub.requests if any(name in path for name in beside)]
    hub.repos.clear()
    assert resolve("hf:org/shards") == folder


def test_one_whole_file_goes_before_shards(hub, home):
    hub.repos["org/both"] = sharded("model-1.safetensors", **{"model.safetensors": BODY, "model-1.safetensors": BODY})
    names = {path.name for path in resolve("hf:org/both").iterdir() if path.is_file()}
    assert "model.safetensors" in names
    assert not {"model.safetensors.index.json", "model-1.safetensors"} & names  # an index would be followed


def test_missing_or_foreign_shards_are_refused_before_any_is_fetched(hub, home):
    hub.repos["org/cut"] = sharded("a.safetensors", "b.safetensors", **{"b.safetensors": BODY})
    with pytest.raises(ModelNotFound, match=r"all 2 files that .*index\.json` of `org/cut` names; `a\.safetensors`"):
        resolve("hf:org/cut")
    hub.repos["org/evil"] = sharded("../a.safetensors")
    with pytest.raises(ModelFileError, match="beside it"):
        resolve("hf:org/evil")
    hub.repos["org/odd"] = {"config.json": b"{}", "tokenizer.json": b"{}", "consolidated.safetensors": BODY}
    with pytest.raises(ModelNotFound, match="1 of them safetensors under other names"):
        resolve("hf:org/odd")
    assert not list(home.rglob("*.safetensors"))


@pytest.mark.parametrize("source", ["hf:", "hf:name", "hf:a/b:../x.gguf", "hf:a/b:/etc/x.gguf", "hf:a/b:x.bin"])
def test_malformed_hub_sources_are_usage_errors(source):
    with pytest.raises(UsageError, match="hf:"):
        resolve(source)


def test_names_from_the_hub_cannot_leave_the_folder(hub, home):
    hub.repos["org/evil"] = {"../../../evil.gguf": BODY, "/tmp/evil.gguf": BODY}
    with pytest.raises(ModelNotFound):
        resolve("hf:org/evil")
    assert finals(home) == []
