"""Triggers: a call with the secret starts one run, and nobody else's does."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from openai import OpenAI

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ISSUE = {"name": "Issues", "prompt": "Sort this: {{issue.title}} by {{issue.by.name}}{{none}}", "model": "up/echo:hi"}


@dataclass
class World:
    """A server with two people."""

    server: Server
    ada: str
    bob: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        async with Server(tmp_path_factory.mktemp("triggers"), [provider(up.base_url, models=None)]) as server:
            root = await first_admin(server, "root")
            ada, bob = [await add_person(server, root, name) for name in ("ada", "bob")]
            yield World(server, ada, bob)


async def add(client: Client, **fields: Any) -> dict[str, Any]:
    response = await client.post("/api/triggers", {**ISSUE, **fields})
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


def stored(world: World, kind: str) -> int:
    """The number of documents of a kind."""
    return sum(kind in row for row in world.server.stored()["documents"])


BODY = {"issue": {"title": "It {{body}} breaks", "by": {"name": "Eve"}}}


@requirement("triggers.prompt", "triggers.once")
async def test_a_call_with_the_secret_starts_one_run_with_what_it_has_sent(world: World):
    """What is filled in is not read as a template again, and a repeated call finds the same run."""
    async with browser(world.server, world.ada) as ada, world.server.client() as sender:
        made = await add(ada)
        calls = [sender.post(made["path"], BODY, headers={"idempotency-key": "one"}) for _ in range(3)]
        answers = [await answer.json() for answer in await asyncio.gather(*calls)]
        [run] = {answer["run_id"] for answer in answers}
        assert "completed" == (await Native(ada).settled(run))["outcome"]
        said = await Native(ada).transcript(answers[0]["session_id"])
        assert [("user", "Sort this: It {{body}} breaks by Eve"), ("assistant", "hi")] == said
        other = await sender.post(made["path"], {"issue": 1}, headers={"idempotency-key": "one"})
        assert (409, "idempotency_conflict") == (other.status, (await other.json())["error"]["code"])
        without = [await (await sender.post(made["path"], BODY)).json() for _ in range(2)]
        assert 3 == len({run, *(answer["run_id"] for answer in without)})
        shown = await Native(ada).get(f"/api/triggers/{made['id']}")
        assert 3 == len(shown["calls"])
        assert made["secret"] not in json.dumps(shown)


@requirement("triggers.secret", "triggers.once")
async def test_a_signed_call_is_checked_as_standard_webhooks_says(world: World):
    """OpenAI's library agrees with the signature. An altered body, an old time and another secret start nothing."""
    async with browser(world.server, world.ada) as ada, world.server.client() as sender:
        made = await add(ada, signed=True, prompt="{{body}}")
        secret, body = made["secret"], json.dumps(BODY).encode()

        def signed(id: str, age: float = 0.0, by: str = secret, sent: bytes = body) -> dict[str, str]:
            at, key = str(int(time.time() - age)), base64.b64decode(by.removeprefix("whsec_"))
            digest = hmac.new(key, f"{id}.{at}.".encode() + sent, hashlib.sha256).digest()
            signature = f"v1,d3Jvbmc= v1,{base64.b64encode(digest).decode()}"
            return {"webhook-id": id, "webhook-timestamp": at, "webhook-signature": signature}

        headers = signed("msg_1")
        OpenAI(api_key="x").webhooks.verify_signature(body, headers, secret=secret)
        answers = [await sender.request("POST", made["path"], body=body, headers=headers) for _ in range(2)]
        assert [202, 202] == [answer.status for answer in answers]
        [run] = {(await answer.json())["run_id"] for answer in answers}
        await Native(ada).settled(run)
        other = "whsec_" + base64.b64encode(b"another" * 4).decode()
        wrong = [
            signed("msg_2", age=400.0),
            signed("msg_3", by=other),
            signed("msg_4", sent=b"{}"),
            {**signed("msg_5"), "webhook-id": "msg_6"},
            {**signed("msg_7"), "webhook-timestamp": "²"},
            {},
        ]
        for each in wrong:
            refused = await sender.request("POST", made["path"], body=body, headers=each)
            assert (404, "trigger_not_found") == (refused.status, (await refused.json())["error"]["code"]), each
        assert 404 == (await sender.post(f"{made['path']}/{made['secret'].partition('_')[2]}", BODY)).status
        assert 1 == len((await Native(ada).get(f"/api/triggers/{made['id']}"))["calls"])


@requirement("triggers.secret")
async def test_a_secret_ends_with_a_new_one_a_pause_and_the_trigger_and_is_in_no_log(world: World):
    """Whoever reads the log of the server, or the export of a person, must not be able to call it."""
    async with browser(world.server, world.ada) as ada, world.server.client() as sender:
        made = await add(ada)
        path = f"/api/triggers/{made['id']}"
        rotated = await (await ada.post(f"{path}/rotate")).json()
        assert 404 == (await sender.post(made["path"], BODY)).status
        assert 404 == (await sender.post(rotated["path"][:-1], BODY)).status
        assert 202 == (await sender.post(rotated["path"], BODY)).status
        paused = await ada.request("PUT", path, json={**ISSUE, "paused": True})
        assert 200 == paused.status
        refused = await sender.post(rotated["path"], BODY)
        assert (409, "trigger_paused") == (refused.status, (await refused.json())["error"]["code"])
        async with browser(world.server, world.bob) as bob:
            for method, at in (("GET", path), ("DELETE", path), ("POST", f"{path}/rotate")):
                assert 404 == (await bob.request(method, at)).status
            assert 404 == (await bob.request("PUT", path, json=ISSUE)).status
        exported = await (await ada.get("/api/account/export")).body()
        assert 204 == (await ada.request("DELETE", path)).status
        assert 404 == (await sender.post(rotated["path"], BODY)).status
        assert [] == [each for each in (made, rotated) if each["secret"] in world.server.log_text()]
        assert rotated["secret"].encode() not in exported
        stored = repr(world.server.stored())
        assert [] == [each for each in (made, rotated) if each["secret"] in stored]


@requirement("triggers.prompt")
async def test_a_call_that_is_too_large_too_frequent_or_no_text_starts_nothing(world: World):
    """A secret that leaks must not fill the disk."""
    async with browser(world.server, world.ada) as ada, world.server.client() as sender:
        made = await add(ada, prompt="{{body}}")
        large = await sender.request("POST", made["path"], body=b"x" * 100_001)
        assert (413, "body_too_large") == (large.status, (await large.json())["error"]["code"])
        assert 400 == (await sender.request("POST", made["path"], body=b"\xff\xfe")).status
        assert 400 == (await sender.request("POST", made["path"], body=b"  ")).status
        async with asyncio.timeout(LONG):
            while 202 == (status := (await sender.request("POST", made["path"], body=b"hi")).status):
                pass  # 30 a minute: the longer they take, the more there are
        assert 429 == status


@requirement("triggers.prompt")
async def test_a_call_that_is_refused_stores_nothing_and_one_that_is_too_long_is_not_received(world: World):
    """Whoever calls it too often, or with no end, fills neither the disk nor the memory."""
    async with browser(world.server, world.ada) as ada, world.server.client() as sender:
        made, before = await add(ada, prompt="{{body}}"), stored(world, "trigger_key")

        async def call(number: int) -> int:
            headers = {"idempotency-key": f"call {number}"}
            return (await sender.request("POST", made["path"], body=b"hi", headers=headers)).status

        statuses = [await call(number) for number in range(9)]
        async with asyncio.timeout(LONG):
            while 429 not in statuses[:-9]:
                statuses.append(await call(len(statuses)))
        assert statuses.count(202) == stored(world, "trigger_key") - before
        reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port)
        head = f"POST {made['path']} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"%x\r\n" % 200_000 + b"x" * 200_000 + b"\r\n")  # and it goes on
        assert b"413" in await asyncio.wait_for(reader.readline(), LONG)
        writer.close()


@requirement("triggers.secret")
async def test_an_owner_has_so_many_triggers_at_most(world: World):
    """Each has an address that anyone may try."""
    async with browser(world.server, world.bob) as bob:
        statuses = [(await bob.post("/api/triggers", ISSUE)).status for _ in range(100)]
        before = stored(world, "trigger_secret")
        one_more = await bob.post("/api/triggers", ISSUE)
        assert before == stored(world, "trigger_secret")
        assert (409, "too_many_kept") == (one_more.status, (await one_more.json())["error"]["code"])
        kept = (await Native(bob).get("/api/triggers"))["triggers"]
        assert ({201}, 100) == ({*statuses}, len(kept))
        assert 204 == (await bob.request("DELETE", f"/api/triggers/{kept[0]['id']}")).status
        assert 201 == (await bob.post("/api/triggers", ISSUE)).status
