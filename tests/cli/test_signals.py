"""Ctrl-C, closed pipes and terminals, in real processes."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from sweep import sweep

from tests.cli.conftest import is_an_error

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")
LONG = ["--max-tokens", "60000", "--context", "65536", "--ignore-eos", "--threads", "1"]
LONG += ["--draft", "ngram", "--control", "fixed"]
PLAIN = ["--draft", "off", "--threads", "1"]  # nothing to measure first
STORY = ["generate", "Write a long story.", *LONG]


@pytest.fixture
def spawn(spawn, talker):
    """Start `paceline` with a model that is read in no time; what it measures is forgotten with the folder."""

    def start(command, *arguments, env=(), **options):
        env = {"PACELINE_HOME": str(talker.parent), **dict(env)}
        return spawn(command, "--model", talker, *arguments, env=env, **options)

    return start


def test_sigint_ends_with_the_summary_and_130(spawn):
    process = spawn(*STORY)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert re.match(r"\d+ tokens? in .* · interrupted\n$", err.decode()), err


def test_sigint_with_json_prints_what_there_is(terminal):
    screen = terminal(*STORY, "--json")
    screen.read_until(r"\?25h")  # the bar is gone: the reply begins
    time.sleep(0.1)
    screen.interrupt()
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 130
    reply = json.loads(text[text.index('{"model"') :])
    assert reply["finish_reason"] == "cancelled"
    assert reply["usage"]["completion_tokens"] == len(reply["token_ids"])


INTERRUPTED_IMPORT = """
import os, signal, sys
class Press:
    def find_spec(self, name, *_):
        if name == WANTED:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
from paceline.__main__ import main
sys.argv = ["paceline", "generate", "x"]
main()
"""


@pytest.mark.parametrize(
    "module", sweep(("typer", "paceline.cli.generate", "numpy", "paceline._native"), fast=("typer", "paceline._native"))
)
def test_ctrl_c_while_starting_is_quiet(module):
    script = INTERRUPTED_IMPORT.replace("WANTED", repr(module))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_closed_stderr_costs_the_summary_only(spawn):
    process = spawn("generate", "Hi", "--max-tokens", "3", *PLAIN, preexec_fn=lambda: os.close(2))
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.strip()
    assert b" in " not in out


def test_a_closed_stdout_is_an_error_of_one_line(spawn):
    process = spawn("generate", "Hi", *PLAIN, preexec_fn=lambda: os.close(1))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert is_an_error(err.decode())


def test_a_chat_without_stdin_is_a_wrong_call(spawn):
    process = spawn("chat", *PLAIN, preexec_fn=lambda: os.close(0))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert is_an_error(err.decode())


def test_a_reader_that_leaves_ends_it_quietly(spawn):
    process = spawn(*STORY)
    assert process.stdout.read(10)
    process.stdout.close()
    process.wait(timeout=30)
    assert process.returncode == 1
    assert process.stderr.read() == b""


def test_an_error_of_the_real_command(spawn):
    process = spawn("generate", "--model", "/nowhere.gguf", "x")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, b"")
    assert is_an_error(err.decode())


class Terminal:
    """A pseudo-terminal with a command in it."""

    def __init__(self, spawn, *arguments, **environment):
        import pty

        self.fd, inner = pty.openpty()
        env = {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "", **environment}
        self.process = spawn(
            *arguments, stdin=inner, stdout=inner, stderr=inner, env=env, preexec_fn=lambda: _own_terminal(inner)
        )
        os.close(inner)
        self.seen = ""

    def read_until(self, wanted, seconds=30):
        """Read until `wanted` (a regular expression) was seen, or to the end if it is None."""
        end = time.monotonic() + seconds
        while wanted is None or not re.search(wanted, self.seen):
            assert time.monotonic() < end, self.seen
            if not select.select([self.fd], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(self.fd, 4096)
            except OSError:  # Linux says so when the other end closes
                data = b""
            if not data:
                assert wanted is None, self.seen
                break
            self.seen += data.decode(errors="replace")
        return self.seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def interrupt(self):
        """Press Ctrl-C as late as a hand: readline misses one that comes before it waits for the next key."""
        time.sleep(0.1)
        self.type("\x03")

    def close(self):
        os.close(self.fd)


def _own_terminal(fd):
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(spawn):
    opened = []

    def start(*arguments, **environment):
        opened.append(Terminal(spawn, *arguments, **environment))
        return opened[-1]

    yield start
    for one in opened:
        with contextlib.suppress(OSError):
            one.close()


def test_terminals_colour_accepted_tokens_and_ctrl_c_restores_them(terminal):
    screen = terminal(*STORY)
    screen.read_until(r"\?25h(?s:.)*\x1b\[32m[^\x1b]+\x1b\[0m")  # after the bar, which is coloured as well
    screen.interrupt()
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 130
    assert "· interrupted\r\n" in text
    assert "Traceback" not in text
    last = [code for code in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]", text) if code.endswith("m")][-1]
    assert last == "\x1b[0m"
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")


def test_no_color_is_heeded(terminal):
    screen = terminal("generate", "Say: the wheel, the wheel, the wheel.", *LONG, "--max-tokens", "12", NO_COLOR="1")
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text.split("\x1b[?25h")[-1]), text


def test_in_a_chat_ctrl_c_stops_the_reply_then_ends(terminal):
    screen = terminal("chat", *LONG)
    screen.read_until("> $")
    screen.type("Write a long story.\r")
    screen.read_until(r"story\.\r\n.{40}(?s:.)*")
    screen.interrupt()
    screen.read_until(r"interrupted\r\n(?s:.)*> $")
    screen.type("/exit\r")
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 0
    assert "Traceback" not in text


def test_ctrl_c_at_a_prompt_drops_the_line_then_ends(terminal):
    screen = terminal("chat", *PLAIN)
    screen.read_until("> $")
    screen.type("a line not")
    screen.read_until("a line not")
    screen.interrupt()
    screen.read_until(r"/exit ends\r\n(?s:.)*> $")
    screen.type("typed")
    screen.read_until("typed")
    screen.interrupt()  # in a row, but not at an empty prompt
    screen.read_until(r"/exit ends(?s:.)*/exit ends\r\n(?s:.)*> $")
    screen.interrupt()
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 130
    assert "Traceback" not in text
    assert " tokens in " not in text


def test_ctrl_d_ends_a_chat(terminal):
    screen = terminal("chat", *PLAIN)
    screen.read_until("> $")
    screen.type("\x04")
    screen.read_until(None)
    assert screen.process.wait(timeout=10) == 0
