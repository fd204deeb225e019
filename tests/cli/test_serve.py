"""`serve` as a process: its port opens at once, it answers, and a signal ends it when open replies are done."""

import contextlib
import json
import re
import signal
import socket
import threading
import time
import urllib.request

import pytest

from tests.cli.conftest import is_an_error


@pytest.fixture
def serving(spawn, talker):
    """Start a server and return its process and URL once it is ready."""

    def start(*arguments):
        process = spawn("serve", "--model", talker, "--draft", "off", "--threads", "1", "--port", "0", *arguments)
        said = ""
        while not (found := re.search(r"http://[\d.]+:\d+", said)):
            said += process.stderr.readline().decode()
        url, end = found.group(), time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if urllib.request.urlopen(f"{url}/ready").status == 200:
                    return process, url, said
            except OSError:
                time.sleep(0.05)
        raise AssertionError(said)

    return start


def ask(url, **body):
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return json.loads(urllib.request.urlopen(request).read())


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_open_reply(serving, sent):
    process, url, _ = serving("--context", "8192")
    found = []
    thread = threading.Thread(
        target=lambda: found.append(ask(url, prompt="x", max_tokens=6000, temperature=0, ignore_eos=True))
    )
    thread.start()
    while b'num_requests_running{model_name="talker"} 0.0' in urllib.request.urlopen(f"{url}/metrics").read():
        time.sleep(0.01)
    process.send_signal(sent)
    thread.join(60)
    assert found[0]["usage"]["completion_tokens"] == 6000
    assert process.wait(30) == (130 if sent == signal.SIGINT else 0)
    assert b"Traceback" not in process.stderr.read()


def test_a_port_in_use_is_an_error(cli, talker):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = cli("serve", "--model", talker, "--port", taken.getsockname()[1])
    assert result.code == 2
    assert is_an_error(result.err)
    assert "cannot listen at 127.0.0.1" in result.err


def test_keys_are_read_from_a_file_and_an_empty_one_is_refused(cli, talker, tmp_path):
    (tmp_path / "keys").write_text("\n\n")
    result = cli("serve", "--model", talker, "--api-key-file", tmp_path / "keys")
    assert (result.code, is_an_error(result.err)) == (2, True)
    assert "must hold a key" in result.err


def test_drafters_that_learn_from_all_are_refused_beside_several_keys(cli, talker, tmp_path):
    (tmp_path / "keys").write_text("one\ntwo\n")
    result = cli("serve", "--model", talker, "--draft", "recycle,suffix", "--api-key-file", tmp_path / "keys")
    assert result.code == 2
    assert "`recycle` learns from every request" in result.err


def test_without_its_libraries_the_error_says_what_to_install(cli, talker, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "paceline.server.app", None)
    result = cli("serve", "--model", talker)
    assert result.code == 2
    assert "paceline[serve]" in result.err


def test_a_server_that_was_killed_starts_again_with_what_it_had_learnt(serving, tmp_path):
    """SIGKILL in the middle of replies, again and again: the corpus on the disk is whole, and replies are the same."""
    corpus, said = tmp_path / "corpus", set()
    process, url, _ = serving("--draft", f"suffix:{corpus}")
    said.add(ask(url, prompt="abc", max_tokens=60, temperature=0, ignore_eos=True)["choices"][0]["text"])
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert corpus.stat().st_size > 0
    for delay in (0.0, 0.05, 0.3):
        process, url, _ = serving("--draft", f"suffix:{corpus}")
        said.add(ask(url, prompt="abc", max_tokens=60, temperature=0, ignore_eos=True)["choices"][0]["text"])
        body = {"prompt": "abc", "max_tokens": 4000, "temperature": 0, "ignore_eos": True}

        def cut_off(url=url, body=body):
            with contextlib.suppress(OSError):
                ask(url, **body)

        thread = threading.Thread(target=cut_off)
        thread.start()
        time.sleep(delay)
        process.kill()
        process.wait(30)
        thread.join(30)
        assert b"Traceback" not in process.stderr.read()
    process, url, _ = serving("--draft", f"suffix:{corpus}")
    said.add(ask(url, prompt="abc", max_tokens=60, temperature=0, ignore_eos=True)["choices"][0]["text"])
    assert len(said) == 1
    assert corpus.stat().st_size > 0


def test_models_of_a_file_are_served_by_their_names(serving, talker, tmp_path):
    file = tmp_path / "models.toml"
    file.write_text(f'[one]\nmodel = "{talker}"\n[two]\nmodel = "{talker}"\ncontext = 128\n')
    process, url, _ = serving("--models", str(file))
    listed = json.loads(urllib.request.urlopen(f"{url}/v1/models").read())["data"]
    assert [one["id"] for one in listed] == ["talker", "one", "two"]
    assert [one["loaded"] for one in listed] == [True, False, False]
    assert ask(url, model="two", prompt="x", max_tokens=3)["model"] == "two"
    process.send_signal(signal.SIGTERM)
    process.wait(30)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [", "must be TOML"),
        ("a = 1\n", "`a`, which is none"),
        ("", "got none"),
        ("[a]\ncontxt = 5\n", "`a`: unknown setting `contxt`"),
        ("[a]\ncontext = 0\n", "context"),
    ],
)
def test_a_wrong_file_of_models_is_told_of(cli, tmp_path, text, said):
    (tmp_path / "m.toml").write_text(text)
    result = cli("serve", "--models", tmp_path / "m.toml")
    assert (result.code, is_an_error(result.err)) == (2, True)
    assert said in result.err


def test_names_of_models_must_differ(cli, talker):
    result = cli("serve", "--model", talker, "--model", talker)
    assert result.code == 2
    assert "a name of its own" in result.err
    result = cli("serve", "--model", talker, "--model", "other", "--name", "x")
    assert "--name is for one --model" in result.err
