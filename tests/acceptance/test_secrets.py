"""No key is ever seen again: not in an answer, a log, an export or the database, and never at another's door."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.server import UP_KEY, Server, clean_environment, provider
from tests.support.upstream import ENDINGS, Status, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILE_KEY = "sk-canary-file-8842aa17c3de"
HEADER_KEY = "canary-header-3319fe02bb71"
QUERY_KEY = "canary-query-55d0c1ea9e20"
SERVER_KEY = "canary-server-a7710b3c4d8f"
OWNER_KEY = "canary-owner-c0ffee112233"
WRONG_KEY = "canary-wrong-91b2d4e6f8a0"
SECRET_KEY = "canary-secret-77a0b1c2d3e4f5061728394a"
MISPLACED_KEY = "canary-misplaced-0a1b2c3d4e"

CANARIES = {
    "the provider's key from the environment": UP_KEY,
    "the provider's key from the file": FILE_KEY,
    "a key in a header of the provider": HEADER_KEY,
    "a key in the provider's address": QUERY_KEY,
    "the key of the server": SERVER_KEY,
    "the key of an owner": OWNER_KEY,
    "the key that encrypts secrets": SECRET_KEY,
    "a wrong key that a client has tried": WRONG_KEY,
    "a key that a client has put into a query": MISPLACED_KEY,
}

CONFIG = """
log_level = "debug"
retry_patience = 0.5

[[keys]]
name = "owner"
key_env = "OWNER_KEY"

[[providers]]
name = "file"
base_url = "{url}"
api_key = "{file}"

[[providers]]
name = "header"
base_url = "{url}"
headers = {{ X-Api-Key = "{header}" }}

[[providers]]
name = "query"
base_url = "{url}?key={query}"
"""

TELLING = ["400", "401", "404", "429", "500", "in-band-error", "event-error", "html-200", "json-error-200"]
"""Endings in which U quotes the key that it was called with."""
MODELS = [
    *(f"up/tells-{ending}" for ending in TELLING),
    *(f"{name}/tells-{ending}" for name in ("file", "header") for ending in ("401", "in-band-error")),
    "query/tells-query",
    "header/tells-header",
    "up/echo:fine",
]


class Watched:
    """A server whose every answer, and every file, can be searched."""

    def __init__(self, server: Server, up: Upstream, client: Client) -> None:
        self.server = server
        self.up = up
        self.client = client
        self.told: dict[str, bytes] = {}
        """All that was said, by who said it."""

    async def gather(self) -> None:
        heads = [answer for answer in self.client._responses if hasattr(answer, "headers")]
        self.told["an answer"] = b"\n".join(bytes(answer.raw_bytes) for answer in heads)
        self.told["a header"] = b"\n".join(repr(answer.headers.pairs).encode() for answer in heads)
        self.told["the log"] = self.server.log_text().encode()
        for path in self.server.data.iterdir():  # the settings may hold keys; nothing else may
            if path.is_file() and path not in (self.server.config, self.server.data / "server.log"):
                self.told[f"the file {path.name}"] = path.read_bytes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    """A server with a canary in each place for a key, after it has met all that could make one sing."""
    async with Upstream() as up:
        for name in TELLING:
            up.models[f"tells-{name}"] = ENDINGS[name]
        up.models["tells-query"] = [Status(400, _error(f"POST /v1/chat/completions?key={QUERY_KEY} is not valid"))]
        up.models["tells-header"] = [Status(400, _error(f"x-api-key was {HEADER_KEY}"))]
        config = CONFIG.format(url=up.base_url, file=FILE_KEY, header=HEADER_KEY, query=QUERY_KEY)
        env = {"HOLDFAST_API_KEY": SERVER_KEY, "OWNER_KEY": OWNER_KEY, "HOLDFAST_SECRET_KEY": SECRET_KEY}
        data = tmp_path_factory.mktemp("secrets")
        async with Server(data, [provider(up.base_url, models=None)], config=config, env=env) as server:
            async with server.client(authorization=f"Bearer {SERVER_KEY}") as client:
                watched = Watched(server, up, client)
                await _provoke(watched)
                await watched.gather()
                yield watched


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None, "param": None}}


async def _provoke(watched: Watched) -> None:
    client, api = watched.client, Native(watched.client)
    session = await api.new_session()
    for model in MODELS:
        chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        for body in (chat, chat | {"stream": True}, chat | {"session_id": session}):
            await (await client.post("/v1/chat/completions", body)).body()
        await api.replay(await api.start(session, "Hi", model))
    for run in (await api.get(f"/api/runs?session_id={session}&limit=200"))["runs"]:
        await api.run(run["id"])
    await api.session(session)
    watched.up.models_script = [Status(401)]
    for path in ("/v1/models", "/api/models", "/openapi.json", "/nothing", f"/api/me?api_key={MISPLACED_KEY}"):
        await (await client.get(path)).body()
    for authorization in (f"Bearer {WRONG_KEY}", f"Basic {WRONG_KEY}", WRONG_KEY):
        await (await client.get("/api/me", headers={"authorization": authorization})).body()
    await (await client.get(f"/api/me?key={MISPLACED_KEY}", headers={"authorization": None})).body()
    await (await client.get("/api/me", headers={"authorization": f"Bearer {OWNER_KEY}"})).body()
    await (await client.request("POST", "/api/sessions", body=b"{not json")).body()
    await (await client.send_raw(f"GET / HTTP/9.9\r\nAuthorization: Bearer {WRONG_KEY}\r\n\r\n".encode())).body()
    watched.told["an export"] = await _exported(watched, session)


async def _exported(watched: Watched, session: str) -> bytes:
    """A session as the command line exports it, in both forms."""
    where = ["--url", watched.server.url]
    exported = b""
    for form in ("json", "markdown"):
        command = [sys.executable, "-m", "holdfast", "sessions", "export", session, "--format", form, *where]
        env = clean_environment() | {"HOLDFAST_CLIENT_KEY": SERVER_KEY}
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert 0 == process.returncode, output.decode()
        exported += output
    return exported


def forms(key: str) -> list[bytes]:
    """The key as it might be written: as it is, its telling end alone, in base64, in an address."""
    plain = key.encode()
    bearer = base64.b64encode(f"Bearer {key}".encode())
    return [plain, plain[-10:], base64.b64encode(plain), bearer, quote(key, safe="").encode(), plain.hex().encode()]


@requirement("safe.secrets")
@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
async def test_a_key_is_seen_nowhere_again(watched: Watched, canary: str):
    """Keys leave in error messages, debug logs and exports: one look at a screenshot is then enough to spend money."""
    found = {where for where, told in watched.told.items() for form in forms(canary) if form in told}

    assert set() == found


@requirement("safe.secrets")
@pytest.mark.one_server("it searches the SQLite file")
async def test_the_canaries_were_there_to_be_told(watched: Watched):
    """The search proves something only if the upstream knew the keys and the places were really searched."""
    keys = {request.key for request in watched.up.requests} | {request.path for request in watched.up.requests}
    told = watched.told

    assert {UP_KEY, FILE_KEY, HEADER_KEY, f"/v1/chat/completions?key={QUERY_KEY}"} <= keys
    assert {"an answer", "a header", "an export", "the log", "the file holdfast.db"} <= told.keys()
    assert b"[redacted]" in told["an answer"]
    assert b"Rate limit reached" in told["an answer"]
    assert b"fine" in told["an export"]
    assert b"ready on" in told["the log"]


@requirement("safe.secrets")
async def test_each_upstream_hears_its_own_key_and_none_of_ours(watched: Watched):
    """What opens this server is nobody else's business, and one provider's key is not another's."""
    ours = (SERVER_KEY, OWNER_KEY, WRONG_KEY, MISPLACED_KEY)
    heard = [
        (json.dumps(request.headers.pairs) + request.path + request.raw.decode(), request)
        for request in (*watched.up.requests, *watched.up.others)
    ]

    assert not [request for text, request in heard if any(key in text for key in ours)]
    assert not [request for text, request in heard if sum(key in text for key in list(CANARIES.values())[:4]) > 1]


@requirement("safe.secrets")
@pytest.mark.one_server("it looks at the SQLite file")
async def test_what_is_kept_is_readable_by_its_owner_alone(watched: Watched):
    """The database holds what people said: other users of the machine must not be able to read it."""
    modes = {
        path.name: oct(path.stat().st_mode & 0o077)
        for path in watched.server.data.iterdir()
        if path.name.startswith(("holdfast.db", "keys"))
    }

    assert {"holdfast.db", "holdfast.db-wal"} <= modes.keys()
    assert {"0o0"} == set(modes.values())
