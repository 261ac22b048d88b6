"""The status of the servers as an administrator sees it."""

import re

import pytest
from playwright.async_api import expect

from holdfast.server.features.accounts.keys import SHORTEST
from tests.browser.axe import sideways
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Status, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLAIN = "p" * SHORTEST
KEYS = """
[[keys]]
name = "guest"
key_env = "GUEST"
"""


def figure(tab, node, name):
    """A figure of a server, by its name."""
    card = tab.page.locator(f"[data-node='{node}'] .figures" if node else ".totals")
    return card.locator("div", has_text=name).locator("dd")


@requirement("ops.status")
async def test_an_administrator_sees_runs_times_and_errors_as_they_come(new_tab, up, tmp_path):
    """Without a terminal, without Prometheus, and without a reload."""
    async with Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        tab = await new_tab(f"{server.url}/settings")
        await tab.page.get_by_role("link", name="Server status").click()
        await expect(figure(tab, 1, "Runs now")).to_have_text("0")
        hi = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}
        up.enqueue(answer("Hello."), [Status(401)], [Headers(), Role(), Delta("going "), Hang()])
        assert [200, 502] == [(await client.post("/v1/chat/completions", hi)).status for _ in range(2)]
        stream = await client.post("/v1/chat/completions", hi | {"stream": True, "user": "another request"})
        await expect(figure(tab, 1, "Runs now")).to_have_text("1")
        await expect(figure(tab, None, "Runs finished")).to_have_text("2")
        await expect(figure(tab, 1, "Runs failed")).to_have_text("1")
        await expect(figure(tab, 1, "First token")).to_contain_text(re.compile(r"\d m?s"))
        await expect(tab.page.locator(".errors")).to_contain_text("upstream_auth")
        await expect(tab.page.locator("[data-node='1']")).to_contain_text("serving this page")
        stream.close()


@requirement("ops.status", "ui.browser-access")
@pytest.mark.parametrize(("locale", "title"), [("de-DE", "Serverstatus"), ("ar", "حالة الخادم")])
async def test_on_a_phone_and_in_every_language_nothing_hangs_over_the_edge(new_tab, locale, title):
    """The labels are longer in some languages, and run the other way in others."""
    tab = await new_tab("/status", locale=locale, viewport={"width": 390, "height": 844})
    await expect(tab.page.get_by_role("heading", level=1)).to_have_text(title)
    await expect(tab.page.locator("[data-node]")).to_have_count(1)

    assert 0 == await sideways(tab)


@requirement("ops.status", "ui.browser-access")
async def test_updates_are_paused_by_the_keyboard(new_tab):
    """What changes by itself can be held, for who reads slowly."""
    tab = await new_tab("/status")
    pause = tab.button("Pause updates")
    await pause.focus()
    await tab.page.keyboard.press("Enter")
    await expect(pause).to_have_attribute("aria-pressed", "true")
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    await tab.page.wait_for_timeout(2500)  # longer than the pause between two requests

    assert [] == [url for url in asked if url.endswith("/api/nodes")]


@requirement("ops.status")
async def test_others_see_why_they_see_nothing(new_tab, up, tmp_path):
    """The figures of a server are for those who run it."""
    async with Server(tmp_path, [provider(up.base_url)], config=KEYS, env={"GUEST": PLAIN}) as server:
        tab = await new_tab(None, url=server.url)
        await tab.page.add_init_script(f"sessionStorage.setItem('holdfast.key', '{PLAIN}')")
        await tab.open("/status")
        await expect(tab.page.get_by_role("heading", name="This page could not be loaded.")).to_be_visible()
        tab.problems.clear()  # the console names the refused request

        await expect(tab.page.locator("[data-node]")).to_have_count(0)
