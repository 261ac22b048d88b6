"""The browser UI as it is served: one page at all of its addresses, closed to everything that is not its own."""

import os
import re
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.newer_version import newer_version
from tests.support.server import ROOT, Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = [
    *("/", "/s/ses_1", "/compare", "/runs/run_1", "/settings"),
    *("/sign-in", "/first-admin", "/reset", "/account", "/admin", "/admin/people"),
]
KEY = "page-key-1f3b"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """Someone without a key, at a server that has one."""
    async with Server(tmp_path_factory.mktemp("page"), env={"HOLDFAST_API_KEY": KEY}) as server:
        async with server.client() as client:
            yield client


def linked(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]+)"', page)


@requirement("ui.page")
@pytest.mark.parametrize("path", PAGES)
async def test_the_page_answers_at_each_of_its_addresses_without_a_key(client, path):
    """A link to a session is opened by someone whose browser has no key yet; the page asks for it."""
    response = await client.get(path)

    assert (200, "text/html; charset=utf-8") == (response.status, response.headers["content-type"])
    assert await response.text() == await (await client.get("/")).text()


@requirement("ui.page")
async def test_all_that_the_page_names_is_its_own_and_is_there(client):
    """A file that is missing from the package, or is elsewhere, would leave an empty page."""
    names = linked(await (await client.get("/")).text())
    answers = [await client.get(name) for name in names]

    assert {"/assets/index.js", "/assets/index.css", "/manifest.webmanifest", "/icon.svg"} <= set(names)
    assert all(name.startswith("/") and not name.startswith("//") for name in names)
    assert {200} == {answer.status for answer in answers}


@requirement("ui.page")
async def test_the_page_stays_whole_while_its_files_are_replaced(tmp_path):
    """An upgrade replaces them under a running server: half of one version with half of another is no page."""
    package = newer_version(tmp_path)
    env = {"PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
    async with Server(tmp_path / "data", env=env) as server, server.client() as client:
        names = linked(await (await client.get("/")).text())
        shutil.rmtree(package / "holdfast" / "web")
        answers = [await client.get(name) for name in (*names, "/assets/worker.js")]

    assert {200} == {answer.status for answer in answers}


@requirement("ui.page")
@pytest.mark.parametrize("path", ["/", "/assets/index.js", "/assets/worker.js"])
async def test_the_policy_lets_nothing_in_that_is_not_a_file_of_the_page(client, path):
    """An answer is written by strangers. Where all else failed, the browser itself runs none of it."""
    response = await client.get(path)
    policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))

    assert ("'none'", "'self'", "'self'") == (policy["default-src"], policy["script-src"], policy["style-src"])
    assert ("'self'", "'none'", "'none'") == (policy["connect-src"], policy["base-uri"], policy["frame-ancestors"])
    assert "unsafe" not in response.headers["content-security-policy"]
    assert ("nosniff", "no-referrer") == (
        response.headers["x-content-type-options"],
        response.headers["referrer-policy"],
    )


@requirement("ui.page")
async def test_a_file_that_has_not_changed_is_not_sent_again(client):
    """Names stay the same from version to version, so a browser asks each time."""
    first = await client.get("/assets/index.js", headers={"accept-encoding": "gzip"})
    again = await client.get("/assets/index.js", headers={"if-none-match": first.headers["etag"]})

    assert ("no-cache", "gzip") == (first.headers["cache-control"], first.headers["content-encoding"])
    assert (304, b"") == (again.status, await again.body())


@requirement("ui.page", "safe.key")
@pytest.mark.parametrize(
    "path", ["/api/me", "/v1/models", "/openapi.json", "/api/s/x", "/nothing", "/s/a/b", "/assets"]
)
async def test_only_the_page_is_open(client, path):
    """What is not known to be the page asks for the key, also where nothing is there."""
    assert 401 == (await client.get(path)).status


@requirement("ui.page")
@pytest.mark.parametrize("path", ["/assets/nothing.js", "/assets/..%2findex.html", "/assets/%2e%2e%2fpy.typed"])
async def test_a_file_that_is_not_the_pages_is_not_there(client, path):
    """Only the files of the page are served, whatever a path says."""
    response = await client.get(path)

    assert response.status in (401, 404)
    assert {"error"} == (await response.json()).keys()
