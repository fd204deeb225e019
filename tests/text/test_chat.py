"""Chat templates: what the models expect, and no harm from a hostile one."""

import contextlib
import resource
import time
from pathlib import Path

import pytest

from paceline.errors import ModelFileError, PacelineError, UsageError
from paceline.text.chat import CHATML, GEMMA, ChatTemplate, encode_chat
from paceline.text.tokenizer import Tokenizer

from .conftest import byte_level, real, sentence_piece

TALK = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "x < y & z\n"},
]
QWEN = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def rendered_talk(system):
    lead = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return (
        lead + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
        "<|im_start|>user\nx < y & z\n<|im_end|>\n<|im_start|>assistant\n"
    )


def test_smollm2_renders_as_trained():
    template = ChatTemplate.of(real("smollm2-135m"))
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert template.render(TALK) == rendered_talk(system)
    assert template.render([{"role": "system", "content": "S"}, *TALK]) == rendered_talk("S")


def test_qwen_renders_as_trained():
    template = ChatTemplate(QWEN, "", "<|im_end|>")
    system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    assert template.render(TALK) == rendered_talk(system)
    assert template.render([{"role": "system", "content": "S"}, *TALK]) == rendered_talk("S")
    ended = template.render(TALK, add_generation_prompt=False)
    assert template.render(TALK) == ended + "<|im_start|>assistant\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"])
def test_qwen_files_render_as_trained(name):
    template = ChatTemplate.of(real(name))
    assert template.render(TALK) == ChatTemplate(QWEN).render(TALK)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"é": 1}}}]
    assert (
        '<tools>\n{"type": "function", "function": {"name": "f", "parameters": {"é": 1}}}\n</tools>'
        in template.render(TALK, tools=tools)
    )


def test_a_file_without_a_template_gets_its_control_tokens_one():
    chatml = ChatTemplate.of(Tokenizer.from_gguf(byte_level()))
    assert chatml.render(TALK) == rendered_talk(None)
    metadata = sentence_piece(pieces=["a", "<start_of_turn>", "<end_of_turn>"])
    metadata["tokenizer.ggml.token_type"][-2:] = [3, 3]
    gemma = ChatTemplate.of(Tokenizer.from_gguf(metadata))
    talk = "{}Hi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n<start_of_turn>user\nx < y & z<end_of_turn>\n"
    wanted = "<s><start_of_turn>user\n" + talk + "<start_of_turn>model\n"
    assert gemma.render(TALK) == wanted.format("")
    assert gemma.render([{"role": "system", "content": "Be brief."}, *TALK]) == wanted.format("Be brief.\n\n")


def test_a_file_without_a_template_or_known_tokens_is_refused():
    with pytest.raises(UsageError) as caught:
        ChatTemplate.of(Tokenizer.from_gguf(sentence_piece()))
    assert "--raw" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<b>|<e>"),
        ("{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        (
            "{% for m in messages %}\n  {% if true %}\n{{ loop.length }}{{ loop.last }}\n  {% endif %}\n{% endfor %}",
            None,
        ),
        ("{{ {'b': [1, 'é<'], 'a': none} | tojson }}", '{"b": [1, "é<"], "a": null}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% generation %}x{{ 1 }}{% endgeneration %}", "x1"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') ~ f(2) }}", "<a><2>"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user,assistant,user"),
        ("{{ messages[::-1][0].role }}{{ messages[0].get('x', 'd') }}{{ 'a-b'.split('-')[1] }}", "userdb"),
        ("{{ 'aXb' | replace('X', '--') }}{{ 'aXb'.replace('X', '+') }}{{ '%s!' % 'c' }}{{ '{}?'.format('d') }}", None),
        ("{{ 'a' in ['a'] and messages is iterable and messages[0] is mapping and tools is none }}", "True"),
        ("{% set a, b = 1, 2 %}{{ a + b }}{{ [1] + [2] }}{{ '=' * 3 }}", "3[1, 2]==="),
    ],
)
def test_templates_find_the_language_they_are_written_in(source, wanted):
    found = ChatTemplate(source, "<b>", "<e>").render(TALK)
    assert found == (wanted or {"{% for": "3False\n3False\n3True\n", "{{ 'aX": "a--ba+bc!d?"}[source[:6]])


def test_a_byte_order_mark_is_no_part_of_a_template():
    assert ChatTemplate("\ufeff{{ messages[0].content }}").render([{"role": "user", "content": "\ufeffa"}]) == "\ufeffa"


def test_what_a_template_says_reaches_the_user():
    with pytest.raises(UsageError, match="must alternate") as caught:
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(TALK)
    assert "--raw --special" in caught.value.hint  # without, the control tokens of a written prompt are letters
    with pytest.raises(UsageError, match="cannot render"):
        ChatTemplate("{{ nothing.at.all }}").render(TALK)


@pytest.mark.parametrize("messages", [[], ["hi"], [{"content": "x"}], [{"role": 3}]])
def test_messages_without_a_role_are_refused(messages):
    with pytest.raises(UsageError, match="message"):
        ChatTemplate("x").render(messages)


BEGUN = [{"role": "user", "content": "Name one."}, {"role": "assistant", "content": "The capital of France is"}]


@pytest.mark.parametrize("words", ["The capital of France is", "a \n", "", "a<|im_end|>", "x" * 999])
@pytest.mark.parametrize("source", [CHATML, GEMMA, QWEN])
def test_a_conversation_ending_with_the_assistant_goes_on_there(tokenizer, source, words):
    talk = [BEGUN[0], {**BEGUN[1], "content": words}]
    ids = encode_chat(tokenizer, ChatTemplate(source), talk)
    opened = encode_chat(tokenizer, ChatTemplate(source), talk[:1])
    assert tokenizer.decode(ids, skip_special=False) == tokenizer.decode(opened, skip_special=False) + words
    assert sum(map(tokenizer.is_special, ids)) == sum(map(tokenizer.is_special, opened))


@pytest.mark.parametrize(
    "name", ["smollm2-135m", *(pytest.param(n, marks=pytest.mark.slow) for n in ("qwen2.5-coder-0.5b", "gemma3-270m"))]
)
def test_real_templates_go_on_from_the_assistants_words(name):
    tokenizer = real(name)
    text = tokenizer.decode(encode_chat(tokenizer, ChatTemplate.of(tokenizer), BEGUN), skip_special=False)
    assert text.endswith(("assistant\nThe capital of France is", "model\nThe capital of France is"))


@pytest.mark.parametrize(
    ("source", "last", "said"),
    [
        ("{{ messages[0].content }}", {}, "it wrote it `0` times"),
        ("{{ messages[-1].content }}{{ messages[-1].content }}", {}, "it wrote it `2` times"),
        (
            "{% if not add_generation_prompt %}{{ raise_exception('no') }}{% endif %}",
            {},
            "refuses this conversation: no",
        ),
        (CHATML, {"tool_calls": [{"function": {"name": "f"}}]}, "got tool calls"),
    ],
)
def test_a_template_that_cannot_continue_is_refused_with_a_hint(tokenizer, source, last, said):
    with pytest.raises(UsageError, match=said) as caught:
        encode_chat(tokenizer, ChatTemplate(source), [BEGUN[0], {**BEGUN[1], **last}])
    assert caught.value.hint


GROW = "{% set n = namespace(s='ab', l=[1], i=9) %}{% for i in range(99) %}"
HOSTILE = {
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops that write": "{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "times": "{{ 'a' * 10**9 }}",
    "constant times": "{{ 'a' * 9999999 * 9999999 }}",
    "list times": "{{ [1] * 10**9 }}",
    "joined": GROW + "{% set n.s = n.s ~ n.s %}{% endfor %}",
    "added": GROW + "{% set n.s = n.s + n.s %}{% endfor %}",
    "blocks": GROW + "{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}",
    "replace filter": GROW + "{% set n.s = n.s | replace('a', n.s) %}{% endfor %}",
    "replace method": GROW + "{% set n.s = n.s.replace('a', n.s) %}{% endfor %}",
    "join filter": "{{ range(99999) | join('a' * 9999) }}",
    "join method": "{{ ('a' * 99999).join(['b'] * 9999) }}",
    "lists of lists": GROW + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
    "power": "{{ 10 ** 10 ** 10 }}{{ 2 ** 99999999999 }}",
    "squares": GROW + "{% set n.i = n.i * n.i %}{% endfor %}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "nested format": "{{ '{:{}}'.format(1, 1000000000) }}",
    "center": "{{ 'a'.center(10**9) }}",
    "indent": "{{ 'a\\n' | indent(10**9) }}",
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__['os'] }}",
    "loop frames": "{{ messages.__init__.__globals__ }}",
    "mutation": "{{ messages.append(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "unknown filter": "{{ 'a' | attr('__class__') }}",
    "syntax": "{% for %}",
    "depth": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "length": "x" * (2 << 20),
}


def peak():
    """Return the most memory that this process ever held, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_since_now():
    """Forget what earlier tests held, where the system can, and return what is held now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped(name):
    before, start = peak_since_now(), time.process_time()
    with pytest.raises(PacelineError) as caught:
        ChatTemplate(HOSTILE[name]).render(TALK)
    assert caught.value.hint
    assert "--raw" in caught.value.hint
    assert time.process_time() - start < 6
    assert peak() - before < 1 << 20  # KiB


def test_a_stopped_template_says_what_it_spent():
    with pytest.raises(ModelFileError, match=r"more than \d+ characters"):
        ChatTemplate(HOSTILE["times"]).render(TALK)


def test_a_hidden_attribute_shows_nothing():
    assert ChatTemplate("{{ raise_exception.__globals__ }}{{ '{0.__class__}'.format(messages) }}").render(TALK) == ""
