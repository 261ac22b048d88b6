"""Settings that had another name in an earlier release: the old name still works, with a note about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import HoldfastError

RENAMED: dict[str, str] = {}
"""The current names of settings by their old names. `providers.url` is the field of a table.

Variables and flags are named after their settings. A renamed flag also stays in `serve`, as a hidden option.
"""


class BothNames(HoldfastError):
    """A setting is given under its old and its new name in one place."""

    code = "bad_settings"


class OldNames:
    """Replaces old names of settings, and notes each one once."""

    def __init__(self, renamed: Mapping[str, str] = RENAMED, prefix: str = "HOLDFAST_") -> None:
        self._renamed = renamed
        self._prefix = prefix
        self.notes: list[str] = []

    def in_environment(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables with their current names."""
        found = dict(environ)
        for old, new in self._renamed.items():
            self._replace(found, self._prefix + old.upper(), self._prefix + new.upper(), "")
        return found

    def in_flags(self, flags: dict[str, Any]) -> dict[str, Any]:
        """Return the flags with their current names."""
        given = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
        for old, new in self._renamed.items():
            self._replace(given, f"--{old.replace('_', '-')}", f"--{new.replace('_', '-')}", "")
        return {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}

    def in_file(self, values: dict[str, Any], file: str) -> dict[str, Any]:
        """Return the fields of a settings file with their current names."""
        for old, new in self._renamed.items():
            table, dot, name = old.rpartition(".")
            found = values.get(table, []) if dot else [values]
            for each in found if isinstance(found, list) else [found]:
                if isinstance(each, dict):
                    self._replace(
                        each, name, new.rpartition(".")[2], f" of [{table}] in {file}" if dot else f" in {file}"
                    )
        return values

    def _replace(self, values: dict[str, Any], old: str, new: str, where: str) -> None:
        if old not in values:
            return
        if new in values:
            raise BothNames(f"{old}{where} is the old name of {new}, which is set there too. Remove {old}.")
        values[new] = values.pop(old)
        note = f"{old}{where} has a new name: {new}. The old one still works; rename it."
        if note not in self.notes:
            self.notes.append(note)
