"""The line editor of a chat, on prompt_toolkit: several lines, paste, history and search in it.

Enter sends. Alt-Enter, or Esc and then Enter, begins a new line. A paste of several lines is one message,
which Enter sends.
"""

from __future__ import annotations

import os
import pathlib
import select
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec
from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from ..screen import safe, unfiltered

KEPT = 1000
"""Maximum number of messages in the history file."""
LONGEST_KEPT = 10_000
"""Maximum length of a message in the history file, in characters."""


class Editor:
    """The line editor of one chat. It draws on a terminal's stream, and reads standard input while it is open."""

    def __init__(self, screen: TextIO, messages: Sequence[str]) -> None:
        output = create_output(stdout=unfiltered(screen))
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # the terminal's reply to that query would be read as input for an agent
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            key_bindings=_keys(),
            history=_History(messages, _open_file()),
            enable_history_search=True,
            search_ignore_case=True,
            enable_open_in_editor=True,
            enable_suspend=True,
            output=output,
        )

    async def edit(self) -> str:
        """Return the typed text. Ctrl-C raises KeyboardInterrupt, Ctrl-D on an empty line EOFError."""
        lines = _typed_ahead()
        if len(lines) == 1:
            return lines[0]
        return await self._session.prompt_async(default="\n".join(lines), handle_sigint=False)

    def interrupt(self) -> None:
        """End the editing as Ctrl-C does. Used for a signal from another process."""
        if self._session.app.is_running:
            self._session.app.exit(exception=KeyboardInterrupt)


def _keys() -> KeyBindings:
    keys = KeyBindings()
    edits = has_focus(DEFAULT_BUFFER)  # not the search line

    @keys.add("enter", filter=edits)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=edits)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def _typed_ahead() -> list[str]:
    """Return the lines that were ended with Enter while an answer was printed.

    One line is the next message. Several may be a paste: they are shown in the editor, and not sent.
    """
    if sys.platform == "win32":
        return []
    data = b""
    while select.select([sys.stdin], [], [], 0)[0]:
        read = os.read(sys.stdin.fileno(), 65536)
        if not read:
            raise EOFError
        data += read
    return [safe(line) for line in data.decode(sys.stdin.encoding, "replace").splitlines()]


class _History(History):
    """Earlier messages: those of the history file, then those of the session."""

    def __init__(self, messages: Sequence[str], file: pathlib.Path | None) -> None:
        super().__init__()
        self._messages, self._file = messages, file

    def load_history_strings(self) -> Iterable[str]:
        """Yield the messages, the newest first."""
        yield from reversed(self._messages)
        shown = set(self._messages)
        yield from (text for text in reversed(_read(self._file)) if text not in shown)

    def store_string(self, string: str) -> None:
        """Add a message to the file. A message that begins with a space is not saved, as in a shell."""
        if self._file is None or string.startswith(" ") or len(string) > LONGEST_KEPT:
            return
        try:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(string) + b"\n")
        except (OSError, UnicodeError):
            self._file = None  # the chat works without it


# The history file: a JSON string in each line, readable by its user only.


def _open_file() -> pathlib.Path | None:
    """Return the history file, or None if it cannot be made private."""
    state = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    path = pathlib.Path(state) / "holdfast" / "chat-history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        return None
    try:
        facts = os.fstat(opened)
        if not stat.S_ISREG(facts.st_mode) or (hasattr(os, "getuid") and facts.st_uid != os.getuid()):
            return None
        if hasattr(os, "fchmod"):
            os.fchmod(opened, 0o600)
    finally:
        os.close(opened)
    return path


def _read(path: pathlib.Path | None) -> list[str]:
    """Return the messages of the file, the oldest first. A file that is too long is shortened."""
    if path is None:
        return []
    try:
        lines = path.read_bytes().splitlines()
        if len(lines) > 2 * KEPT:
            _write(path, lines[-KEPT:])
    except OSError:
        return []
    return [text for line in lines[-KEPT:] if (text := _decoded(line))]


def _decoded(line: bytes) -> str:
    try:
        return safe(msgspec.json.decode(line, type=str))
    except msgspec.MsgspecError:
        return ""  # another process was writing it


def _write(path: pathlib.Path, lines: Sequence[bytes]) -> None:
    number, made = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # with mode 0600
    with os.fdopen(number, "wb") as file:
        file.write(b"\n".join(lines) + b"\n")
    pathlib.Path(made).replace(path)
