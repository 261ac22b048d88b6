"""Answers in one piece, on our own server: sent in one step, and just as its own `send` would have sent them."""

import asyncio
import json

import pytest

from holdfast.access import ACCESS, ANYONE
from holdfast.asgi.event_stream import EventStream
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.auth import ANONYMOUS
from holdfast.server.kit.feature import Endpoint
from holdfast.server.kit.http.errors import Json
from holdfast.server.kit.routing import CallChecks, Router
from holdfast.store.memory import MemoryStore
from tests.support.served import NO_HOME, Served, protocol
from tests.support.waiting import LONG

ELSEWHERE = "https://elsewhere.example"


class BrokenStore(MemoryStore):
    """Has a bug where sessions are listed."""

    async def list_sessions(self, *args, **options):
        raise ZeroDivisionError("a secret of ours")


@pytest.fixture
async def connection():
    app = create_app(Settings(allowed_origins=(ELSEWHERE,)), BrokenStore(), NO_HOME)
    async with Served(app, http=protocol()) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        yield reader, writer
        writer.close()


def asking(path, *headers, method="GET"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


async def answer(reader, *, has_body=True):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"])) if has_body else b""
    return int(status.split()[1]), headers, body


async def test_requests_that_are_sent_at_once_are_answered_in_their_order(connection):
    """The second is read while the first is answered: no answer may be taken for the other's."""
    reader, writer = connection
    writer.write(asking("/health") + asking("/api/comparisons") + asking("/nowhere") + asking("/health"))

    answers = [await answer(reader) for _ in range(4)]

    assert [200, 200, 404, 200] == [status for status, _, _ in answers]
    assert json.loads(answers[0][2]) == json.loads(answers[3][2])
    assert "has_more" in json.loads(answers[1][2])
    assert all("date" in headers for _, headers, _ in answers)


async def test_a_connection_that_is_to_be_closed_is_closed_after_the_answer(connection):
    """And the client is told so before."""
    reader, writer = connection
    writer.write(asking("/health", "Connection: close"))

    status, headers, _ = await answer(reader)

    assert (200, "close") == (status, headers["connection"])
    assert b"" == await reader.read()


async def test_an_answer_without_a_body_has_none(connection):
    """A client that asked for the head alone would take a body for the next answer."""
    reader, writer = connection
    writer.write(asking("/health", method="HEAD") + asking("/health"))

    status, _, _ = await answer(reader, has_body=False)
    again, _, body = await answer(reader)

    assert (405, 200) == (status, again)
    assert json.loads(body)


async def test_an_allowed_page_elsewhere_may_read_it(connection):
    """What is added to each answer on its way is added to this one too."""
    reader, writer = connection
    writer.write(asking("/api/comparisons", f"Origin: {ELSEWHERE}"))

    status, headers, _ = await answer(reader)

    assert (200, ELSEWHERE) == (status, headers["access-control-allow-origin"])


async def test_a_bug_is_an_error_like_any_other(connection):
    """In the shape of all errors, without what only the log may say; and the connection goes on."""
    reader, writer = connection
    writer.write(asking("/api/sessions") + asking("/health"))

    status, _, body = await answer(reader)
    after, _, _ = await answer(reader)

    assert (500, "internal_error", 200) == (status, json.loads(body)["error"]["code"], after)
    assert b"secret" not in body


H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "Upgrade: h2c",
)


@pytest.mark.parametrize("sent_at_once", [True, False])
async def test_a_client_that_would_rather_speak_http_2_is_answered_in_http_1(connection, sent_at_once):
    """Java's own client offers it with each request, and sends the body all the same: it must not be lost."""
    reader, writer = connection
    body = b'{"title":"From Java"}'
    head = asking("/api/sessions", *H2C, f"Content-Length: {len(body)}", method="POST")
    writer.write(head + body if sent_at_once else head)
    if not sent_at_once:
        await writer.drain()
        writer.write(body)
    writer.write(asking("/health"))

    status, _, answered = await answer(reader)
    after, _, _ = await answer(reader)

    assert (201, "From Java", 200) == (status, json.loads(answered)["title"], after)


class BrokenFrames:
    """Has a bug after its first frame."""

    is_over = False

    def __init__(self):
        self._frames = [b"data: 1\n\n"]

    async def next(self):
        return self._frames.pop()

    def watch(self, wake):
        return lambda: None


def open_to_all(*endpoints):
    """A router behind a gate that lets everyone in."""
    router = Router(endpoints, CallChecks(None, None, None, limits_bytes=False), other=None)

    async def app(scope, receive, send):
        scope[ACCESS] = ANONYMOUS
        await router(scope, receive, send)

    return app


async def broken_stream(request):
    return EventStream(BrokenFrames())


async def test_a_bug_in_the_middle_of_a_stream_cuts_it_off():
    """An end that looks like any other would make half an answer a whole one."""
    app = open_to_all(Endpoint("GET", "/broken", who=ANYONE).with_handler(broken_stream))
    async with Served(app, http=protocol(), lifespan="off") as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(asking("/broken") + asking("/broken"))
        sent = await asyncio.wait_for(reader.read(), LONG)
        writer.close()

    assert sent.startswith(b"HTTP/1.1 200 OK\r\n")
    assert sent.endswith(b"9\r\ndata: 1\n\n\r\n")


async def named(request):
    return Json(request.path_params)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/api/things/7", {"thing_id": "7"}),
        ("/api/things/7/stop", {"id": "7"}),
        ("/api/things/all", {}),
        ("/api/things/7/parts/8", {"thing": "7", "part": "8"}),
        ("/api/files/a/b.txt", {"name": "a/b.txt"}),
        ("/api/files/", {"name": ""}),
    ],
)
async def test_a_path_is_looked_up_with_its_parameters(path, told):
    """A parameter is one segment that is not empty; `:path` takes all that is left."""
    status, _, body = await routed("GET", path)

    assert (200, told) == (status, body)


@pytest.mark.parametrize(
    "path", ["/api/things/", "/api/things", "/api/things/7/stop/now", "/api/others/7", "/api", "//", "/api/files"]
)
async def test_a_path_that_is_not_there_is_a_404(path):
    """Nothing is guessed: no slash is added or taken away."""
    status, _, body = await routed("GET", path)

    assert (404, "not_found") == (status, body["error"]["code"])
    assert path in body["error"]["message"]


@pytest.mark.parametrize(
    ("path", "allowed"), [("/api/things/all", "DELETE, GET"), ("/api/things/7", "DELETE, GET"), ("/api/open", "GET")]
)
async def test_a_method_that_a_path_does_not_have_is_a_405_with_those_that_it_has(path, allowed):
    """HEAD is not there by itself: it would open streams that nobody reads."""
    status, head, body = await routed("POST", path)
    without_body, head_of_head, _ = await routed("HEAD", path)

    assert (405, "method_not_allowed", 405) == (status, body["error"]["code"], without_body)
    assert f"allow: {allowed}" in head
    assert f"allow: {allowed}" in head_of_head


async def test_a_path_by_its_name_comes_before_a_parameter_and_only_for_its_own_method():
    """DELETE /api/things/all is for the thing that is called "all"."""
    assert {} == (await routed("GET", "/api/things/all"))[2]
    assert {"thing_id": "all"} == (await routed("DELETE", "/api/things/all"))[2]


ROUTES = [
    ("GET", "/api/open"),
    ("GET", "/api/things/all"),
    ("GET", "/api/things/{thing_id}"),
    ("DELETE", "/api/things/{thing_id}"),
    ("GET", "/api/things/{id}/stop"),
    ("GET", "/api/things/{thing}/parts/{part}"),
    ("GET", "/api/files/{name:path}"),
]


async def routed(method, path):
    """The status, the head and the body of a request to a router."""
    app = open_to_all(*(Endpoint(*each, who=ANYONE).with_handler(named) for each in ROUTES))
    async with Served(app, http=protocol(), lifespan="off") as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(asking(path, "connection: close", method=method))
        head, _, body = (await asyncio.wait_for(reader.read(), LONG)).decode().partition("\r\n\r\n")
        writer.close()
    return int(head.split()[1]), head, json.loads(body or "null")
