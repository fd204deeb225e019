"""Read checked numbers from a table that is not trusted: GGUF metadata, config.json."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.errors import ModelFileError, UnsupportedModel

MOST_LAYERS = 1024


class Numbers:
    """Look keys up with bounds; every error names the file and the key. A null counts as missing."""

    def __init__(self, table: Mapping[str, object], where: str, prefix: str = "", shown: str = "") -> None:
        self.table, self.where, self.prefix, self.shown = table, where, prefix, shown

    def get(self, key: str) -> object:
        return self.table.get(self.prefix + key)

    def integer(self, key: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
        got = self.get(key)
        if isinstance(got, list) and got:  # GGUF may give one for each layer
            if any(one != got[0] for one in got):
                raise UnsupportedModel(f"{self.where}: wanted one `{self._name(key)}` for all layers; got several")
            got = got[0]
        if got is None:
            got = default
        if isinstance(got, float) and got.is_integer():
            got = int(got)
        if isinstance(got, bool) or not isinstance(got, int) or not least <= got <= most:
            raise self._error(key, f"a whole number from {least} to {most}", got)
        return got

    def real(self, key: str, default: float | None = None, *, least: float = 1e-30, most: float = 1e12) -> float:
        got = self.get(key)
        if got is None:
            got = default
        if isinstance(got, bool) or not isinstance(got, (int, float)) or not least <= got <= most:
            raise self._error(key, f"a number from {least:g} to {most:g}", got)
        return float(got)

    def flag(self, key: str, default: bool) -> bool:
        got = self.get(key)
        if got is None:
            return default
        if not isinstance(got, bool):
            raise self._error(key, "true or false", got)
        return got

    def flags(self, key: str, count: int) -> list[bool] | None:
        """Read a list of 0 and 1 (or booleans), None if there is none."""
        got = self.get(key)
        if got is None:
            return None
        if not isinstance(got, list) or len(got) != count or any(flag not in (0, 1) for flag in got):
            raise self._error(key, f"a list of {count} zeros and ones", got)
        return [bool(flag) for flag in got]

    def layers(self, key: str) -> int:
        return self.integer(key, most=MOST_LAYERS)

    def _name(self, key: str) -> str:
        return f"{self.shown}{self.prefix}{key}"

    def _error(self, key: str, wanted: str, got: object) -> ModelFileError:
        shown = "nothing" if got is None else repr(got)[:80]
        return ModelFileError(
            f"{self.where}: wanted {wanted} for `{self._name(key)}`; got {shown}",
            hint="the file describes no possible model: download it again",
        )
