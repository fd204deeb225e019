"""Texts from files and pipes: UTF-8, or an error that names the place."""

from __future__ import annotations

from paceline.errors import UsageError


def text_of(data: bytes, where: str) -> str:
    """Return bytes as text, without a byte-order mark."""
    return decode(data, where).removeprefix("\ufeff")


def read_file(path: str, what: str) -> str:
    """Return the text of a file that an option names.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        with open(path, "rb") as file:
            return text_of(file.read(), f"{what} `{path}`")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{what} must name a file that can be read, got `{path}`: {reason}",
            hint="check the path",
        ) from error


def decode(data: bytes, where: str) -> str:
    """Return bytes as text; raise `UsageError` with the place of a byte that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{where} must be UTF-8 text; byte {error.start} is `0x{data[error.start]:02x}`",
            hint="convert it first, for example with iconv -t UTF-8",
        ) from error
