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

    def read_plain(self, wanted, seconds=30):
        """The same on what was written without the sequences that move the cursor and colour."""
        while not re.search(wanted, self.plain):
            before = len(self.seen)
            self.read_until(rf"(?s).{{{before + 1}}}", seconds)
        return self.plain

    @property
    def plain(self):
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\x08\r]", "", self.seen)

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


PROMPT = r"\n> ?$"


def test_in_a_chat_ctrl_c_stops_the_reply_then_ends(terminal):
    screen = terminal("chat", *LONG)
    screen.read_plain(PROMPT)
    screen.type("Write a long story.\r")
    screen.read_plain(r"story\.\n.{40}(?s:.)*")
    screen.interrupt()
    screen.read_plain(r"interrupted(?s:.)*" + PROMPT)
    screen.type("/exit\r")
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 0
    assert "Traceback" not in text


def test_ctrl_c_at_a_prompt_drops_the_line_then_ends(terminal):
    screen = terminal("chat", *PLAIN)
    screen.read_plain(PROMPT)
    screen.type("a line not")
    screen.read_plain("a line not")
    screen.interrupt()
    screen.read_plain(r"/exit ends(?s:.)*" + PROMPT)
    screen.type("typed")
    screen.read_plain("typed")
    screen.interrupt()  # in a row, but not at an empty prompt
    screen.read_plain(r"/exit ends(?s:.)*/exit ends(?s:.)*" + PROMPT)
    screen.interrupt()
    text = screen.read_until(None)
    assert screen.process.wait(timeout=10) == 130
    assert "Traceback" not in text
    assert " tokens in " not in text


def test_ctrl_d_ends_a_chat(terminal):
    screen = terminal("chat", *PLAIN)
    screen.read_plain(PROMPT)
    screen.type("\x04")
    screen.read_until(None)
    assert screen.process.wait(timeout=10) == 0


def test_several_lines_are_one_turn_and_are_remembered(terminal, tmp_path):
    file = tmp_path / "talk.json"
    screen = terminal("chat", *PLAIN, "--max-tokens", "2", PACELINE_HOME=str(tmp_path))
    screen.read_plain(PROMPT)
    screen.type("\x1b[200~pasted\nlines\x1b[201~\r")
    screen.read_plain(r" tokens in (?s:.)*" + PROMPT)
    screen.type('"""\r')
    screen.read_plain("… ?$")
    screen.type("quoted\r")
    screen.read_plain("quoted\n… ?$")
    screen.type('lines"""\r')
    screen.read_plain(r" tokens in (?s:.)* tokens in (?s:.)*" + PROMPT)
    screen.type("typed\x1b\rlines\r")
    screen.read_plain(r"(?: tokens in (?s:.)*){3}" + PROMPT)
    screen.type(f"/save {file}\r")
    screen.read_plain(r"6 messages are in (?s:.)*" + PROMPT)
    screen.type("\x04")
    screen.read_until(None)
    said = [one["content"] for one in json.loads(file.read_text())["messages"] if one["role"] == "user"]
    assert said == ["pasted\nlines", "quoted\nlines", "typed\nlines"]
    assert "+typed\n+lines" in (tmp_path / "chat_history").read_text()
    again = terminal("chat", *PLAIN, "--max-tokens", "2", PACELINE_HOME=str(tmp_path))
    again.read_plain(PROMPT)
    again.type("\x1b[A\x1b[A")  # beyond /save, and up within the turn of two lines
    again.read_plain("typed")
