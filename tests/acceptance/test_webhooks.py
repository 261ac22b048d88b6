"""Webhooks: who is told that a response in the background has ended, how it is proved, and what it survives."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from openai import InvalidWebhookSignatureError, OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings, SettingsError, WebhookSettings
from holdfast.store import Document
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG

SECRET = "whsec_aG9sZGZhc3QtaG9sZGZhc3QtaG9sZGZhc3Q="
PLAIN = "any text will do"


class Ears:
    """A listener that remembers what it was told, and answers as it is told to."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.heard: asyncio.Queue[tuple[str, dict[str, str], bytes]] = asyncio.Queue()
        self.app = Starlette(routes=[Route("/{path:path}", self.hear, methods=["POST", "GET"])])

    async def hear(self, request: Request) -> Response:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.heard.put_nowait((request.url.path, dict(request.headers), await request.body()))
        return Response(status_code=status, headers={"location": "/elsewhere"} if status == 302 else {})

    async def next(self) -> tuple[str, dict[str, str], bytes]:
        async with asyncio.timeout(LONG):
            return await self.heard.get()


def told_to(*urls: str, **more: Any) -> str:
    tables = [f'[[webhooks]]\nurl = "{url}"\nsecret_env = "HOOK"\n' for url in urls]
    extra = "".join(f"{name} = {json.dumps(value)}\n" for name, value in more.items())
    return "retry_patience = 0.05\n" + "".join(table + extra for table in tables)


def unwrap(headers: dict[str, str], body: bytes, secret: str = SECRET) -> Any:
    """As a program would that was written for OpenAI."""
    return OpenAI(api_key="x").webhooks.unwrap(body, headers, secret=secret)


async def begin(client: Client, model: str, **more: Any) -> str:
    asked = {"model": model, "input": "Hello", "background": True, **more}
    response = await client.post("/v1/responses", asked)
    body = await response.json()
    assert 200 == response.status, body
    return str(body["id"])


@requirement("hook.signed")
@pytest.mark.parametrize("secret", [SECRET, PLAIN])
async def test_every_ending_is_told_truthfully_and_openais_sdk_accepts_it(tmp_path, secret):
    """A forged or altered one it does not; and what was said is not in it."""
    ears = Ears(200)
    async with Upstream() as up, Served(ears.app) as listener:
        config = told_to(f"{listener.url}/hook?a=b")
        async with (
            Server(tmp_path, [provider(up.base_url, models=None)], config=config, env={"HOOK": secret}) as server,
            server.client() as client,
        ):
            up.models["half"] = [Headers(), Role(), Delta("Half"), Hang()]
            expected = {}
            for model, kind in [
                ("up/end:completed", "response.completed"),
                ("up/end:length", "response.incomplete"),
                ("up/end:eof", "response.failed"),
                ("up/end:401", "response.failed"),
                ("up/half", "response.cancelled"),
            ]:
                expected[await begin(client, model)] = kind
            await (await client.post(f"/v1/responses/{list(expected)[-1]}/cancel")).body()
            heard = [await ears.next() for _ in expected]

    events = [unwrap(headers, body, secret) for _, headers, body in heard]
    assert expected == {event.data.id: event.type for event in events}
    assert {"/hook"} == {path for path, _, _ in heard}
    assert {"event"} == {event.object for event in events}
    assert [event.id for event in events] == [headers["webhook-id"] for _, headers, _ in heard]
    assert len(expected) == len({event.id for event in events})
    _, headers, body = heard[0]
    for changed in (body + b" ", body.replace(b"response", b"rasponse", 1)):
        with pytest.raises(InvalidWebhookSignatureError):
            unwrap(headers, changed, secret)
    assert b"Half" not in b"".join(body for *_, body in heard)


@requirement("hook.signed")
async def test_only_what_was_asked_for_is_told(tmp_path):
    """Neither other events, nor responses that somebody waits for, nor other runs."""
    ears = Ears(204)
    async with Upstream() as up, Served(ears.app) as listener:
        config = told_to(listener.url, events=["response.failed"])
        async with (
            Server(tmp_path, [provider(up.base_url, models=None)], config=config, env={"HOOK": SECRET}) as server,
            server.client() as client,
        ):
            await begin(client, "up/end:completed")
            for asked in ({"background": False}, {"background": False, "stream": True}):
                body = {"model": "up/end:eof", "input": "Hello", **asked}
                await (await client.post("/v1/responses", body)).body()
            chat = {"model": "up/end:eof", "messages": [{"role": "user", "content": "x"}], "background": True}
            await (await client.post("/v1/chat/completions", chat)).body()
            failed = await begin(client, "up/end:eof")
            _, _, told = await ears.next()
        assert ears.heard.empty()

    assert (failed, "response.failed") == (json.loads(told)["data"]["id"], json.loads(told)["type"])


@requirement("hook.told")
async def test_a_listener_that_fails_is_told_again_and_is_not_followed_elsewhere(tmp_path):
    """A redirect could lead anywhere. The id stays, so that one who was told twice can see it."""
    ears = Ears(500, 302, 200)
    async with Upstream() as up, Served(ears.app) as listener:
        config = told_to(f"{listener.url}/hook?key=s3cret")
        async with (
            Server(tmp_path, [provider(up.base_url, models=None)], config=config, env={"HOOK": SECRET}) as server,
            server.client() as client,
        ):
            response_id = await begin(client, "up/end:completed")
            heard = [await ears.next() for _ in range(3)]

    assert ["/hook"] * 3 == [path for path, _, _ in heard]
    assert "s3cret" not in server.log_text()
    assert 1 == len({headers["webhook-id"] for _, headers, _ in heard})
    assert [response_id] * 3 == [unwrap(headers, body).data.id for _, headers, body in heard]


@requirement("hook.told")
async def test_the_same_request_sent_twice_is_told_once(tmp_path):
    """An Idempotency-Key has started one run; and one who says 410 is not asked again."""
    ears = Ears(410)
    async with Upstream() as up, Served(ears.app) as listener:
        config = told_to(listener.url)
        async with (
            Server(tmp_path, [provider(up.base_url, models=None)], config=config, env={"HOOK": SECRET}) as server,
            server.client() as client,
        ):
            asked = {"model": "up/end:completed", "input": "Hello", "background": True}
            for _ in range(2):
                await (await client.post("/v1/responses", asked, headers={"Idempotency-Key": "once"})).body()
            await ears.next()
            await begin(client, "up/end:length")
            _, _, second = await ears.next()
            await server.restart()
            async with server.client() as again:
                await begin(again, "up/end:eof")
            _, _, third = await ears.next()

    assert ["response.incomplete", "response.failed"] == [json.loads(body)["type"] for body in (second, third)]


@requirement("hook.told", "crash.kill9")
async def test_what_was_promised_survives_a_kill(tmp_path):
    """Both where it had ended and nobody had heard, and where it was going on: that one has failed, and is told so."""
    ears = Ears(503)
    async with Upstream() as up, Served(ears.app) as listener:
        up.models["half"] = [Headers(), Role(), Delta("Half"), Hang()]
        config = told_to(listener.url)
        async with Server(
            tmp_path, [provider(up.base_url, models=None)], config=config, env={"HOOK": SECRET}
        ) as server:
            async with server.client() as client:
                whole = await begin(client, "up/end:completed")
                await ears.next()
                half = await begin(client, "up/half")
            await server.kill9()
            while not ears.heard.empty():
                ears.heard.get_nowait()
            ears.statuses = [200]
            await server.restart()
            told: dict[str, str] = {}
            while len(told) < 2:  # the killed server may have sent one more
                _, headers, body = await ears.next()
                event = unwrap(headers, body)
                told[event.data.id] = event.type

    assert {whole: "response.completed", half: "response.failed"} == told


BAD: list[tuple[Callable[[], WebhookSettings], str]] = [
    (lambda: WebhookSettings("https://example.com", "UNSET"), "UNSET is not set"),
    (lambda: WebhookSettings("https://example.com", ""), "secret_env is not set"),
    (lambda: WebhookSettings("https://example.com", "BROKEN"), "not base64"),
    (lambda: WebhookSettings("ftp://example.com", "HOOK"), "must be an http or https address"),
    (lambda: WebhookSettings("example.com/hook", "HOOK"), "must be an http or https address"),
    (lambda: WebhookSettings("https://me:pass@example.com", "HOOK"), "without a user name"),
    (lambda: WebhookSettings("http://[", "HOOK"), "must be an http or https address"),
    (lambda: WebhookSettings("http://a..b/hook", "HOOK"), "must be an http or https address"),
    (lambda: WebhookSettings(f"http://{'x' * 64}.example/hook", "HOOK"), "must be an http or https address"),
]


@requirement("hook.signed")
@pytest.mark.parametrize(("described", "says"), BAD)
async def test_a_webhook_that_could_not_work_is_refused_at_the_start(described, says, tmp_path):
    """Not when the first answer has ended and nobody is told."""
    environ = {"HOOK": SECRET, "BROKEN": "whsec_%%%"}

    with pytest.raises(SettingsError, match=says):
        create_app(Settings(data=str(tmp_path), webhooks=(described(),)), MemoryStore(), environ)


@requirement("hook.told")
async def test_what_was_promised_to_a_listener_that_is_no_longer_set_is_forgotten(tmp_path):
    """It would be kept for good, and told when the address is set again for something else."""
    store = MemoryStore()
    body = {"run_id": "run_x", "listener": "gone"}
    await store.put_document(Document(kind="webhook", id="hook_1", body=body))
    app = create_app(Settings(data=str(tmp_path)), store, NO_HOME)
    async with Served(app) as served, served.client() as client, asyncio.timeout(LONG):
        while await store.get_document("webhook", "hook_1") is not None:
            await (await client.get("/health")).body()

    assert [] == await store.list_documents("webhook")
