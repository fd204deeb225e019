"""What goes wrong, as OpenAI's clients read it: {"error": {"message", "type", "param", "code"}} with an HTTP status."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from paceline.errors import ContextOverflow, ModelNotFound, PacelineError, ReplyError, UsageError

TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A request that is not served.

    Args:
        status: of HTTP.
        param: the field that is wrong.
        retry: seconds after which it may be tried again.
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry = status, param, code, retry


def body_of(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def answer(error: Exception) -> JSONResponse:
    """Return the response to an error of ours."""
    refusal = refusal_of(error)
    headers = {} if refusal.retry is None else {"Retry-After": str(refusal.retry)}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    said = body_of(refusal.status, str(refusal), param=refusal.param, code=refusal.code)
    return JSONResponse(said, refusal.status, headers)


def refusal_of(error: Exception) -> Refusal:
    """Return an error as a refusal: a user's mistake is 400, anything else that is known 500."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ContextOverflow):
        return Refusal(400, str(error), param="messages", code="context_length_exceeded")
    is_ours = isinstance(error, ReplyError) and error.__cause__ is not None  # something failed on the way
    if isinstance(error, (UsageError, ReplyError)) and not is_ours:
        return Refusal(400, str(error), param=_named(str(error)))
    if isinstance(error, ModelNotFound):
        return Refusal(404, str(error), param="model", code="model_not_found")
    return Refusal(500, str(error) if isinstance(error, PacelineError) else "the server failed; its log says more")


def _named(message: str) -> str | None:
    """Return the setting that a message of ours begins with, as `top_p must be …`."""
    first = message.split(" ", 1)[0]
    return first if "_" in first or first in ("temperature", "seed", "stop", "grammar", "tools") else None


def _is_field(part: str) -> bool:
    """Whether a part of a place is a field, not the branch of a union that was tried."""
    return part not in ("body", "str", "int", "float", "bool", "none") and re.fullmatch(r"[a-z_]\w*", part) is not None


def invalid(error: RequestValidationError, known: Mapping[str, Sequence[str]]) -> Refusal:
    """Return what a body that does not fit its schema is told; `known` has the fields of each path."""
    found = error.errors()
    kinds = [one for one in found if one["loc"][-1] == "type"]  # of a part that is no text, more than its other fields
    errors = kinds or [one for one in found if one["type"] == "extra_forbidden"] or found
    first = max(errors, key=lambda one: len(one["loc"]))  # of a field that may be several things, the nearest miss
    place = [str(part) for part in first["loc"] if isinstance(part, int) or _is_field(part)]
    param = ".".join(place) or None
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body must be JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place[-1], known.get(".".join(place[:-1]), known.get("", ())), 1)
        cure = f"; did you mean `{near[0]}`?" if near else ""
        return Refusal(400, f"unknown field: `{param}`{cure}", param=param, code="unknown_parameter")
    got = "nothing" if first["type"] == "missing" else f"`{str(first.get('input'))[:80]}`"
    return Refusal(400, f"{param or 'the body'}: {first['msg']}, got {got}", param=param)
