"""The title that a chat gets from its first message."""

import pytest

from holdfast.history import title_from


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Heading one\n\nSome **bold**, *italic* and `code`.", "Heading one Some bold, italic and code."),
        ("> - [Tides](https://tides.example/x) and ![a wave](wave.png)", "Tides and a wave"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("What is 2 * 3 * 4, and snake_case_name?", "What is 2 * 3 * 4, and snake_case_name?"),
        ("# Tides\n\n| a | b |\n| - | - |\n| 1 | 2 |", "Tides"),
        ("#", "#"),
        ("***", "***"),
        ("one two " * 20, "one two one two one two one two one two one two one two one…"),
    ],
)
def test_a_title_is_the_first_words_without_markdown(text, title):
    """A title is plain text in lists, tabs and exports: marks of Markdown would be noise there."""
    assert title == title_from(text)


def test_a_title_is_found_quickly_in_any_text():
    """The patterns read a bounded part of the message: hostile text costs nothing."""
    for text in ("*" * 1_000_000, "[" * 1_000_000, "_a" * 500_000, "> " * 500_000):
        assert len(title_from(text)) <= 61
