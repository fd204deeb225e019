"""Every error a user can cause.

    PacelineError
    ├── UsageError             a call that cannot be meant: contradictory or out-of-range settings (exit code 2)
    ├── ModelNotFound          no such name, path, repository or file (exit code 2 as well)
    ├── ModelFileError         a file that is not what it claims: truncated, corrupt, hostile, of a wrong digest
    ├── UnsupportedModel       a sound file whose architecture, tensor type or tokenizer is not supported
    ├── VocabMismatch          drafter and target do not share one vocabulary
    ├── ContextOverflow        prompt and output do not fit the model's context or the cache
    ├── ReplyError             a reply that cannot go on, by what its own request brought; `__cause__` says what raised
    ├── NumericalError         logits that nothing can be drawn from
    │   └── ProcessorError     a logits processor failed, or gave back what is no row of logits
    ├── DownloadError          the network or the disk did not let a file arrive whole
    └── NativeUnavailable      the compiled kernels are missing or cannot run on this processor

A bug is an `AssertionError`, never one of these.
"""

from __future__ import annotations


class PacelineError(Exception):
    """Base of all: `str(error)` says what was wanted and what was got, `hint` how to cure it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # for tracebacks


class UsageError(PacelineError):
    exit_code = 2


class ModelNotFound(PacelineError):
    exit_code = 2  # like any other name that nothing goes by


class ModelFileError(PacelineError):
    pass


class UnsupportedModel(PacelineError):
    pass


class VocabMismatch(PacelineError):
    pass


class ContextOverflow(PacelineError):
    pass


class ReplyError(PacelineError):
    pass


class NumericalError(PacelineError):
    pass


class ProcessorError(NumericalError):
    pass


class DownloadError(PacelineError):
    pass


class NativeUnavailable(PacelineError):
    pass


def too_long(tokens: int, context: int, longest: int) -> ContextOverflow:
    """Make the error for a prompt that leaves no room; `longest` is what the model itself reads."""
    return ContextOverflow(
        f"the prompt must leave room for a reply: the context holds {context} tokens, the prompt has `{tokens}`",
        hint=f"shorten the prompt or raise --context (the model itself reads up to {longest} tokens)",
    )


def reply_error(error: BaseException) -> PacelineError:
    """Return what ended a reply as an error of this kind, the original as its cause."""
    if isinstance(error, PacelineError):
        return error
    failed = ReplyError(f"the reply cannot go on: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
