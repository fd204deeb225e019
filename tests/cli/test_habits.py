"""What people type who come from other tools: short options, text piped in beside a prompt, a look at a model."""

import json

import pytest

from tests.cli.conftest import is_an_error


def reply(spawn, talker, *arguments, piped=None, file=None):
    how = {"stdin": file} if file else {"stdin": -1} if piped is not None else {}
    process = spawn("generate", "-m", talker, "-md", "off", "-t", 1, *arguments, **how)
    out, err = process.communicate(piped)
    assert process.returncode == 0, err
    return out.decode(), err.decode()


def test_short_names_and_those_of_other_tools_mean_the_same(spawn, talker):
    long = ("--max-tokens", 9, "--context", 200, "--temperature", 0.5, "--seed", 4, "abc")
    short = ("-n", 9, "-c", 200, "--temp", 0.5, "-s", 4, "-p", "abc")
    other = ("--n-predict", 9, "--ctx-size", 200, "--temp", 0.5, "--seed", 4, "abc")
    assert reply(spawn, talker, *long)[0] == reply(spawn, talker, *short)[0] == reply(spawn, talker, *other)[0]


def test_text_that_is_piped_in_beside_a_prompt_comes_after_it(spawn, talker, tmp_path):
    def read(*arguments, **how):
        said = json.loads(reply(spawn, talker, "-n", 1, "--json", *arguments, **how)[0])
        return said["usage"]["prompt_tokens"], said["token_ids"]

    together = read("What is the name?\n\nthe cat is Zorblax")
    assert read("What is the name?", piped=b"the cat is Zorblax\n") == together
    (tmp_path / "text").write_text("the cat is Zorblax\n")
    with open(tmp_path / "text", "rb") as file:
        assert read("What is the name?", file=file) == together
    alone = read("What is the name?")
    assert read("What is the name?", piped=b"") == alone != together


def test_quiet_prints_the_reply_alone_and_verbose_the_reason_too(spawn, talker):
    assert reply(spawn, talker, "-q", "-n", 3, "abc")[1] == ""
    usual, told = (reply(spawn, talker, *flags, "-n", 3, "abc")[1] for flags in ((), ("-v",)))
    assert len(told.splitlines()) > len(usual.splitlines())


def test_a_prompt_given_twice_is_refused(cli):
    result = cli("generate", "-p", "a", "b")
    assert (result.code, is_an_error(result.err)) == (2, True)
    assert "given once" in result.err


def test_the_version_has_a_short_name(cli):
    assert cli("-V").out == cli("--version").out


def test_a_model_is_shown_without_loading_it(cli, talker):
    lines = cli("models", "show", talker).out.splitlines()
    assert any(line.startswith("architecture") and "llama" in line for line in lines)
    said = json.loads(cli("models", "show", talker, "--json").out)
    assert said["weight_bytes"] == sum(said["weights"].values()) > 0
    assert said["context"] == 1 << 16
    assert cli("models", "show", talker, "--template").out == ""
    missing = cli("models", "show", "nothing-of-that-name")
    assert (missing.code, is_an_error(missing.err)) == (1, True) or missing.code == 2


def test_a_model_is_deleted_by_its_name_only(cli, tmp_path, monkeypatch, talker):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    mine = tmp_path / "models" / "mine.gguf"
    mine.write_bytes(talker.read_bytes())
    assert cli("models", "rm", "mine").code == 0
    assert not mine.exists()
    for name in ("mine", str(talker), "../talker", "smollm2-135m"):
        result = cli("models", "rm", name)
        assert (result.code, is_an_error(result.err)) == (2, True)
        assert "must be here" in result.err
    assert talker.exists()


def test_a_known_model_that_is_not_here_is_not_fetched_to_be_shown(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    result = cli("models", "show", "qwen2.5-coder-1.5b")
    assert result.code == 2
    assert "paceline pull qwen2.5-coder-1.5b" in result.err


@pytest.mark.parametrize("name", ["run", "chat"])
def test_run_is_chat(cli, name):
    assert "Talk with a model" in cli(name, "--help").out


@pytest.mark.parametrize("command", ["generate", "chat", "serve", "audit", "doctor"])
def test_a_model_and_its_draft_have_short_names_everywhere(cli, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    page = cli(command, "--help").out
    assert all(f" {short} " in page for short in ("-m", "-md", "-c", "-t"))


def test_a_prompt_that_is_too_long_is_refused_before_weights_are_read(cli, talker, monkeypatch):
    from paceline.service import llm

    monkeypatch.setattr(llm, "LLM", lambda **_: pytest.fail("a model was loaded"))
    for raw in ((), ("--raw",)):
        result = cli("generate", "-m", talker, "-c", 40, "abc " * 100, *raw)
        assert (result.code, is_an_error(result.err)) == (1, True)
        assert "the context holds 40 tokens" in result.err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("paceline gen", ["generate"]),
        ("paceline generate --draft-", ["--draft-tokens", "--draft-quant", "--draft-head"]),
    ],
)
def test_a_shell_completes_commands_and_options(spawn, words, wanted):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_PACELINE_COMPLETE": "complete_bash"}
    out, err = spawn(env=asked).communicate()
    assert (out.decode().split(), err) == (wanted, b"")
