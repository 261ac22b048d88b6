"""Bad input of every kind: a clear 4xx in the error shape, no run, nothing stored, and the upstream never asked."""

import gzip
import json
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.acceptance.surfaces import World
from tests.requirements import requirement
from tests.support.http import Response
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream

pytestmark = [pytest.mark.asyncio(loop_scope="module"), requirement("start.bad-input", "wire.no-useless-retry")]

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Place:
    """A session with one turn in it, that every bad request of the native API is about."""

    world: World
    api: Native
    session_id: str
    run_id: str
    message_id: str

    def at(self, path: str) -> str:
        return path.format(session=self.session_id, run=self.run_id)

    async def stored(self) -> tuple[Any, Any, Any, int]:
        """All that a request could have left behind."""
        return (
            (await self.api.get("/api/sessions?limit=200"))["sessions"],
            await self.api.get("/api/runs?limit=200"),
            await self.api.session(self.session_id),
            len(self.world.up.requests),
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory):
    async with Upstream() as up:
        folder = tmp_path_factory.mktemp("bad-input")
        async with Server(folder, [provider(up.base_url, models=["m"])]) as server:
            async with server.client() as client:
                api = Native(client)
                session_id = await api.new_session(model="up/m")
                run_id = await api.start(session_id, "hello", "up/m")
                await api.settled(run_id)
                message_id = (await api.session(session_id))["messages"][0]["id"]
                yield Place(World(up, server, client), api, session_id, run_id, message_id)
        log = server.log_text()
        assert "Traceback" not in log, log


async def told(response: Response) -> tuple[int, str]:
    """Status and code of an answer that must have the error shape, and tell the SDKs not to repeat the request."""
    body = await response.json()
    assert "false" == response.headers["x-should-retry"]
    error = body["error"]
    assert {"message", "type", "code", "param", "help"} == set(error), body
    assert isinstance(error["message"], str)
    assert error["message"]
    assert "application/json" == response.headers["content-type"]
    return response.status, error["code"]


def chat(messages: Any = ..., **more: Any) -> bytes:
    asked = [{"role": "user", "content": "hi"}] if messages is ... else messages
    return json.dumps({"model": "up/m", "messages": asked, **more}).encode()


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


HI = '{"role": "user", "content": "hi"}'

NOT_JSON: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"hello",
    "half of it": chat()[:-1],
    "two objects": chat() + chat(),
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "NaN": f'{{"model": "up/m", "messages": [{HI}], "temperature": NaN}}'.encode(),
    "Infinity": f'{{"model": "up/m", "messages": [{HI}], "temperature": -Infinity}}'.encode(),
    "a number out of range": f'{{"model": "up/m", "messages": [{HI}], "temperature": 1e999}}'.encode(),
    "5,000 digits": f'{{"model": "up/m", "messages": [{HI}], "seed": {"9" * 5000}}}'.encode(),
    "5,000 digits of a known field": f'{{"model": "up/m", "messages": [{HI}], "n": {"9" * 5000}}}'.encode(),
    "a raw NUL": b'{"model": "up/m", "messages": [{"role": "user", "content": "a\0b"}]}',
    "a raw line break": b'{"model": "up/m", "messages": [{"role": "user", "content": "a\nb"}]}',
    "no UTF-8": b'{"model": "up/m", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "UTF-16": chat().decode().encode("utf-16"),
    "overlong UTF-8": b'{"model": "up/m", "messages": [{"role": "user", "content": "\xc0\xaf"}]}',
    "a surrogate in UTF-8": b'{"model": "up/m", "messages": [{"role": "user", "content": "\xed\xa0\xbc"}]}',
    "a lone surrogate": b'{"model": "up/m", "messages": [{"role": "user", "content": "a\\ud83c"}]}',
    "a lone surrogate in a name": b'{"model": "up/m", "x\\udf0a": 1, "messages": [' + HI.encode() + b"]}",
    "nesting": f'{{"model": "up/m", "messages": {nested(90_000)}}}'.encode(),
    "nesting of objects": b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
    "nesting in an unknown field": f'{{"model": "up/m", "messages": [{HI}], "x": {nested(1500)}}}'.encode(),
}

WRONG: dict[str, bytes] = {
    "no messages": b'{"model": "up/m"}',
    "empty messages": chat([]),
    "messages of null": chat(None),
    "messages as a string": chat("hi"),
    "messages as an object": chat({"role": "user", "content": "hi"}),
    "a message as a string": chat(["hi"]),
    "a message without role": chat([{"content": "hi"}]),
    "an unknown role": chat([{"role": "wizard", "content": "hi"}]),
    "content as a number": chat([{"role": "user", "content": 7}]),
    "content as strings": chat([{"role": "user", "content": ["hi"]}]),
    "empty content": chat([{"role": "user", "content": ""}]),
    "blank content": chat([{"role": "user", "content": " \n\t "}]),
    "content of null": chat([{"role": "user", "content": None}]),
    "no content": chat([{"role": "user"}]),
    "no parts": chat([{"role": "user", "content": []}]),
    "tool_calls as a string": chat([{"role": "assistant", "tool_calls": "x"}, {"role": "user", "content": "x"}]),
    "a model as a number": chat(model=7),
    "a model that is a number": chat(model=7),
    "stream as a number": chat(stream=2),
    "stream as another word": chat(stream="maybe"),
    "stream_options as a list": chat(stream_options=[]),
    "include_usage as a word": chat(stream_options={"include_usage": "yes"}),
    "n of zero": chat(n=0),
    "n below zero": chat(n=-1),
    "a huge n": chat(n=10**6),
    "n as a word": chat(n="2"),
    "half a choice": chat(n=1.5),
    "a session id as a number": chat(session_id=7),
    "background as a word": chat(background="yes"),
    "an unknown way to be busy": chat(if_busy="steal"),
    "a bad session id": chat(session_id="a\nb"),
    "nothing new for the session": chat([{"role": "assistant", "content": "x"}], session_id="new"),
}


@pytest.mark.parametrize("name", NOT_JSON)
async def test_a_body_that_is_no_json_object_is_a_400(place, name):
    """The parser is the first thing that a stranger talks to."""
    before = await place.stored()

    response = await place.world.client.request("POST", CHAT, body=NOT_JSON[name])

    assert (400, "invalid_json") == await told(response)
    assert before == await place.stored()


@pytest.mark.parametrize("stream", [False, True], ids=["", "streaming"])
@pytest.mark.parametrize("name", WRONG)
async def test_a_completion_that_makes_no_sense_is_a_400(place, name, stream):
    """Found before anything is started: never an error inside a stream, never the upstream's complaint."""
    before = await place.stored()
    body = json.loads(WRONG[name])
    raw = json.dumps({"stream": True, **body}).encode() if stream else WRONG[name]

    response = await place.world.client.request("POST", CHAT, body=raw)

    assert 400 == (await told(response))[0]
    assert before == await place.stored()


async def test_an_error_says_where_it_is(place):
    """`param` is what people look for."""
    body = {"model": "up/m", "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 7}]}

    response = await place.world.client.post(CHAT, body)

    assert "messages[1].content" == (await response.json())["error"]["param"]


@pytest.mark.parametrize("model", ["nope", "up/nope", "down/m", "/", "up/", "m\0", "x" * 10_000, "../m"])
async def test_an_unknown_model_is_a_404(place, model):
    """Only what the settings name is asked for."""
    before = await place.stored()

    response = await place.world.client.post(CHAT, {"model": model, "messages": [{"role": "user", "content": "x"}]})

    assert (404, "model_not_found") == await told(response)
    assert before == await place.stored()


# Too much.


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(place):
    """Half a request is none."""
    before = await place.stored()
    host = f"{place.world.client.host}:{place.world.client.port}"
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(chat())}\r\n\r\n".encode()

    for how in ("fin", "rst"):
        response = await place.world.client.send_raw(head + chat()[:-10], method="POST")
        response.leave(how)  # type: ignore[arg-type]

    assert before == await place.stored()


@pytest.mark.parametrize("depth", [50, 98, 101, 400, 950, 1000, 1100])
@pytest.mark.parametrize("where", ["chat", "native", "session"])
async def test_nesting_is_either_taken_or_refused_and_never_half_taken(place, depth, where):
    """What can be read must also be writable: to the store, and to the upstream."""
    before = await place.stored()
    value = "{" + f'"x": {nested(depth)}' + "}"
    path, body = {
        "chat": (CHAT, f'{{"model": "up/m", "messages": [{HI}], "background": true, "x": {nested(depth)}}}'),
        "native": (place.at("/api/sessions/{session}/runs"), f'{{"input": "deep", "params": {value}}}'),
        "session": ("/api/sessions", f'{{"title": "deep", "params": {value}}}'),
    }[where]

    response = await place.world.client.request("POST", path, body=body.encode())

    if depth > 100:
        assert (400, "invalid_json") == await told(response)
        assert before == await place.stored()
    elif where == "session":
        assert 201 == response.status
        assert depth == json.dumps((await response.json())["params"]["x"]).count("[")
    else:
        assert 202 == response.status
        settlement = await place.api.settled(response.headers["x-run-id"])
        assert ("completed", None) == (settlement["outcome"], settlement["error"])
        assert depth == json.dumps(place.world.up.requests[-1].body["x"]).count("[")


# The native API.


NATIVE: list[tuple[str, str, Any, int]] = [
    ("POST", "/api/sessions", {"title": 7}, 400),
    ("POST", "/api/sessions", {"unknown": 1}, 400),
    ("POST", "/api/sessions", {"model": "nope"}, 404),
    ("POST", "/api/sessions", {"params": []}, 400),
    ("POST", "/api/sessions", [], 400),
    ("PATCH", "/api/sessions/{session}", {"title": None}, 400),
    ("PATCH", "/api/sessions/{session}", {"pinned": "yes"}, 400),
    ("PATCH", "/api/sessions/{session}", {"owner": "me"}, 400),
    ("PATCH", "/api/sessions/{session}", {"id": "ses_other"}, 400),
    ("PATCH", "/api/sessions/{session}", {"head_id": "msg_none"}, 404),
    ("PATCH", "/api/sessions/{session}", {"model": "nope"}, 404),
    ("POST", "/api/sessions/{session}/runs", {}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": ""}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": "  \n"}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": []}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": ["x"]}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": [{"text": "x"}]}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": 7}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": None}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": "x", "kind": "wizard"}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": "x", "lifetime": "eternal"}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": "x", "if_busy": "steal"}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": "x", "params": "hot"}, 400),
    ("POST", "/api/sessions/{session}/runs", {"input": "x", "model": "nope"}, 404),
    ("POST", "/api/sessions/{session}/runs", {"input": "x", "unknown": True}, 400),
    ("POST", "/api/sessions/ses_none/runs", {"input": "x"}, 404),
    ("POST", "/api/sessions/{session}/regenerate", {}, 400),
    ("POST", "/api/sessions/{session}/regenerate", {"message_id": 7}, 400),
    ("POST", "/api/sessions/{session}/regenerate", {"message_id": "msg_none"}, 404),
    ("POST", "/api/sessions/{session}/edit", {"message_id": "msg_none"}, 400),
    ("POST", "/api/sessions/{session}/edit", {"message_id": "msg_none", "input": "x"}, 404),
    ("POST", "/api/sessions/{session}/fork", {}, 400),
    ("POST", "/api/sessions/{session}/fork", {"message_id": "msg_none"}, 404),
    ("POST", "/api/runs/{run}/steer", {"input": 7}, 400),
    ("POST", "/api/runs/{run}/steer", {"input": "x"}, 409),
    ("POST", "/api/runs/{run}/approvals/a", {"decision": "perhaps"}, 400),
    ("POST", "/api/runs/{run}/approvals/a", {"decision": "allow"}, 404),
    ("PATCH", "/api/sessions/{session}/queue/1", {"input": "x"}, 404),
    ("POST", "/api/sessions/{session}/queue/1/send", None, 404),
    ("GET", "/api/sessions/{session}/queue/x", None, 404),
    ("DELETE", "/api/sessions/{session}/queue/1", None, 404),
    ("GET", "/api/sessions?limit=0", None, 400),
    ("GET", "/api/sessions?limit=abc", None, 400),
    ("GET", "/api/sessions?limit=99999999999999999999", None, 400),
    ("GET", "/api/sessions?limit=-1", None, 400),
    ("GET", "/api/runs?status=dead", None, 400),
    ("GET", "/api/runs?limit=1e3", None, 400),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), NATIVE)
async def test_the_native_api_refuses_what_makes_no_sense(place, method, path, body, status):
    """Each by its own reason, and with nothing left behind."""
    before = await place.stored()

    response = await place.world.client.request(method, place.at(path), json=body)

    assert status == (await told(response))[0]
    assert before == await place.stored()


@pytest.mark.parametrize("path", ["/api/sessions", "/api/sessions/{session}/runs", "/api/sessions/{session}/edit"])
@pytest.mark.parametrize("name", [name for name in NOT_JSON if name != "nothing"])
async def test_the_native_api_takes_no_broken_json_either(place, path, name):
    """The same decoder, and the same words."""
    before = await place.stored()

    response = await place.world.client.request("POST", place.at(path), body=NOT_JSON[name])

    status, code = await told(response)
    assert 400 == status
    assert before == await place.stored()
    assert code in ("invalid_json", "invalid_request")


# Paths, methods and ids.


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", CHAT),
        ("PUT", CHAT),
        ("DELETE", CHAT),
        ("POST", "/v1/models"),
        ("POST", "/health"),
        ("PUT", "/api/sessions"),
        ("DELETE", "/api/sessions"),
        ("PUT", "/api/sessions/{session}"),
        ("GET", "/api/sessions/{session}/runs"),
        ("GET", "/api/sessions/{session}/stop"),
        ("GET", "/api/runs/{run}/stop"),
        ("DELETE", "/api/runs/{run}"),
        ("POST", "/api/runs/{run}/events"),
    ],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_ones(place, method, path):
    """No side effect by GET, and none by guessing."""
    before = await place.stored()

    response = await place.world.client.request(method, place.at(path), json={})

    assert (405, "method_not_allowed") == await told(response)
    assert response.headers["allow"]
    assert method not in response.headers["allow"].split(", ")
    assert before == await place.stored()


async def test_every_method_that_a_405_names_is_there(place):
    """Where two routes share a path, the header must name the methods of both."""
    response = await place.world.client.request("PUT", place.at("/api/sessions/{session}"), json={})

    assert {"GET", "PATCH", "DELETE"} <= set(response.headers["allow"].split(", "))


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/api",
        "/api/nothing",
        "/api/sessions/",
        "/health/",
        "/v2/chat/completions",
        "/%2e%2e/etc/passwd",
        "//",
        "/%00",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_path_is_a_404(place, method, path):
    """In our own shape: a client that mistyped the base URL must be able to read why."""
    response = await place.world.client.request(method, path)

    assert (404, "not_found") == await told(response)


BAD_IDS = [
    "none",
    "ses_none",
    "run_none",
    "%00",
    "..",
    "%2e%2e%2f",
    "a" * 2000,
    "%F0%9F%8C%8A",
    "%FF",
    "'",
    "*",
    "null",
    "-1",
]


@pytest.mark.parametrize("id", BAD_IDS)
async def test_a_bad_id_is_a_404_everywhere(place, id):
    """Whatever stands there, it is only a name that nobody has."""
    client, body = place.world.client, {"message_id": "msg_x", "input": "x", "decision": "allow"}
    asked = [
        ("GET", f"/api/sessions/{id}", None),
        ("PATCH", f"/api/sessions/{id}", {"title": "x"}),
        ("DELETE", f"/api/sessions/{id}", None),
        ("GET", f"/api/sessions/{id}/events", None),
        ("POST", f"/api/sessions/{id}/stop", None),
        ("POST", f"/api/sessions/{id}/runs", {"input": "x"}),
        ("POST", f"/api/sessions/{id}/regenerate", {"message_id": "x"}),
        ("POST", f"/api/sessions/{id}/edit", {"message_id": "x", "input": "x"}),
        ("POST", f"/api/sessions/{id}/fork", {"message_id": "x"}),
        ("GET", f"/api/sessions/{id}/queue/1", None),
        ("POST", f"/api/sessions/{id}/queue/1/send", None),
        ("GET", f"/api/runs/{id}", None),
        ("GET", f"/api/runs/{id}/events", None),
        ("POST", f"/api/runs/{id}/stop", None),
        ("POST", f"/api/runs/{id}/steer", {"input": body["input"]}),
        ("POST", f"/api/runs/{id}/approvals/{id}", {"decision": "allow"}),
        ("GET", f"/v1/chat/completions/{id}", None),
        ("GET", f"/v1/chat/completions/chatcmpl-{id}?stream=true&starting_after=1", None),
        ("GET", f"/v1/models/{id}", None),
    ]
    before = await place.stored()

    statuses = {path: (await told(await client.request(method, path, json=json)))[0] for method, path, json in asked}

    assert dict.fromkeys(statuses, 404) == statuses
    assert before == await place.stored()


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "%00", "9" * 30, "²"])
async def test_a_bad_place_to_resume_from_is_a_400(place, after):
    """Data frames are counted: anything but a number of them was not counted."""
    started = await place.world.chat("up/m", background=True)
    completion_id = (await started.json())["id"]

    response = await place.world.client.get(
        f"/v1/chat/completions/{completion_id}?stream=true&starting_after={after.replace('²', '%C2%B2')}"
    )
    await place.api.settled(started.headers["x-run-id"])  # other tests compare what is stored

    assert 400 == (await told(response))[0]


async def test_an_expectation_and_a_strange_content_type_do_no_harm(place):
    """curl sends the one for large bodies, and forms the other: the body decides."""
    headers = {"Expect": "100-continue", "Content-Type": "text/plain; charset=latin-1"}

    response = await place.world.client.request("POST", CHAT, body=chat(), headers=headers)

    assert 200 == response.status
    await response.body()


async def test_a_compressed_body_is_refused_as_such(place):
    """To call it invalid JSON sends people looking for a fault in their data."""
    body, headers = gzip.compress(b"{}"), {"Content-Encoding": "gzip"}
    response = await (await place.world.client.send("POST", CHAT, body=body, headers=headers)).head()
    error = (await response.json())["error"]

    assert (415, "unsupported_encoding") == (response.status, error["code"])


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/v1/messages", {}, "The path is /v1/messages."),
        ("/v1/api/chat", {}, "The path is /api/chat."),
        ("/chat/completions", {}, "The path is /v1/chat/completions."),
        ("/api/sessions/{session}/runs", {"message": "hi"}, "unknown field `message`. Its fields are input, "),
        ("/api/runs/run_x/stop", None, "No run 'run_x', or it is not yours."),
    ],
)
async def test_a_slip_is_answered_with_what_was_meant(place, path, body, says):
    """A base URL with /v1 for an SDK that adds it, a field of another API, an id of another server."""
    response = await place.world.client.post(place.at(path), body)

    assert says in (await response.json())["error"]["message"]
