"""The site of the documents: every page is there, is found, and leads somewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from scripts import docs_site


class Page(HTMLParser):
    """The links, the anchors and the plain paragraphs of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.paragraphs: list[str] = []
        self._inside: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.links += [given[name] for name in ("href", "src") if name in given and given.get("rel") != "preconnect"]
        self.links += [given["srcset"]] if "srcset" in given else []
        self.anchors |= {given["id"]} if "id" in given else set()
        self.paragraphs += [""] if tag == "p" else []
        self._inside |= {tag} & {"p", "code"}

    def handle_endtag(self, tag: str) -> None:
        self._inside -= {tag}

    def handle_data(self, data: str) -> None:
        if self._inside == {"p"}:
            self.paragraphs[-1] += data


class Site(NamedTuple):
    """A built site."""

    folder: Path
    pages: dict[str, Page]

    def broken_links(self) -> Iterator[str]:
        for name, page in self.pages.items():
            for link in page.links:
                if not self._leads_somewhere(name, link):
                    yield f"{name}: {link}"

    def _leads_somewhere(self, name: str, link: str) -> bool:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return parts.scheme in ("http", "https", "mailto", "data")
        there = (self.folder / name).parent / unquote(parts.path) if parts.path else self.folder / name
        there = (there / "index.html" if there.is_dir() else there).resolve()
        if not parts.fragment or there.suffix != ".html":
            return there.exists()
        linked = self.pages.get(str(there.relative_to(self.folder)))
        return linked is not None and unquote(parts.fragment) in linked.anchors


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    if not (docs_site.ROOT / ".git").exists():
        pytest.skip("not a git checkout: a source distribution has only some of the documents")
    folder = docs_site.build(tmp_path_factory.mktemp("site")).parent.resolve()
    # The page of a path that does not exist is served at any depth, so that its links are absolute.
    paths = [path for path in sorted(folder.rglob("*.html")) if path.name != "404.html"]
    return Site(folder, {str(path.relative_to(folder)): Page(path) for path in paths})


def test_every_link_of_the_site_leads_somewhere(site):
    """Pages move to other places on the site, and their headings become anchors by the rules of another program."""
    assert [] == list(site.broken_links())


def test_every_page_is_in_the_navigation(site):
    """A page that only a search finds is read by few."""
    there = {(site.folder / link).resolve() for link in site.pages["index.html"].links if not urlsplit(link).scheme}

    assert len(site.pages) > 40
    assert set() == {(site.folder / name).resolve() for name in site.pages} - there


def test_every_document_is_a_page(site):
    """The folder and the site are the same documents."""
    documents = {*docs_site.DOCS.rglob("*.md"), docs_site.ROOT / "CHANGELOG.md"}
    names = {docs_site.name_on_site(document).replace(".md", ".html") for document in documents}

    assert set() == names - set(site.pages)


def test_what_is_a_list_in_a_document_is_one_on_the_site(site):
    """The two renderers differ: one needs an empty line before a list, the other does not."""
    swallowed = re.compile(r"\n(- |\d+\. |\| )")

    assert [] == [
        (name, text) for name, page in site.pages.items() for text in page.paragraphs if swallowed.search(text)
    ]


def test_a_link_to_a_source_file_leads_to_the_repository_if_that_is_public(tmp_path):
    """Without an address such a link is plain text, so that it does not lead nowhere."""
    docs_site.stage(tmp_path, "https://code.example/holdfast/")
    page = (tmp_path / "pages" / "architecture.md").read_text(encoding="utf-8")

    assert "[events.py](https://code.example/holdfast/src/holdfast/events.py)" in page


def test_versions_are_listed_newest_first(tmp_path):
    """0.10 is newer than 0.9."""
    for version in ("0.9.0", "0.10.0", "0.1.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").write_text("")

    docs_site.list_versions(tmp_path)

    listed = re.findall(r'"version": "([^"]+)"', (tmp_path / "versions.json").read_text())
    assert ["0.10.0", "0.9.0", "0.1.0"] == listed
    assert "0.10.0/index.html" in (tmp_path / "index.html").read_text()
