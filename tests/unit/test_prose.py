"""Prose on a terminal: wrapped between words, Markdown as styles, whatever the pieces in which it arrives."""

import re

import pytest

from holdfast.cli.chat.prose import Prose
from tests.requirements import requirement

pytestmark = requirement("cli.drawn")

STYLE = re.compile(r"\x1b\[[0-9;]*m")

ANSWER = """# A short guide

A **hash join** builds a table of the *smaller* side, `n` rows, and probes it, 2 * 3 times, in snake_case.

- The first item of a list is long enough that it has to be continued on the next line.
- Second

| a | b | a very long row of a table that is never wrapped |

```python
def probe(table, rows):  # a line of code that is longer than the terminal is wide
    return table
```
"""


def drawn(text: str, width: int = 40, styles: bool = True, size: int = 0) -> str:
    out: list[str] = []
    prose = Prose(out.append, lambda: width, styles=styles)
    pieces = [text[at : at + size] for at in range(0, len(text), size)] if size else [text]
    for piece in pieces:
        prose.take(piece)
    prose.finish()
    return "".join(out)


@pytest.mark.parametrize("styles", [True, False])
def test_lines_are_cut_between_words(styles):
    """Half a word at the edge of the terminal cannot be read."""
    lines = STYLE.sub("", drawn(ANSWER, styles=styles)).splitlines()
    words = set(re.findall(r"\w+", ANSWER))
    prose = [line for line in lines if not line.startswith(("|", "def ", "    return"))]

    assert max(map(len, prose)) <= 40
    assert words == {word for line in lines for word in re.findall(r"\w+", line)}


def test_marks_of_markdown_become_styles_and_other_signs_stay():
    """Code blocks stay as they are."""
    text = drawn(ANSWER, width=200)
    plain = STYLE.sub("", text)

    assert "\x1b[1mA\x1b[0m \x1b[1mshort\x1b[0m \x1b[1mguide" in text
    assert "A hash join builds a table of the smaller side, n rows" in plain
    assert "2 * 3 times, in snake_case." in plain
    assert "• The first item" in plain
    assert "| a | b | a very long row of a table that is never wrapped |\n" in plain
    assert (
        "def probe(table, rows):  # a line of code that is longer than the terminal is wide\n    return table" in plain
    )


def test_what_continues_an_item_stands_below_it():
    """A list is seen as one."""
    lines = STYLE.sub("", drawn("- one two three four five six seven eight nine", width=20)).splitlines()

    assert ["• one two three four", "  five six seven", "  eight nine"] == lines


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_pieces_in_which_it_arrives_change_nothing(size):
    """Tokens end anywhere, within a word and within a mark."""
    assert drawn(ANSWER) == drawn(ANSWER, size=size)


TABLE = """| name | what it does | n |
|:---|---|---:|
| `alpha` | a **long** text that is wrapped within its cell | 12 |
| beta | one \\| pipe | 3 |
"""


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_table_is_drawn_once_it_is_complete_and_fits(size):
    """Its columns are as wide as their cells, and a cell that is too long has several lines."""
    lines = STYLE.sub("", drawn(f"{TABLE}\nAfter it.", size=size)).splitlines()

    assert [
        "name    what it does                   n",
        "─" * 40,
        "alpha   a long text that is wrapped   12",
        "        within its cell",
        "beta    one | pipe                     3",
        "",
        "After it.",
    ] == lines


def test_a_table_without_its_end_is_drawn_at_the_end_of_the_text():
    """A response that was cut off shows all that there is."""
    cut = STYLE.sub("", drawn(TABLE[:-20]))

    assert "alpha" in cut
    assert "wrapped" in cut


def test_a_row_without_a_rule_is_text():
    """Not everything that begins with this sign is a table."""
    assert "| alone\nand on" == drawn("| alone\nand on")


@pytest.mark.parametrize("size", [0, 1, 5])
def test_a_link_is_shown_with_its_address(size):
    """A reader sees where it leads; code and brackets that are no link stay."""
    text = "See [the docs](https://a.example/b_(c)), [a], `[x](y)` and [https://d.example](https://d.example)."
    shown = STYLE.sub("", drawn(text, width=200, size=size))

    assert "See the docs (https://a.example/b_(c)), [a], [x](y) and https://d.example." == shown


def test_without_styles_every_sign_is_kept():
    """A terminal without colours shows Markdown as it is written."""
    assert "".join(ANSWER.split()) == "".join(drawn(ANSWER, styles=False).split())


def test_scripts_without_spaces_are_cut_anywhere():
    """Chinese has no spaces, and each character two columns."""
    lines = drawn("回答" * 30, width=40).splitlines()

    assert ["回答" * 10] * 3 == lines


def test_escape_codes_of_a_text_are_removed():
    """A model must not command the terminal."""
    assert "a[2Jb" == drawn("a\x1b[2Jb", styles=False)
