"""The numbered migrations of a schema, and the checks of those that a database has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import HoldfastError


class StoreTooNew(HoldfastError):
    """A newer version has written the database."""

    code = "store_too_new"
    status = 503


class StoreInUse(HoldfastError):
    """Other processes use the database, so that an operation is not possible."""

    code = "store_in_use"
    status = 503


class StoreDamaged(HoldfastError):
    """The database belongs to another program, or is damaged."""

    code = "store_damaged"
    status = 503


COPYING = "copying"
"""The table that marks a database as an incomplete copy."""


def incomplete_copy(place: str) -> StoreDamaged:
    """Return the error for a database that is an incomplete copy."""
    return StoreDamaged(f"{place} is an unfinished copy. Repeat `holdfast copy` to complete it.")


class Migration(NamedTuple):
    """One migration of the schema. Once published it never changes."""

    number: int
    name: str
    sql: str

    @property
    def works_with(self) -> int:
        """The oldest schema whose programs still work after this migration, as its first line declares.

        Without such a line, all nodes must be stopped before it.
        """
        found = re.match(r"-- works with (\d+)\n", self.sql.replace("\r\n", "\n"))
        return int(found[1]) if found else self.number

    @property
    def checksum(self) -> str:
        """The digest of its SQL, the same on every system: line ends do not count."""
        return hashlib.sha256(self.sql.replace("\r\n", "\n").encode()).hexdigest()


def steps_in(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations whose SQL is in a folder, in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return tuple(Migration(int(file.name[:4]), file.stem, file.read_text("utf-8")) for file in files)


def check_applied(
    applied: Mapping[int, str],
    known: Mapping[int, Migration],
    where: str,
    older: str,
    works_with: Mapping[int, int] | None = None,
) -> None:
    """Refuse a database with a migration that this version cannot work with, or has with other contents.

    `applied` has the checksums of the database's migrations, `works_with` the oldest schema that each works with.
    `older` is the advice of how to return to an older schema.
    """
    oldest = works_with or {}
    if newer := [step for step in applied.keys() - known.keys() if oldest.get(step, step) > max(known)]:
        raise StoreTooNew(
            f"{where} was written by a newer Holdfast (schema {max(newer)}; this one knows {max(known)}). "
            f"Install the newer version, or {older}."
        )
    for number, checksum in applied.items():
        if number in known and checksum != known[number].checksum:
            raise StoreDamaged(
                f"{where} was made by another edition of schema step {known[number].name}. "
                "Install the Holdfast that made it, unchanged, or give this one another place for its data."
            )
