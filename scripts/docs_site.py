"""Builds the documents as a static site: `python -m scripts.docs_site`, or `make docs`.

The index, docs/README.md, is the only list of pages: its headings and links become the navigation. Every page is copied
with its links fitted to the site, then Zensical makes the HTML. Links to source files become plain text, unless
`[project.urls]` of pyproject.toml, or `--repository URL`, says where people can read the source.

The output is `site/VERSION/`. `site/versions.json` lists the versions that have been built there, for the selector.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast import __version__
from scripts.release import source_address

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
OWN_FILES = (DOCS / "site.css", DOCS / "site.js", ROOT / "src" / "holdfast" / "web" / "icon.svg")
"""What every page loads besides the files of the theme."""

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
SOURCE = re.compile(r"(?P<name>src|srcset)=\"(?P<target>[^\"]+)\"")
ITEM = re.compile(r"^(?:(?P<marks>#{2,3}) (?P<title>.+)|- (?P<item>\[.+(?:\n  .+)*))$", re.MULTILINE)

CONFIG = """\
[project]
site_name = "Holdfast"
site_description = "LLM chats and agents that keep running when the client disconnects."
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
{source}copyright = "Holdfast {version}, Apache-2.0"
extra_css = ["site.css"]
extra_javascript = ["site.js"]
nav = {nav}

[project.theme]
language = "en"
font = false
logo = "icon.svg"
favicon = "icon.svg"
features = [
    "content.code.copy", "navigation.footer", "navigation.indexes", "navigation.sections", "navigation.tabs",
    "navigation.top", "search.highlight", "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle = {{ icon = "lucide/sun-moon", name = "Use light colours" }}

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle = {{ icon = "lucide/sun", name = "Use dark colours" }}

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle = {{ icon = "lucide/moon", name = "Use the colours of the system" }}

[project.extra]
generator = false

[project.extra.version]
provider = "mike"

[project.markdown_extensions.attr_list]
[project.markdown_extensions.tables]
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.magiclink]
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.sane_lists]
[project.markdown_extensions.toc]
permalink = true
slugify = {{ object = "pymdownx.slugs.slugify", kwds = {{ case = "lower" }} }}
"""
"""The settings of Zensical. No font and no script comes from another host."""

FRONT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Holdfast</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html">
<p><a href="{newest}/index.html">Holdfast {newest}</a></p>
</html>
"""


def main() -> None:
    """Build the site of this version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the sites of all versions (site)")
    own = source_address((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parser.add_argument("--repository", default=own, help="address of the source; links to files then lead there")
    given = parser.parse_args()
    print(build(given.out.resolve(), given.repository))


def build(out: Path, repository: str = "") -> Path:
    """Build the site into a folder of its version below `out`, and return the path of its first page."""
    site = out / __version__
    with tempfile.TemporaryDirectory() as work:
        stage(Path(work), repository)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"Zensical could not build the site:\n{done.stdout}{done.stderr}")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(Path(work) / "site", site)
    list_versions(out)
    return site / "index.html"


# pages


def documents() -> list[Path]:
    """Return the pages: the index, and what it names."""
    return [INDEX, *pages_of(index())]


def name_on_site(document: Path) -> str:
    """Return where a document stands on the site: the README of a folder is its index."""
    path = document.relative_to(DOCS if document.is_relative_to(DOCS) else ROOT)
    return str(path.with_name("index.md") if path.name == "README.md" else path).lower()


def stage(work: Path, repository: str) -> None:
    """Write the pages and the settings of Zensical into a folder."""
    names = {page: name_on_site(page) for page in documents()}
    for page, name in names.items():
        copy = work / "pages" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(Fitting(page, names, repository).text(), encoding="utf-8")
    shutil.copytree(DOCS / "images", work / "pages" / "images")
    for file in OWN_FILES:
        shutil.copy(file, work / "pages")
    nav = [{"Overview": "index.md"}, *map(navigation, index())]
    source = f'repo_url = "{repository}"\nrepo_name = "Source"\n' if repository else ""
    config = CONFIG.format(version=__version__, nav=toml(nav), source=source)
    (work / "zensical.toml").write_text(config, encoding="utf-8")


class Fitting:
    """Fits the links of one page to the site, and removes the marks that are for the tests."""

    def __init__(self, page: Path, names: dict[Path, str], repository: str) -> None:
        self._page = page
        self._names = {ROOT / "README.md": "index.md", **names}
        self._repository = repository.rstrip("/")

    def text(self) -> str:
        """Return the page as it is on the site."""
        text, parts, at = self._page.read_text(encoding="utf-8"), [], 0
        for fence in FENCE.finditer(text):
            parts += [self._changed(text[at : fence.start()]), fence[0]]
            at = fence.end()
        return "".join([*parts, self._changed(text[at:])])

    def _changed(self, text: str) -> str:
        return SOURCE.sub(self._source, LINK.sub(self._link, COMMENT.sub("", text)))

    def _link(self, found: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", found["target"]):
            return found[0]
        target = self._place(found["target"])
        return f"{found['image']}[{found['text']}]({target})" if target else found["text"]

    def _source(self, found: re.Match[str]) -> str:
        return f'{found["name"]}="{self._place(found["target"])}"'

    def _place(self, target: str) -> str:
        """Return where a link leads on the site. Empty if that is a source file without a public address."""
        file, _, anchor = target.partition("#")
        there = Path(os.path.normpath(self._page.parent / file)) if file else self._page
        name = self._names.get(there) or self._names.get(there / "README.md")
        if name is None and there.is_relative_to(DOCS / "images"):
            name = str(there.relative_to(DOCS))
        if name is None:
            return f"{self._repository}/{there.relative_to(ROOT)}" if self._repository else ""
        return os.path.relpath(name, Path(self._names[self._page]).parent) + (f"#{anchor}" if anchor else "")


# navigation


class Entry(NamedTuple):
    """An entry of the index: a heading or a page, and the entries below it."""

    title: str
    page: Path | None
    below: list[Entry]


def index() -> list[Entry]:
    """Return the entries of the index. Of an item, the first link is a page; the others are pages below it."""
    now = root = Entry("", None, [])
    above = {2: root}
    for found in ITEM.finditer(INDEX.read_text(encoding="utf-8")):
        if found["marks"]:
            level = len(found["marks"])
            now = above[level + 1] = Entry(found["title"], None, [])
            above[level].below.append(now)
        else:
            links = LINK.finditer(found["item"])
            first, *others = [Entry(link["text"], (DOCS / link["target"]).resolve(), []) for link in links]
            now.below.append(first._replace(below=others))
    return root.below


def pages_of(entries: list[Entry]) -> Iterator[Path]:
    """Yield the pages of entries, and of those below them."""
    for entry in entries:
        if entry.page is not None:
            yield entry.page
        yield from pages_of(entry.below)


Nav = dict[str, "str | list[str | Nav]"]


def navigation(entry: Entry) -> Nav:
    """Return an entry for Zensical: a title with a page, or with a list. The first page of a list may have no title."""
    if not entry.below:
        assert entry.page is not None, f"{entry.title} in docs/README.md has no pages"
        return {entry.title: name_on_site(entry.page)}
    own = [name_on_site(entry.page)] if entry.page else []
    return {entry.title: [*own, *map(navigation, entry.below)]}


def toml(value: object) -> str:
    """Return a string, a list or a dict in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + " }"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


# versions


def list_versions(out: Path) -> None:
    """Write the list of versions for the selector, newest first, and a first page that leads to the newest."""
    found = [page.parent.name for page in out.glob("*/index.html")]
    versions = sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    listed[0]["aliases"] = ["latest"]
    (out / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    (out / "index.html").write_text(FRONT.format(newest=versions[0]), encoding="utf-8")


if __name__ == "__main__":
    main()
