"""One writer of HTML and SVG, in which text cannot leave its place."""

import ast
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.markup import page, picture, tag

ROOT = Path(__file__).parents[2]
RUDE = "</p><script>alert(1)</script>\"'&lt; -->]]>"
XML_TEXT = st.text(st.characters(min_codepoint=0x20, exclude_categories=("Cs",), exclude_characters="\ufffe\uffff"))


@given(XML_TEXT, XML_TEXT)
def test_any_text_comes_back_as_it_was(text, value):
    """Neither in an element nor in an attribute can a text end what holds it."""
    source = str(tag("p", text, tag("b", text), title=value))
    read = ElementTree.fromstring(source)

    assert (text, text) == (read.text or "", read[0].text or "")
    assert {"title": value} == read.attrib
    assert ["p", "b"] == [element.tag for element in read.iter()]


def test_children_are_lists_numbers_and_nothing_too():
    """A caller builds rows in a loop, and leaves out what is not there."""
    made = tag("p", [1, ["a", None]], None, 0.5, class_="x y", aria_label="z", hidden=None, x=1, y=1 / 3)

    assert '<p class="x y" aria-label="z" x="1" y="0.3">1a0.5</p>' == str(made)


@pytest.mark.parametrize("name", ["script", "STYLE", "p onclick=x", "", "a/b", "a>"])
def test_an_element_that_text_could_break_is_refused(name):
    """HTML does not unescape what is in a script or a style, so escaping would be no protection."""
    with pytest.raises(ValueError, match=r"cannot hold|not the name"):
        tag(name, "x")


def test_an_attribute_with_another_name_is_refused():
    """Names are ours; one with a space in it would be two attributes."""
    with pytest.raises(ValueError, match="not the name"):
        tag("p", **{"a b": "x"})


@pytest.mark.parametrize("style", ["</style><script>alert(1)</script>", "a { content: '&lt;' }"])
def test_a_style_cannot_end_itself(style):
    """It is written as it is: what HTML or XML would read in it is refused."""
    with pytest.raises(ValueError, match="neither"):
        page("x", style)


def test_a_page_loads_nothing_and_runs_nothing():
    """Whoever opens a report opens what models and servers have said."""
    elements: list[str] = []

    class Elements(HTMLParser):
        def handle_starttag(self, tag, attrs):
            elements.append(tag)

    Elements().feed(str(page(RUDE, "p { color: red }", tag("p", RUDE, title=RUDE))))

    assert ["html", "head", "meta", "meta", "meta", "title", "style", "body", "main", "p"] == elements
    assert "default-src 'none'" in str(page("x", ""))


def test_a_picture_is_sound_xml_with_a_description():
    """An image without words is nothing for those who do not see it."""
    read = ElementTree.fromstring(str(picture(10, 20, RUDE, "what it shows", "", tag("text", RUDE, x=1.0))))

    assert [RUDE, "what it shows", None, RUDE] == [element.text for element in read]
    assert "0 0 10 20" == read.get("viewBox")


def test_only_the_writer_makes_markup_from_text():
    """One call of `Markup(...)` elsewhere would write a text as it is."""
    folders = [ROOT / "src", ROOT / "lab", ROOT / "bench"]
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in folders
        for path in folder.rglob("*.py")
        if path.name != "markup.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        if getattr(node.func, "id", getattr(node.func, "attr", "")) == "Markup"
    ]

    assert [] == elsewhere
