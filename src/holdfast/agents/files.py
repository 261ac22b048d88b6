"""Tools for the files of one folder: read, list, write, search. No path leads out of the folder.

Every path is opened from the folder's descriptor, name by name, without following links. So neither `..`, nor an
absolute path, nor a link, not even one that is created during the call, leads out.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import errno
import os
import pathlib
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from ..ids import new_id
from ..log.storable import storable
from .tools import FunctionTool, Tool, ToolError, ToolOutput
from .tools.effects import Effect, NotRun

WRITE = "files_write"
MOST_READ = 1_000_000
MOST_LISTED = 2_000
MOST_FOUND = 200
MOST_SECONDS = 20.0
MOST_COMPARED = 200_000
"""Maximum size of a file, in bytes, whose change is shown as a diff."""
MOST_COMPARED_LINES = 2_000

CLOCK = 2.0
"""Seconds by which the time of a file may differ from that of the server."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe or a device must not block


class _Write(FunctionTool):
    """Writes a file. It shows the change before it is allowed, and sees after a crash whether it has happened."""

    def __init__(self, files: Files) -> None:
        super().__init__(files.write, name=WRITE, approval="ask")
        self._files = files

    async def preview(self, arguments: dict[str, Any]) -> str:
        """Return the change as a unified diff of the whole file."""
        return await asyncio.to_thread(self._files.change, str(arguments["path"]), str(arguments["content"]))

    async def reconcile(self, effect: Effect) -> ToolOutput | NotRun | None:
        """Return whether a write has happened."""
        path, content = str(effect.arguments["path"]), str(effect.arguments["content"])
        return await asyncio.to_thread(self._files.found, path, content.encode(errors="replace"), effect.since)


class FolderEntry(msgspec.Struct, frozen=True):
    """A file or a folder, as it is listed for people. What is neither can be neither opened nor saved."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int
    changed_at: float


class FolderListing(msgspec.Struct, frozen=True):
    """What is in a folder; `more` is the number of entries that are left out."""

    entries: tuple[FolderEntry, ...]
    more: int


class Files:
    """One folder, and the tools of an agent for it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = pathlib.Path(folder)

    def tools(self) -> list[Tool]:
        """Return the folder's tools. Writing needs an approval, unless the settings say otherwise."""
        return [
            FunctionTool(self.read, name="files_read", replay="safe"),
            FunctionTool(self.list_folder, name="files_list", replay="safe"),
            FunctionTool(self.search, name="files_search", replay="safe"),
            _Write(self),
        ]

    def read(self, path: str, start: int = 1, lines: int = 2000) -> str:
        """Read a text file of the folder.

        Args:
            path: the file, from the folder on, as in notes/today.md
            start: the first line to return, from 1
            lines: how many lines to return
        """
        with self._open(path, _FILE) as fd:
            _require_file(fd, path)
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(MOST_READ + 1)
        text = data[:MOST_READ].decode(errors="replace")
        selected = text.split("\n")[max(start, 1) - 1 : max(start, 1) - 1 + max(lines, 0)]
        note = f"\n[only the first {MOST_READ} bytes were read]" if len(data) > MOST_READ else ""
        return "\n".join(selected) + note

    def list_folder(self, path: str = ".") -> str:
        """List a folder: files with their size, folders with a slash.

        Args:
            path: the folder, from the top on
        """
        with self._open(path, _FOLDER) as fd:
            names = sorted(os.listdir(fd))
            listed = [_described(name, fd) for name in names[:MOST_LISTED]]
        more = [f"[{len(names) - MOST_LISTED} more]"] if len(names) > MOST_LISTED else []
        return "\n".join([*listed, *more]) or "The folder is empty."

    def entries(self, path: str = "") -> FolderListing:
        """Return what is in a folder, for people. A folder that no tool has made yet is empty."""
        if not _names(path, may_be_top=True) and not self._folder.is_dir():
            return FolderListing((), 0)
        with self._open(path, _FOLDER) as fd:
            names = sorted(os.listdir(fd))
            found = [entry for name in names[:MOST_LISTED] if (entry := _entry(name, fd)) is not None]
        return FolderListing(tuple(found), max(0, len(names) - MOST_LISTED))

    def load(self, path: str, most: int) -> bytes:
        """Return the bytes of a file, for people. Raises `ToolError` if it is no file, or has more than `most`."""
        with self._open(path, _FILE) as fd:
            _require_file(fd, path)
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(most + 1)
        if len(data) > most:
            raise ToolError(f"{path!r} has more than {most // 1_000_000} MB.")
        return data

    def search(self, text: str, path: str = ".") -> str:
        """Find lines that contain a text, in all files under a folder. Capital letters do not matter.

        Args:
            text: what to look for
            path: the folder to look in, from the top on
        """
        if not text:
            raise ToolError("The text to search for is empty.")
        found: list[str] = []
        until = time.monotonic() + MOST_SECONDS
        for name, lines in self._texts(path):
            found += [f"{name}:{n}: {line.strip()[:200]}" for n, line in _matching(lines, text.casefold())]
            if len(found) >= MOST_FOUND:
                return "\n".join([*found[:MOST_FOUND], "[there may be more]"])
            if time.monotonic() > until:
                return "\n".join(
                    [*found, f"[the search stopped after {MOST_SECONDS:g} s, before all files were searched]"]
                )
        return "\n".join(found) or "Nothing was found."

    def write(self, path: str, content: str) -> str:
        """Write a text file, with the folders that lead to it. What was in it is replaced.

        Args:
            path: the file, from the folder on
            content: all that will be in it
        """
        *folders, name = _names(path)
        data = content.encode(errors="replace")
        with self._walk(folders, make=True) as fd, _errors(path):
            _refuse_what_is_no_file(name, fd, path)
            new = f".{new_id('write')}"
            try:
                _write_new(new, data, fd)
                os.replace(new, name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new, dir_fd=fd)
                raise
        return _written(data, [*folders, name])

    def found(self, path: str, data: bytes, since: float) -> ToolOutput | NotRun | None:
        """Return what became of a write that has begun at a time: by the content, and by when it was last changed."""
        *folders, name = _names(path)
        with contextlib.suppress(ToolError), self._walk(folders) as folder, _errors(path):
            changed = os.fstat(folder).st_mtime
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(name, _FILE, dir_fd=folder)
                with os.fdopen(fd, "rb") as file:
                    _require_file(fd, path)
                    changed = os.fstat(fd).st_mtime
                    if file.read(len(data) + 1) == data:
                        return ToolOutput(_written(data, [*folders, name]))
            return NotRun() if changed < since - CLOCK else None
        return None

    def change(self, path: str, content: str) -> str:
        """Return the change of a write: a unified diff with every line; empty if it would be too long."""
        before = ""
        with contextlib.suppress(ToolError), self._open(path, _FILE) as fd:
            _require_file(fd, path)
            with os.fdopen(os.dup(fd), "rb") as file:
                before = file.read(MOST_COMPARED + 1).decode(errors="replace")
        old, new = before.split("\n") if before else [], content.split("\n")
        if len(before) > MOST_COMPARED or max(len(old), len(new)) > MOST_COMPARED_LINES:
            return ""
        return "\n".join(difflib.unified_diff(old, new, path, path, lineterm="", n=len(old) + len(new)))

    # walking

    @contextmanager
    def _open(self, path: str, flags: int) -> Iterator[int]:
        names = _names(path, may_be_top=flags == _FOLDER)
        with self._walk(names[:-1]) as folder, _errors(path):
            fd = os.open(names[-1] if names else ".", flags, dir_fd=folder)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _walk(self, names: list[str], *, make: bool = False) -> Iterator[int]:
        """Open the folders of a path one by one, never through a link."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _errors("/".join(names)):
                for name in names:
                    if make:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(name, dir_fd=fd)
                    below = os.open(name, _FOLDER, dir_fd=fd)
                    os.close(fd)
                    fd = below
            yield fd
        finally:
            os.close(fd)

    def _texts(self, path: str) -> Iterator[tuple[str, list[str]]]:
        """Yield the text files under a folder, with their lines. `fwalk` uses descriptors and follows no links."""
        with self._open(path, _FOLDER) as top:
            for folder, folders, files, fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
                folders.sort()
                for name in sorted(files):
                    if (lines := _lines(name, fd)) is not None:
                        yield os.path.normpath(os.path.join(path, folder, name)), lines


def _names(path: str, *, may_be_top: bool = False) -> list[str]:
    """Return a path's names, or refuse one that leads out of the folder."""
    if path.startswith("/") or "\0" in path or len(path) > 4096:
        raise ToolError(f"{path[:100]!r} is not a path inside the folder: paths begin at the top of the folder.")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolError(f"{path!r} is not a path inside the folder: '..' is not followed.")
    if not names and not may_be_top:
        raise ToolError(f"{path!r} names no file.")
    return names


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raise an `OSError` as a `ToolError` with the path inside the folder: it must not show a path of the machine."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ToolError(f"{path!r} is a link, or behind one: links are not followed.") from None
        raise ToolError(f"{path!r}: {os.strerror(error.errno or 0)}.") from None


def _written(data: bytes, names: list[str]) -> str:
    return f"{len(data)} bytes were written to {'/'.join(names)}."


def _require_file(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ToolError(f"{path!r} is no file.")


def _refuse_what_is_no_file(name: str, folder: int, path: str) -> None:
    """Refuse to replace anything but a file: a link, a folder, a device."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise ToolError(f"{path!r} already exists, and is not a file.")


def _write_new(name: str, data: bytes, folder: int) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _described(name: str, folder: int) -> str:
    with contextlib.suppress(OSError):
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return f"{name}/"
        return f"{name} ({info.st_size} bytes)" if stat.S_ISREG(info.st_mode) else f"{name} (no file)"
    return f"{name} (gone)"


def _entry(name: str, folder: int) -> FolderEntry | None:
    """Return an entry of a folder; None if it is gone. A link is what it is, not what it leads to."""
    with contextlib.suppress(OSError):
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind: Literal["file", "folder", "other"]
        kind = "folder" if stat.S_ISDIR(info.st_mode) else "file" if stat.S_ISREG(info.st_mode) else "other"
        return FolderEntry(storable(name), kind, info.st_size if kind == "file" else 0, info.st_mtime)
    return None


def _lines(name: str, folder: int) -> list[str] | None:
    """Return a file's lines; None if it is not text, or too large to search."""
    with contextlib.suppress(OSError):
        fd = os.open(name, _FILE, dir_fd=folder)
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > MOST_READ:
                return None
            data = file.read(MOST_READ)
            return None if b"\0" in data else data.decode(errors="replace").split("\n")
    return None


def _matching(lines: list[str], sought: str) -> Iterator[tuple[int, str]]:
    return ((n, line) for n, line in enumerate(lines, 1) if sought in line.casefold())
