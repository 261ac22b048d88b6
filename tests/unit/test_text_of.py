"""The text of a message's content, whatever the content is made of."""

import pytest

from holdfast.history import text_of

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}], "one\n\ntwo"),
        ([IMAGE], ""),
        ([], ""),
        (None, ""),
        ([{"type": "text", "text": None}, {"type": "text"}, "a bare string", 7], ""),
        (7, ""),
        ({"text": "no list"}, ""),
    ],
)
def test_the_text_of_any_content(content, text):
    """Titles, searches, exports, system prompts and agents read the same text, and odd content breaks none of them."""
    assert text == text_of(content)
