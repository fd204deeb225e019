"""Files are there whole or not at all; turns at a folder are one at a time, never for ever."""

import errno
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

from paceline.store import locked, turn, write

ROOT = Path(__file__).parent.parent


def test_one_waits_for_the_other(tmp_path):
    order, inside = [], threading.Event()

    def first():
        with turn(tmp_path):
            inside.set()
            sleep(0.1)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with turn(tmp_path):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


def test_what_holds_it_too_long_is_not_waited_for(tmp_path):
    with turn(tmp_path):
        started = monotonic()
        with turn(tmp_path, patience=0.05) as is_ours:
            assert 0.04 < monotonic() - started < 2
            assert not is_ours
    with turn(tmp_path) as is_ours:
        assert is_ours


def test_a_folder_that_is_not_there_keeps_none_waiting(tmp_path):
    with turn(tmp_path / "none"):
        pass


def test_a_file_is_replaced_atomically_and_leaves_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "made" / "file"
    with pytest.raises(FileNotFoundError):
        write(path, b"no folder")
    path.parent.mkdir()
    write(path, b"old")
    write(path, b"new", is_durable=True)
    assert path.read_bytes() == b"new"
    assert [one.name for one in path.parent.iterdir()] == ["file"]
    for name, reason in (("replace", errno.EROFS), ("fsync", errno.ENOSPC)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, lambda *_, reason=reason: (_ for _ in ()).throw(OSError(reason, "no")))
            with pytest.raises(OSError, match="no"):
                write(path, b"lost", is_durable=True)
    with pytest.raises(OSError, match="directory"):
        write(path.parent, b"a folder is there")
    assert path.read_bytes() == b"new"
    assert [one.name for one in path.parent.iterdir()] == ["file"]
    assert [one.name for one in tmp_path.iterdir()] == ["made"]


def test_threads_that_write_at_once_leave_one_whole_file(tmp_path):
    path, texts = tmp_path / "file", [bytes([65 + i]) * 100_000 for i in range(4)]

    def play(text):
        for _ in range(20):
            write(path, text)
            assert path.read_bytes() in texts

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(play, texts))
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_is_locked_is_waited_for(tmp_path):
    order, inside = [], threading.Event()

    def first():
        with locked(tmp_path / "lock"):
            inside.set()
            sleep(0.1)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with locked(tmp_path / "lock"):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_no_other_module_moves_or_locks_files():
    elsewhere = [
        path.name
        for path in (ROOT / "paceline").rglob("*.py")
        if path.name != "store.py" and re.search(r"os\.replace|fcntl|flock|mkstemp|\.rename\(", path.read_text())
    ]
    assert elsewhere == []
