"""The language that chat templates are written in, fenced.

jinja2's sandbox, without a loader, with the filters that templates use. Everything that can grow (output, `~`, `+`,
`*`, `replace`, padding, nested lists) and every turn of a loop first asks a budget, so that no template fills memory
or runs for ever. Knows nothing of conversations.
"""

from __future__ import annotations

import datetime
import json
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_WRITTEN = 32 << 20  # characters written, in the end or on the way
MAX_STEPS = 500_000  # turns of all loops, pieces of text and calls
MAX_ITEMS = 200_000  # values in one nested list
MAX_SECONDS = 5.0
_FILTERS = """
abs capitalize count d default dictsort e escape first float groupby indent int items join last length list lower map
max min reject rejectattr replace reverse safe select selectattr sort string title trim unique upper wordcount
"""
_PADDING = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs", "translate", "encode"))


class ChatRefused(Exception):
    """What a template says about a conversation that it does not take."""


class OverLimit(Exception):
    """What stops a template that asks for too much."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        self.written = 0
        self.steps = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def spend(self, characters: int) -> None:
        self.steps += 1
        self.written += characters
        if self.written > MAX_WRITTEN:
            raise OverLimit(f"more than {MAX_WRITTEN} characters")
        if self.steps > MAX_STEPS:
            raise OverLimit(f"more than {MAX_STEPS} steps")
        if time.monotonic() > self._deadline:
            raise OverLimit(f"more than {MAX_SECONDS:g} seconds")


class _Watched(NodeTransformer):
    """Make every loop turn, every `~` and every piece of plain text go through the budget."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([_filtered(nodes.Const(""), "_written")]))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([_filtered(nodes.Const(""), "_written")]))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        first, *rest = node.nodes
        return _filtered(first, "_concat", rest, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, "_measured", [], node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, "_measured", [], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, "_measured", [], node.lineno) if node.ctx == "load" else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Filter:
        return _filtered(nodes.Const(node.data), "_written", [], node.lineno)


def _filtered(node: nodes.Expr, name: str, args: Sequence[nodes.Expr] = (), lineno: int = 1) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=lineno)


class _Generation(Extension):
    """Accept the `generation` block, which marks a reply for training and writes what it holds."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment that counts what a template spends; each thread has its own budget."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], finalize=self._finalize
        )
        self._local = threading.local()
        self.filters = {name: self.filters[name] for name in _FILTERS.split()}
        self.filters |= {
            "tojson": self._tojson,
            "replace": self._guard_filter("replace"),
            "join": self._guard_filter("join"),
            "indent": self._guard_filter("indent"),
            "string": _text,
            "_measured": jinja2.pass_context(lambda context, value: _measured(value)),
            "_concat": self._concat,
            "_written": self._written,
        }
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _refuse,
            "strftime_now": lambda form: datetime.datetime.now().strftime(str(form)[:1000]),
        }

    def compile_template(self, source: str) -> jinja2.Template:
        """Return `source` as a template whose steps are counted."""
        tree = _Watched().visit(self.parse(source))
        return self.from_string(tree.set_environment(self))

    def open_budget(self) -> Budget:
        self._local.budget = budget = Budget()
        return budget

    def _spend(self, characters: int) -> None:
        budget: Budget | None = getattr(self._local, "budget", None)
        if budget is None:  # constants folded while compiling
            self.open_budget().spend(characters)
        else:
            budget.spend(characters)

    @jinja2.pass_context
    def _written(self, context: Context, value: str) -> str:
        return value  # finalize counts it; here only so that it is not folded into a constant

    def _finalize(self, value: object) -> object:
        if isinstance(value, str):
            self._spend(len(value))
            return value
        text = _text(value)
        self._spend(len(text))
        return text

    @jinja2.pass_context
    def _concat(self, context: Context, *values: object) -> str:
        texts = [_text(value) for value in values]
        self._spend(sum(map(len, texts)))
        return "".join(texts)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise OverLimit(f"an indent of {indent}")
        text = json.dumps(
            _measured(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        self._spend(len(text))
        return text

    def _guard_filter(self, name: str) -> Any:
        plain = self.filters[name]

        def guarded(first: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            if name == "join":
                value = [_text(item) for item in value]
                joint = str(args[0] if args else kwargs.get("d", ""))
                self._spend(len(joint) * len(value) + sum(map(len, value)))
            else:
                self._check_call(str(value), name, [*args, *kwargs.values()])
            return plain(first, value, *args, **kwargs)

        if name == "indent":
            return lambda value, *args, **kwargs: guarded(value, value, *args, **kwargs)
        return jinja2.pass_eval_context(guarded)

    def _check_call(self, text: str, name: str, args: Sequence[Any]) -> None:
        """Refuse a method of a string whose result would be too long, before it is made."""
        if any(isinstance(arg, int) and abs(arg) > 10_000 for arg in args):
            raise OverLimit(f"{name} with a number over 10000")
        if name == "replace" and len(args) >= 2:
            self._spend(len(text) + (text.count(str(args[0])) if args[0] else len(text) + 1) * len(str(args[1])))
        elif name == "indent" and args:
            width = args[0] if isinstance(args[0], int) else len(str(args[0]))
            self._spend(len(text) + (text.count("\n") + 1) * width)
        elif name in ("format", "format_map"):
            if re.search(r"\d{5}|\{[^}]*\{", text):
                raise OverLimit("a format with a width over 9999")
            self._spend(len(text) + sum(len(str(arg)) for arg in args) * text.count("{"))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        plain = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(plain, "__self__", None)
        name = getattr(plain, "__name__", "")
        if isinstance(owner, str):
            if name == "join" and args:
                args = ([str(item) for item in args[0]], *args[1:])
                __self._spend(len(owner) * len(args[0]) + sum(map(len, args[0])))
            __self._check_call(owner, name, [*args, *kwargs.values()])
        else:
            __self._spend(0)
        return _measured(super().call(__context, __obj, *args, **kwargs))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | bytes) and attr in _PADDING:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        sized = (str, bytes, list, tuple)
        if operator == "+" and isinstance(left, sized) and isinstance(right, sized):
            self._spend(len(left) + len(right))
        elif operator == "*" and (isinstance(left, sized) or isinstance(right, sized)):
            text, times = (left, right) if isinstance(left, sized) else (right, left)
            self._spend(len(text) * max(int(times), 0))
        elif operator == "%" and isinstance(left, str | bytes):
            self._check_percent(str(left), right)
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * abs(right)
            if bits > 4096:
                raise OverLimit("a number of over 4096 bits")
        return _measured(super().call_binop(context, operator, left, right))

    def _check_percent(self, form: str, right: Any) -> None:
        if re.search(r"\d{5}|\*", form):
            raise OverLimit("a format with a width over 9999")
        self._spend(len(form) * (1 + len(str(right))))


def _refuse(message: object) -> NoReturn:
    raise ChatRefused(str(message)[:1000])


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(_measured(value))


def _measured(value: Any) -> Any:
    """Return `value`; raise OverLimit for a list of lists of lists… that unfolds into too many."""
    waiting: list[Any] = [value]
    count = 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, str | int | range):
            continue
        inner: Iterable[Any] = ()
        if isinstance(item, Mapping):
            inner = item.values()
        elif isinstance(item, list | tuple | set):
            inner = item
        else:
            continue
        count += len(item)
        if count > MAX_ITEMS:
            raise OverLimit(f"a list of over {MAX_ITEMS} values")
        waiting.extend(inner)
    return value
