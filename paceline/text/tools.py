"""How one model uses tools and reasons: told by its chat template, its vocabulary and the prompt.

A reply that must call is held to the form of calls; see `reply_parts` for how replies are taken apart.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.request import Grammar
from paceline.errors import UsageError
from paceline.text.call_forms import form_of_calls
from paceline.text.reply_parts import THINK, THOUGHT, ReplyParts, ToolStyle, style_of
from paceline.text.tokenizer import Tokenizer

SHORT_ID = 9  # letters and digits of a call's id, in templates that check it
LATEST = 8  # tokens of a prompt's end that may begin the reasoning


@dataclass(frozen=True)
class ToolUse:
    """How replies to one prompt are read. `form`: what they must have, where a call is wanted."""

    tools: Sequence[Mapping[str, Any]]
    style: ToolStyle | None
    form: Grammar | None
    shows_special: bool  # calls begin with a control token, which the reply's text must show
    reasons: bool
    is_thinking: bool  # the prompt has begun the reasoning
    is_single: bool

    @staticmethod
    def of(
        template: str,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]],
        prompt: Sequence[int],
        *,
        only: str | None = None,
        must: bool = False,
        is_single: bool = False,
    ) -> ToolUse:
        """Return how a model replies.

        Args:
            template: its chat template's source.
            tools: in OpenAI's shape; none means that no calls are looked for.
            prompt: the conversation's tokens.
            only: the function that the reply must call.
            must: it must call some function.
            is_single: it makes one call at most.

        Raises:
            UsageError: the model's way of calling tools is not known.
        """
        style = style_of(template) if tools else None
        if tools and style is None:
            raise UsageError("tools need a model whose way of calling them is known, got a template of another kind")
        mark = None if style is None or not style.begin else tokenizer.find(style.begin)
        is_special = mark is not None and tokenizer.is_special(mark)
        form = None
        if style is not None and (must or only is not None):
            wanted = [tool for tool in tools if only in (None, tool["function"]["name"])]
            named = f"<[{mark}]>" if is_special else json.dumps(style.begin)
            form = form_of_calls(style, wanted, named, is_single=is_single or only is not None)
        said = tokenizer.decode(prompt[-LATEST:], skip_special=False)
        return ToolUse(
            tools,
            style,
            form,
            shows_special=is_special,
            reasons=form is None and (THOUGHT in template or tokenizer.find(THOUGHT) is not None),
            is_thinking=form is None and said.rstrip().endswith(THINK),
            is_single=is_single,
        )

    def parts(self) -> ReplyParts:
        """Return a reader of one reply."""
        return ReplyParts(reasons=self.reasons, is_thinking=self.is_thinking, style=self.style, tools=self.tools)

    def call_id(self) -> str:
        """Return the name of a new call."""
        if self.style is not None and self.style.has_short_ids:
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(SHORT_ID))
        return f"call_{secrets.token_hex(12)}"
