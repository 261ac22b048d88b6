"""Answers of the API are compressed for clients that take it; event streams never are."""

import gzip
import importlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

GZIP = {"accept-encoding": "br, gzip;q=0.8"}
zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
ZSTD = {"accept-encoding": "gzip, deflate, br, zstd"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    async with Server(tmp_path_factory.mktemp("compression")) as server:
        async with server.client() as client:
            yield client


async def imported(client: Client, messages: int, text: str) -> str:
    """Import a session of so many messages, and return its path."""
    said = [{"role": "user", "content": f"{n} {text}"} for n in range(messages)]
    session: dict[str, Any] = await (await client.post("/api/sessions/import", json={"messages": said})).json()
    return f"/api/sessions/{session['id']}"


@requirement("api.compressed")
@pytest.mark.parametrize(("messages", "length"), [(20, 300), (2000, 600), (3, 100_000)])
async def test_a_session_of_any_length_is_a_tenth_of_its_size_for_a_client_that_takes_gzip(client, messages, length):
    """A long chat is opened over a mobile network, and its JSON repeats itself."""
    path = await imported(client, messages, "All work and no play. " * (length // 22))
    plain = await (await client.get(path)).body()
    response = await client.get(path, headers=GZIP)
    packed = await response.body()

    assert ("gzip", "accept-encoding") == (response.headers["content-encoding"], response.headers["vary"])
    assert "no-store" == response.headers["cache-control"]
    assert json.loads(plain) == json.loads(gzip.decompress(packed))
    assert 10 * len(packed) < len(plain)


@requirement("api.compressed")
@pytest.mark.parametrize(("messages", "length"), [(20, 200), (3, 100_000)])
async def test_a_client_that_takes_zstd_gets_it(client, messages, length):
    """It is smaller than gzip, and a fifth of its work: every browser of today names it."""
    path = await imported(client, messages, "All work and no play. " * (length // 22))
    plain = await (await client.get(path)).body()
    response = await client.get(path, headers=ZSTD)
    packed = await response.body()
    refused = await client.get(path, headers={"accept-encoding": "zstd;q=0, gzip"})

    assert ("zstd", "accept-encoding") == (response.headers["content-encoding"], response.headers["vary"])
    assert json.loads(plain) == json.loads(zstd.decompress(packed))
    assert 10 * len(packed) < len(plain)
    assert "gzip" == refused.headers["content-encoding"]


@requirement("api.compressed")
@pytest.mark.parametrize("accepted", ["", "identity", "gzip;q=0", "gzip; q=0.000, br", "gzipped", "zstd;q=0"])
async def test_a_client_that_does_not_take_gzip_is_not_sent_it(client, accepted):
    """A client that cannot unpack an answer has none."""
    response = await client.get("/openapi.json", headers={"accept-encoding": accepted})

    assert "content-encoding" not in response.headers
    assert "openapi" in await response.json()


@requirement("api.compressed")
async def test_a_small_answer_is_sent_as_it_is(client):
    """What fits into one packet arrives no sooner when it is compressed."""
    response = await client.get("/api/me", headers=GZIP)

    assert "content-encoding" not in response.headers
    assert "owner" in await response.json()


@requirement("api.compressed")
async def test_an_event_stream_is_never_compressed(client):
    """A compressor holds back the text that a reader waits for."""
    session = await (await client.post("/api/sessions", json={})).json()
    asked = {"input": "word " * 1000, "model": "scripted/echo"}
    accept = {"accept": "text/event-stream", **GZIP}
    response = await client.post(f"/api/sessions/{session['id']}/runs", asked, headers=accept)
    body = await response.body()

    assert "content-encoding" not in response.headers
    assert b"event: run.settled" in body
