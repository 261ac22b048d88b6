"""The browser UI, and the pages about error codes: a few public files that load nothing from other sites.

All addresses return the same page, which asks for a key if the server needs one. File names are the same in every
version, so browsers check each time whether a file has changed.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Callable
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ....access import ANYONE
from ....error_help import ERROR_PAGES, ERRORS
from ....error_help.page import HELP_POLICY, error_list_page, error_list_text, error_page, error_text
from ....errors import NotFound
from ...kit.feature import Endpoint, Feature
from ...kit.http.compression import takes

PAGES = (
    *(
        "/",
        "/temporary",
        "/s/{id}",
        "/compare",
        "/compare/{id}",
        "/presets",
        "/schedules",
        "/agents",
        "/runs",
        "/runs/{id}",
        "/settings",
        "/status",
        "/shared/{id}",
    ),
    *("/sign-in", "/first-admin", "/reset", "/account", "/admin", "/admin/{id}"),
)
"""The addresses of the page itself."""

HELP = (ERROR_PAGES, f"{ERROR_PAGES}/{{id}}")
"""The addresses of the pages about error codes."""

FILES = (
    *("/manifest.webmanifest", "/sw.js", "/offline.html", "/offline.css"),
    *("/icon.svg", "/apple-touch-icon.png", "/icon-192.png", "/icon-512.png", "/icon-maskable-512.png"),
)

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}

# Scripts and styles are our files. Images of other sites are loaded only after a click of the reader.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob: https:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_IS_PAGE = re.compile("|".join(re.sub(r"{id}", "[^/]+", page) for page in (*PAGES, *HELP)))


class _File:
    """A file of the page. It is compressed at the first request, and the result is cached."""

    def __init__(self, path: Path) -> None:
        self.type = TYPES.get(path.suffix[1:], "application/octet-stream")
        self.plain = path.read_bytes()

    @cached_property
    def tag(self) -> str:
        """What changes with the file."""
        return f'W/"{hashlib.sha256(self.plain).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes:
        """The compressed file."""
        return gzip.compress(self.plain, 9)


@lru_cache(256)
def is_of_the_page(path: str) -> bool:
    """Return whether a path belongs to the browser UI, which anyone may load."""
    return path.startswith("/assets/") or path in FILES or _IS_PAGE.fullmatch(path) is not None


def _help(request: Request, page: Callable[[], str], text: Callable[[], str]) -> Response:
    """Return a page to a browser, and text to a terminal."""
    headers = {**HEADERS, "content-security-policy": HELP_POLICY, "vary": "accept"}
    if "text/html" in request.headers.get("accept", ""):
        return Response(page(), headers=headers, media_type="text/html")
    return Response(text(), headers=headers, media_type="text/plain")


def _response(request: Request, file: _File | None) -> Response:
    if file is None:
        raise NotFound(f"{request.url.path} does not exist.")
    headers = {**HEADERS, "etag": file.tag, "content-type": file.type}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if takes("gzip", request.headers.get("accept-encoding", "")):
        return Response(file.packed, headers={**headers, "content-encoding": "gzip"})
    return Response(file.plain, headers=headers)


@cache
def _files() -> dict[str, _File]:
    """Read every file of the page, by its path: all at the first request, as an upgrade may replace them later."""
    root = Path(__file__).parents[3] / "web"
    found = {item.name: item for item in root.iterdir() if item.is_file()}
    found |= {f"assets/{item.name}": item for item in (root / "assets").iterdir()}
    return {name: _File(item) for name, item in found.items()}


async def _file(name: str) -> _File | None:
    if not _files.cache_info().currsize:
        await asyncio.to_thread(_files)
    return _files().get(name)


class PageFeature(Feature):
    """The browser UI, and the pages about errors. They are not part of the API and its description."""

    def endpoints(self) -> list[Endpoint]:
        """Return the pages and the files, for GET and HEAD."""
        help = zip(HELP, (self.serve_error_list, self.serve_error_page), strict=True)
        handlers = {
            **dict.fromkeys(PAGES, self.serve_page),
            **dict(help),
            **dict.fromkeys((*FILES, "/assets/{name}"), self.serve_file),
        }
        return [
            Endpoint(method, path, who=ANYONE).with_handler(handler)
            for path, handler in handlers.items()
            for method in ("GET", "HEAD")
        ]

    async def serve_page(self, request: Request) -> Response:
        """Return the page. A link to a session is not for search engines."""
        page = _response(request, await _file("index.html"))
        if request.url.path.startswith("/shared/"):
            page.headers["x-robots-tag"] = "noindex, nofollow"
        return page

    async def serve_file(self, request: Request) -> Response:
        """Return a file that the page loads."""
        return _response(request, await _file(request.url.path.removeprefix("/")))

    async def serve_error_list(self, request: Request) -> Response:
        """Return the list of error codes."""
        return _help(request, error_list_page, error_list_text)

    async def serve_error_page(self, request: Request) -> Response:
        """Return the page about an error code."""
        code = request.path_params["id"]
        if (entry := ERRORS.get(code)) is None:
            raise NotFound(
                f"There is no page about {code!r}: it is no error code of Holdfast. {ERROR_PAGES} lists them."
            )
        return _help(request, partial(error_page, entry), partial(error_text, entry))
