"""The ids of responses in the background: a file for each, in a folder that outlives the process.

OpenAI chooses the id of a response, and cannot list them. So the id is stored under the run's name as soon as it is
known, and the next process finds it there. All methods block on the disk.
"""

from __future__ import annotations

import pathlib
from urllib.parse import quote

__all__ = ["ResponseIds"]


class ResponseIds:
    """The ids of responses, by the names of their runs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def keep(self, name: str, id: str) -> None:
        """Store an id. The file is replaced atomically."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(name)
        new = path.with_suffix(".new")
        new.write_text(id, encoding="utf-8")
        new.replace(path)

    def find(self, name: str) -> str | None:
        """Return the id of a run's response; None if none is stored."""
        try:
            return self._path(name).read_text(encoding="utf-8") or None
        except (OSError, UnicodeDecodeError):
            return None

    def drop(self, name: str) -> None:
        """Delete an id."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / quote(name, safe="")
