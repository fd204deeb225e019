"""Turns at a folder: one at a time, never for ever."""

import threading
from time import monotonic, sleep

from paceline.turns import turn


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


def test_a_turn_held_too_long_is_not_waited_for(tmp_path):
    with turn(tmp_path):
        started = monotonic()
        with turn(tmp_path, patience=0.05) as is_ours:
            assert 0.04 < monotonic() - started < 2
            assert not is_ours
    with turn(tmp_path) as is_ours:
        assert is_ours


def test_a_missing_folder_makes_no_wait(tmp_path):
    with turn(tmp_path / "none"):
        pass
