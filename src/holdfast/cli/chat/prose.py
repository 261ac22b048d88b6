"""Prose on a terminal as it arrives: wrapped between words, with the marks of Markdown drawn as styles.

What is written stays: nothing is drawn again. A link and a table appear when they are complete.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..screen import safe

_RULE = re.compile(r"[\s:|-]*-[\s:|-]*")
_BETWEEN = re.compile(r"(?<!\\)\|")


def drawn_table(rows: Sequence[str], width: int, drawn: Callable[[str], str]) -> str:
    """Return the rows of a table as lines that fit into a width: too wide cells are wrapped.

    `drawn` returns a cell with its styles. Rows without a rule below the first stay as they are.
    """
    if len(rows) < 2 or not _RULE.fullmatch(rows[1]):
        return "".join(f"{row}\n" for row in rows)
    head, rule, *others = map(_cells, rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, place in zip(head, [*rule, *[""] * len(head)], strict=False):
        is_right = place.endswith(":") and not place.startswith(":")
        table.add_column(Text.from_ansi(drawn(name)), justify="right" if is_right else "left", overflow="fold")
    for cells in others:
        table.add_row(*[Text.from_ansi(drawn(cell)) for cell in [*cells, *[""] * len(head)][: len(head)]])
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system="standard", legacy_windows=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _BETWEEN.split(inner)]


_BOLD, _ITALIC, _CODE, _DIM, _PLAIN = "\x1b[1m", "\x1b[3m", "\x1b[36m", "\x1b[2m", "\x1b[0m"
_STYLES = {"`": _CODE, "*": _ITALIC, "**": _BOLD, "***": _BOLD + _ITALIC}
_FENCE = ("```", "~~~")
_BULLETS = ("-", "*", "+")
_NUMBER = re.compile(r"\d{1,4}[.)]")
_LINK = re.compile(r"(?<!`)\[([^\]\[]+)\]\(([^\s()]+(?:\([^\s()]*\)[^\s()]*)?)\)")
_HALF_LINK = re.compile(r"\[[^\]\[]*(?:\](?:\([^\s)]*)?)?$")
_LONGEST_LINK = 500
_MARK = re.compile(r"`+|\*{1,3}|_{1,3}|.", re.DOTALL)


class Prose:
    """Writes a text word by word. A word appears when its end is known.

    Without `styles` the marks of Markdown stay as they are. Code blocks are never wrapped: their lines have a meaning
    of their own.
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
        self._link = ""  # what may become a link
        self._row: str | None = None
        self._rows: list[str] = []

    @property
    def is_at_line_start(self) -> bool:
        """Whether the next word begins a line."""
        return self._column == 0 and not (self._word or self._link or self._row or self._rows)

    def take(self, text: str) -> None:
        """Write as much of the text as is certain."""
        for character in safe(text):
            if self._is_of_table(character):
                continue
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
        """Write the word whose end is not known yet. A table waits for its end."""
        self._end_word()
        self._end_link()

    def finish(self) -> None:
        """Write everything: the text has ended, or something else is written next."""
        if self._row:
            self._rows.append(self._row)
        self._row = None
        self._end_table()
        self.flush()

    def break_line(self) -> None:
        """Continue on a new line, after something else was written."""
        self._column, self._spaces = 0, ""

    def _is_of_table(self, character: str) -> bool:
        """Collect the rows of a table, and write it when a line begins that is none of them."""
        is_start = self._is_first and not self._word and not self._is_fenced
        if self._row is None and not (is_start and self._styles and (self._rows or character == "|")):
            return False
        if self._row is None and character in " \t":
            return True
        if self._row is None and character != "|":
            self._end_table()
            return False
        if character == "\n":
            self._rows.append(self._row or "")
            self._row = None
        else:
            self._row = (self._row or "") + character
        return True

    def _end_table(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._write(drawn_table(rows, max(self._width(), 20), self._cell))

    def _cell(self, text: str) -> str:
        self._inline.clear()
        drawn = self._drawn(text)[1]
        self._inline.clear()
        return drawn

    def _end_line(self) -> None:
        is_blank = self._is_first and not self._word
        self._end_word()
        self._end_link()
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
        if not word:
            return
        is_link = bool(self._link) or ("[" in word and self._styles and not self._is_verbatim and "`" not in word)
        self._place(word) if not is_link else self._place_link(word)

    def _place_link(self, word: str) -> None:
        """Hold words that may be a link, and write it with its address in brackets behind its text."""
        self._link += self._spaces + word
        self._spaces = ""
        self._link = _LINK.sub(_told, self._link)
        if len(self._link) > _LONGEST_LINK or not _HALF_LINK.search(self._link):
            self._end_link()

    def _end_link(self) -> None:
        text, self._link = self._link, ""
        after = self._spaces
        for part in re.findall(r" +|[^ ]+", text):
            if part.isspace():
                self._spaces = part
            else:
                self._place(part)
        self._spaces += after if text else ""

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
        elif self._styles and word == ">":
            self._indent = len(self._spaces) + 2
            return "│"
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


def _told(found: re.Match[str]) -> str:
    """Return a link as text. An escape code that makes it clickable would hide where it leads."""
    text, address = found[1], found[2]
    return address if text == address else f"{text} ({address})"
