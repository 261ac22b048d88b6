"""Two people behind one proxy that keeps its connections: nobody gets the other's words, whatever one of them sends."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.requirements import requirement
from tests.support.http import Client, Incomplete
from tests.support.programs import CHROMIUM
from tests.support.proxies import Tap, caddy, nginx
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "chat.example.com"
KEYS = {"mallory": "key-of-mallory-31337", "alice": "key-of-alice-86420"}
TWO_OWNERS = "\n".join(f'[[keys]]\nname = "{name}"\nkey_env = "{name.upper()}"' for name in KEYS)


@dataclass
class Shared:
    """A server behind a proxy."""

    server: Server
    url: str
    tap: Tap

    def client(self, owner: str, *, direct: bool = False) -> Client:
        headers = {"host": NAME, "authorization": f"Bearer {KEYS[owner]}"}
        return Client(self.server.url if direct else self.url, headers)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[nginx, caddy], ids=["nginx", "Caddy"])
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    env = {name.upper(): key for name, key in KEYS.items()}
    config = f'allowed_hosts = ["{NAME}"]\n{TWO_OWNERS}'
    async with Upstream() as up, Server(folder, [provider(up.base_url, models=None)], config=config, env=env) as server:
        async with Tap(server.port).listening() as tap, request.param(folder, tap.port) as url:
            yield Shared(server, url, tap)


def hidden(end: str) -> bytes:
    """A request of Mallory's that wants what comes next: for her session, with her key."""
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: {NAME}",
        f"Authorization: Bearer {KEYS['mallory']}",
        "X-Session-Id: loot",
        end,
    ]
    return "\r\n".join(lines).encode()


OPEN = hidden("X-Rest: ")
WHOLE = hidden("Content-Length: 2\r\n\r\n{}")
SHRINKING = b"\r\nupgrade:" + 200 * b" " + b"h2c\r\n\r\n"
"""What a server would cut out of a body that looked for offers in all that it reads."""

ATTACKS: dict[str, tuple[list[str], bytes]] = {
    "a body that looks like a head": ([], SHRINKING + OPEN),
    "a body that looks like an offer": ([], 20 * SHRINKING),
    **{
        f"{offer} and {name}": ([f"Upgrade: {offer}", "Connection: Upgrade"], body)
        for offer in ("foo", "h2c", "websocket", "TLS/1.0", "h2c, foo")
        for name, body in (("an open request", OPEN), ("a whole request", WHOLE))
    },
    "an offer without a connection header": (["Upgrade: foo"], OPEN),
    "a question before the body": (["Expect: 100-continue"], WHOLE),
}


async def attack(shared: Shared, name: str, framing: str) -> None:
    """Send one of the requests through the proxy, the body after the head, and take whatever the answer is."""
    more, body = ATTACKS[name]
    lines = [
        "POST /api/sessions HTTP/1.1",
        f"Host: {NAME}",
        f"Authorization: Bearer {KEYS['mallory']}",
        f"X-Marker: {marker(name, framing)}",
        *more,
    ]
    length = f"Content-Length: {len(body)}" if framing == "length" else "Transfer-Encoding: chunked"
    sent = body if framing == "length" else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with shared.client("mallory") as client:
        response = await client.send_raw("\r\n".join([*lines, length, "", ""]).encode(), method="POST", timeout=5)
        await arrived(shared, marker(name, framing))
        try:
            await response.write(sent)
            await (await response.head()).body()
        except (Incomplete, ConnectionError, TimeoutError):
            pass  # the attack may fail in any way; what counts is what Alice is answered


async def arrived(shared: Shared, text: str) -> None:
    """Wait until the proxy has passed the head on, so that the body is read by itself. nginx may wait for the body."""
    for _ in range(10):
        if any(text.encode() in sent for sent in shared.tap.connections):
            return
        await asyncio.sleep(0.01)


def marker(name: str, framing: str) -> str:
    return f"{name.replace(' ', '-').replace(',', '').replace('/', '-')}-{framing}"


async def ask(shared: Shared, secret: str) -> Any:
    """What Alice is answered, and what she has in her diary then."""
    body = {"model": "up/echo:only for Alice", "messages": [{"role": "user", "content": secret}]}
    async with shared.client("alice") as alice:
        response = await alice.post("/v1/chat/completions", body, headers={"x-session-id": "diary"})
        told = await response.json()
    return response.status, told["choices"][0]["message"]["content"]


async def sessions(shared: Shared, owner: str) -> str:
    """All that an owner has, as text."""
    async with shared.client(owner, direct=True) as client:
        listed = (await (await client.get("/api/sessions")).json())["sessions"]
        return json.dumps([await (await client.get(f"/api/sessions/{each['id']}")).json() for each in listed])


@requirement("safe.one-request")
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_nothing_that_one_user_sends_reaches_into_the_request_of_another(shared, framing):
    """Alice asks after each attack, on the same connection. She is answered as ever; Mallory gets nothing of hers."""
    answers, together = [], 0
    for name in ATTACKS:
        secret = f"SECRET of Alice after {marker(name, framing)}"
        await attack(shared, name, framing)
        answers.append((name, *await ask(shared, secret)))
        together += any(
            f"X-Marker: {marker(name, framing)}".encode().lower() in bytes(sent).lower() and secret.encode() in sent
            for sent in shared.tap.connections
        )

    assert [(name, 200, "only for Alice") for name in ATTACKS] == answers
    assert "SECRET" not in await sessions(shared, "mallory")
    diary = await sessions(shared, "alice")
    assert [] == [name for name in ATTACKS if f"after {marker(name, framing)}" not in diary]
    assert together > len(ATTACKS) / 2, "the proxy did not keep its connections: nothing was tried"


@pytest_asyncio.fixture(loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        path = CHROMIUM.find_or_skip(Path(playwright.chromium.executable_path))
        rules = f"MAP {NAME} 127.0.0.1"
        browser = await playwright.chromium.launch(executable_path=path, args=[f"--host-resolver-rules={rules}"])
        yield browser
        await browser.close()


@requirement("safe.origin")
async def test_the_page_works_behind_a_proxy_on_any_port(shared, browser):
    """The guides are copied. On a port other than 443 the page stayed blank: its scripts were refused."""
    page = await browser.new_page(base_url=shared.url.replace("127.0.0.1", NAME), locale="en-US")
    page.set_default_timeout(LONG * 1000)
    failed: list[str] = []
    page.on("response", lambda response: failed.append(response.url) if response.status == 403 else None)
    await page.goto("/")
    await page.locator("input[type=password]").fill(KEYS["alice"])
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog")).to_have_count(0, timeout=LONG * 1000)
    await page.locator("textarea").first.fill("Hello through the proxy")
    await page.keyboard.press("Enter")

    await expect(page.locator("main")).to_contain_text("Hello through the proxy", timeout=LONG * 1000)
    await expect(page).to_have_url(re.compile(r"/s/ses_\w+$"), timeout=LONG * 1000)
    assert [] == failed
