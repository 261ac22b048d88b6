"""HTML and SVG from parts. Text cannot become markup: everything that is not `Markup` is escaped.

tag("p", "1 < 2, says ", tag("b", name), class_="note")
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["Attribute", "Child", "Markup", "page", "picture", "tag"]


class Markup:
    """A finished piece of HTML or SVG; `str()` returns its source. Only the functions of this module make one."""

    __slots__ = ("_source",)

    def __init__(self, source: str) -> None:
        self._source = source

    def __str__(self) -> str:
        return self._source


Child = Markup | str | int | float | None | Iterable["Child"]
"""The content of an element. None is empty; a list is its items in order."""
Attribute = str | int | float | None
"""The value of an attribute. None leaves the attribute out; a fraction is written with one decimal."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_NOT_ESCAPABLE: Final = frozenset({"script", "style"})
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""The content security policy: a page loads and runs nothing."""


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element. `class_` is the attribute `class`, and `aria_label` is `aria-label`."""
    if name.lower() in _NOT_ESCAPABLE:
        raise ValueError(f"<{name}> cannot hold escaped text. `page` and `picture` take a style.")
    return _element(name, _source(children), attributes)


def page(title: str, style: str, *body: Child) -> Markup:
    """Return an HTML document that loads nothing and runs nothing."""
    head = [
        _meta(charset="utf-8"),
        _meta(http_equiv="Content-Security-Policy", content=_POLICY),
        _meta(name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        _style(style),
    ]
    content = tag("body", "\n", tag("main", "\n", _lines(body)), "\n")
    document = tag("html", "\n", tag("head", "\n", _lines(head)), "\n", content, "\n", lang="en")
    return Markup(f"<!doctype html>\n{document}\n")


def picture(width: int, height: int, title: str, description: str, style: str, *drawn: Child) -> Markup:
    """Return an SVG document with a description in words."""
    words = [tag("title", title, id="title"), tag("desc", description, id="what"), _style(style)]
    size: dict[str, Attribute] = {"viewBox": f"0 0 {width} {height}", "width": width}
    what: dict[str, Attribute] = {"role": "img", "aria_labelledby": "title what"}
    content = _source(["\n", _lines([*words, *drawn])])
    return Markup(f"{_element('svg', content, {'xmlns': 'http://www.w3.org/2000/svg', **size, **what})}\n")


def _element(name: str, content: str, attributes: Mapping[str, Attribute]) -> Markup:
    return Markup(f"<{_checked(name)}{_attributes(attributes)}>{content}</{name}>")


def _meta(**attributes: Attribute) -> Markup:
    """Return an element that HTML knows to be empty."""
    return Markup(f"<meta{_attributes(attributes)}>")


def _style(css: str) -> Markup:
    """Return a style sheet. Its text is not escaped, so it must hold nothing that HTML or XML would read."""
    if "<" in css or "&" in css:
        raise ValueError("A style has neither < nor &.")
    return Markup(f"<style>{css}</style>")


def _attributes(attributes: Mapping[str, Attribute]) -> str:
    return "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)


def _attribute(name: str, value: str | int | float) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return f' {_checked(name.rstrip("_").replace("_", "-"))}="{_escaped(text)}"'


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an element or an attribute.")
    return name


def _source(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str | int | float):
        return _escaped(str(child))
    return "".join(map(_source, child))


def _escaped(text: str) -> str:
    """Return a text for an element, or for an attribute between double quotation marks."""
    return html.escape(text, quote=False).replace('"', "&quot;")


def _lines(children: Iterable[Child]) -> list[Child]:
    """Return children with a line end after each: the source stays readable."""
    return [[child, "\n"] for child in children if child is not None]
