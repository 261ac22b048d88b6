"""Prose on a terminal as it arrives: wrapped between words, with the marks of Markdown drawn as styles."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len

from ..screen import safe

_BOLD, _ITALIC, _CODE, _DIM, _PLAIN = "\x1b[1m", "\x1b[3m", "\x1b[36m", "\x1b[2m", "\x1b[0m"
_STYLES = {"`": _CODE, "*": _ITALIC, "**": _BOLD, "***": _BOLD + _ITALIC}
_FENCE = ("```", "~~~")
_BULLETS = ("-", "*", "+")
_NUMBER = re.compile(r"\d{1,4}[.)]")
_MARK = re.compile(r"`+|\*{1,3}|_{1,3}|.", re.DOTALL)


class Prose:
    """Writes a text word by word. A word appears when its end is known.

    Without `styles` the marks of Markdown stay as they are. Code blocks and tables are never wrapped: their lines have
    a meaning of their own.
    """

    def __init__(self, write: Callable[[str], object], width: Callable[[], int], *, styles: bool) -> None:
        self._write = write
        self._width = width
        self._styles = styles
        self._word = ""
        self._spaces = ""
        self._column = 0
        self._indent = 0
        self._is_first = True
        self._is_fenced = False
        self._is_verbatim = False
        self._line_style = ""
        self._inline: dict[str, str] = {}

    @property
    def is_at_line_start(self) -> bool:
        """Whether the next word begins a line."""
        return self._column == 0 and not self._word

    def take(self, text: str) -> None:
        """Write as much of the text as is certain."""
        for character in safe(text):
            if character == "\n":
                self._end_line()
            elif character in " \t" and not self._is_verbatim:
                self._end_word()
                self._spaces += " " if character == " " else "    "
            elif not self._is_verbatim and cell_len(character) == 2:
                self._end_word()  # scripts without spaces are cut between any two characters
                self._word = character
                self._end_word()
            else:
                self._word += character

    def flush(self) -> None:
        """Write the word whose end is not known yet."""
        self._end_word()

    def break_line(self) -> None:
        """Continue on a new line, after something else was written."""
        self._column, self._spaces = 0, ""

    def _end_line(self) -> None:
        is_blank = self._is_first and not self._word
        self._end_word()
        self._write(f"{_PLAIN if self._styles and self._line_style else ''}\n")
        if is_blank:
            self._inline.clear()  # a mark that was never closed ends with its paragraph
        self._column = self._indent = 0
        self._spaces, self._line_style = "", ""
        self._is_first, self._is_verbatim = True, self._is_fenced

    def _end_word(self) -> None:
        word, self._word = self._word, ""
        if not word:
            return
        if self._is_first:
            word = self._begin_line(word)
            self._is_first = False
        if word:
            self._place(word)

    def _begin_line(self, word: str) -> str:
        """Return the first word of a line as it is drawn. It tells what the line is."""
        if word.startswith(_FENCE):
            self._is_fenced = not self._is_fenced
            self._is_verbatim, self._line_style = True, _DIM
        elif self._is_fenced:
            self._line_style = _CODE
        elif word.startswith("|"):
            self._is_verbatim = True
        elif self._styles and word == "#" * len(word) and len(word) <= 6:
            self._line_style, self._spaces = _BOLD, ""
            return ""
        elif word in _BULLETS or _NUMBER.fullmatch(word):
            self._indent = len(self._spaces) + len(word) + 1
            return "•" if self._styles and word in _BULLETS else word
        else:
            self._indent = len(self._spaces) if word != ">" else len(self._spaces) + 2
        return word

    def _place(self, word: str) -> None:
        """Write a word after its spaces, or on the next line if it does not fit."""
        visible, drawn = (word, word) if self._is_verbatim or not self._styles else self._drawn(word)
        size = cell_len(visible)
        width = max(self._width(), 20)
        spaces = self._spaces
        if not self._is_verbatim and self._column > self._indent and self._column + len(spaces) + size > width:
            self._write("\n")
            self._column, spaces = 0, " " * min(self._indent, width // 2)
        style = self._line_style if self._styles else ""
        self._write(f"{spaces}{style}{drawn}{_PLAIN if style else ''}")
        self._column += len(spaces) + size
        self._spaces = ""

    def _drawn(self, word: str) -> tuple[str, str]:
        """Return a word without its marks, and with styles in their place."""
        visible, drawn, before = "", self._current(), ""
        for found in _MARK.finditer(word):
            part, after = found[0], word[found.end() : found.end() + 1]
            if part[0] in "`*_" and self._toggle(part, before, after):
                drawn += _PLAIN + self._line_style + self._current()
            else:
                visible, drawn = visible + part, drawn + part
            before = part[-1]
        return visible, drawn + (_PLAIN if self._inline else "")

    def _toggle(self, mark: str, before: str, after: str) -> bool:
        """Open or close a style; False if the mark is a character like others."""
        kind = "`" if mark[0] == "`" else "*" * len(mark)
        is_inside = mark[0] == "_" and before.isalnum() and after.isalnum()
        if is_inside or ("`" in self._inline and kind != "`"):
            return False
        if self._inline.pop(kind, None) is None:
            if not after or (mark[0] == "_" and before.isalnum()):
                return False
            self._inline[kind] = _STYLES[kind]
        return True

    def _current(self) -> str:
        return "".join(self._inline.values())
