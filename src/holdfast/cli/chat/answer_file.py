"""The file of `holdfast run -o`: an answer that has completed, with its pictures beside it."""

from __future__ import annotations

import itertools
import os
import pathlib

import click

from ...attachments.kinds import ENDINGS, read_inline
from .. import show
from ..client import Object
from ..commands import whole_file
from ..screen import visible


class AnswerFile:
    """Takes the events of a run. Nothing is written before `write`: no part of an answer must look like all of it."""

    def __init__(self, file: pathlib.Path) -> None:
        folder = file.absolute().parent
        is_taken = file.exists() and not (file.is_file() and os.access(file, os.W_OK))
        if is_taken or not os.access(folder, os.W_OK):
            raise click.UsageError(f"{file} cannot be written. Name a file in a folder that is yours.")
        self._file = file
        self._pictures: list[str] = []

    def take(self, event: Object) -> None:
        """Note a picture of the answer."""
        match event:
            case {"type": "picture", "url": str(url)}:
                self._pictures.append(url)

    def write(self, text: str) -> None:
        """Write the answer. The text comes last: if it is there, so are the pictures."""
        written = []
        for number, url in enumerate(self._pictures, 1):
            if (picture := read_inline(url)) is None:
                show.note(f"Picture {number} is not in a file: it is at {visible(url)}")
                continue
            beside = self._free_name(ENDINGS.get(picture.type, ""))
            with whole_file(beside) as output:
                output.write(picture.data)
            written.append(str(beside))
        with whole_file(self._file) as output:
            output.write((text if text.endswith("\n") or not text else f"{text}\n").encode())
        show.note(f"Wrote {', '.join([str(self._file), *written])}.")

    def _free_name(self, ending: str) -> pathlib.Path:
        """Return a name beside the file that nothing has: nobody has asked to replace what has it."""
        names = (self._file.with_name(f"{self._file.stem}-{number}{ending}") for number in itertools.count(1))
        return next(name for name in names if not os.path.lexists(name))
