"""A ZIP of a stranger, read within limits. They count what is really in it, not what it says.

It imports nothing of ours, as the child process that reads exports runs it by its path.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import IO

MOST_IN_ALL = 8 * 1024 * 1024 * 1024
"""Maximum size of all uncompressed data of a ZIP, in bytes: a small file can expand to far more."""
LARGEST_LIST = 32 * 1024 * 1024
"""Maximum size of the list of a ZIP's files, in bytes. All of it is in memory."""
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Accepted compression methods. With the others, Python decompresses a whole file at once."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


class ZipRefused(Exception):
    """A ZIP, or a file of it, is not read; the text says why."""


class BoundedZip:
    """A ZIP in a file. Nothing is unpacked to the disk: a name in it leads nowhere."""

    def __init__(self, file: IO[bytes], most: int = MOST_IN_ALL) -> None:
        """Read the list of files."""
        self.left = most
        """Bytes that may still be read."""
        listed = _WithShortList(file)
        try:
            self._zip = zipfile.ZipFile(listed)
        except (*_DAMAGE, ValueError) as error:
            raise ZipRefused("The file is no ZIP, or it is damaged or not complete.") from error
        listed.is_read = True
        self.names: list[str] = self._zip.namelist()

    def read(self, name: str, most: int) -> bytes:
        """Return the contents of a file of at most `most` bytes. KeyError if there is none."""
        shown = name[:200]
        if self.left <= 0:
            raise ZipRefused("The ZIP has more in it than can be read at once.")
        if self._zip.getinfo(name).compress_type not in _READABLE:
            raise ZipRefused(f"{shown} is compressed in a way that is not accepted: deflate is.")
        try:
            with self._zip.open(name) as entry:
                data = entry.read(most + 1)
        except _DAMAGE as error:
            raise ZipRefused(f"{shown} is damaged: {error}.") from error
        self.left -= len(data)
        if len(data) > most:
            raise ZipRefused(f"{shown} is larger than {most >> 20} MB.")
        return data


class _WithShortList:
    """A file that refuses to read a too long list of files: `ZipFile` reads all of it at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.is_read = False
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_LIST and not self.is_read:
            raise ZipRefused("The ZIP has too many files.")
        return self._file.read(size)
