"""How much a browser loads before the page can be used."""

import gzip
import re
from pathlib import Path

import holdfast

WEB = Path(holdfast.__file__).parent / "web"
ALSO = ["index.html", "assets/worker.js"]
"""The document itself, and what the page starts at once."""
MOST = 90_000


def test_the_first_load_is_under_90_kb():
    """The chat, and nothing else, comes with the page: every other view is loaded when it is opened."""
    html = (WEB / "index.html").read_text()
    named = [path.lstrip("/") for path in re.findall(r'(?:src|href)="(/[^"]+)"', html)]
    sizes = {name: len(gzip.compress((WEB / name).read_bytes())) for name in {*named, *ALSO}}

    assert "assets/index.js" in sizes
    assert sum(sizes.values()) < MOST, sizes
