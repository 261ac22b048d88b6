"""The ids of responses that go on without us: a file for each, in a folder that outlives the process.

OpenAI chooses the id of a response, and has no list of them. So the id is kept under the run's name as soon as it is
known, and a successor of this process finds it there. All methods wait for the disk.
"""

from __future__ import annotations

import pathlib
from urllib.parse import quote

__all__ = ["ResponseIds"]


class ResponseIds:
    """The ids by the names of their runs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def keep(self, name: str, id: str) -> None:
        """Keep an id. The file is replaced in one step: it is never half an id."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(name)
        new = path.with_suffix(".new")
        new.write_text(id, encoding="utf-8")
        new.replace(path)

    def find(self, name: str) -> str | None:
        """Return the id of a run's response."""
        try:
            return self._path(name).read_text(encoding="utf-8") or None
        except (OSError, UnicodeDecodeError):
            return None

    def drop(self, name: str) -> None:
        """Forget an id."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / quote(name, safe="")
