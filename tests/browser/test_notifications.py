"""The page as an app: notifications without an open page, a page without a server, a chat that goes on on a phone."""

import asyncio
import json
import re
import struct
from functools import partial

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings
from tests.browser.tab import becomes
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.push import PushService
from tests.support.served import Served
from tests.support.server import Server, provider
from tests.support.upstream import answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")

READY = "() => navigator.serviceWorker.ready.then(({active}) => active.state)"
HEARS = """async (messages) => {
    const shown = [], seen = new Map();
    self.registration.getNotifications = async ({tag}) => seen.has(tag) ? [seen.get(tag)] : [];
    self.registration.showNotification = async (title, {body, tag, lang, renotify, data}) => {
        seen.set(tag, {tag, data});
        shown.push([title, body, tag, lang, renotify]);
    };
    for (const message of messages) {
        const event = new PushEvent("push", {data: JSON.stringify(message)});
        const told = new Promise((end) => { event.waitUntil = end; });
        self.dispatchEvent(event);
        await told;
    }
    return shown;
}"""
"""What the service worker shows of messages: a headless browser has no notifications, and says that they are denied."""
KEPT = """async () => {
    const caches_ = await Promise.all((await caches.keys()).map((name) => caches.open(name)));
    const kept = await Promise.all(caches_.map((cache) => cache.keys()));
    return kept.flat().map(({url}) => new URL(url).pathname).sort();
}"""
SUBSCRIBES = """(given) => {
    Object.defineProperty(Notification, "permission", {get: () => "granted"});
    PushManager.prototype.subscribe = async (options) => {
        window.subscribed = options;
        return {toJSON: () => given, unsubscribe: async () => true};
    };
    PushManager.prototype.getSubscription = async () => null;
}"""
"""A browser with a push service: Chromium's own is on the internet."""


@requirement("ui.notifications")
async def test_a_message_of_the_push_service_is_shown_in_the_words_of_its_language(new_tab):
    """No page has to be open. A later message of a chat takes the place of the one before, and is heard."""
    tab = await new_tab(service_workers="allow")
    await tab.finds("activated", READY)
    (worker,) = tab.page.context.service_workers
    shown = await worker.evaluate(
        HEARS,
        [
            {"id": "1", "type": "run.completed", "session": "ses_1", "language": "de"},
            {"id": "1", "type": "run.completed", "session": "ses_1", "language": "de"},
            {
                "id": "2",
                "type": "run.waiting",
                "session": "ses_1",
                "language": "en",
                "title": "Tides",
                "text": "May I?",
            },
            {"id": "3", "type": "of a newer server", "session": "ses_2", "language": "fr"},
        ],
    )

    assert [
        ["Die Antwort ist fertig", "Holdfast", "ses_1", "de", True],
        ["Die Antwort ist fertig", "Holdfast", "ses_1", "de", False],
        ["Tides", "Your decision is needed\nMay I?", "ses_1", "en", True],
        ["Holdfast", "Holdfast", "ses_2", "fr", True],
    ] == shown


@requirement("ui.notifications", "push.once")
@pytest.mark.usefixtures("needs_axe")
async def test_a_browser_subscribes_in_the_settings_and_hears_of_a_run_elsewhere(new_tab, up, tmp_path):
    """What is told of is chosen there too, and of one chat in its menu."""
    push = PushService()
    async with (
        Served(push.app) as service,
        Server(tmp_path, [provider(up.base_url)], config="notify_private = true") as own,
    ):
        tab = await new_tab(None, url=own.url, service_workers="allow")
        given = push.subscription(service.url, "chromium")
        await tab.page.add_init_script(f"({SUBSCRIBES})({json.dumps(given)})")
        await tab.open("/settings")
        await tab.finds("activated", READY)
        await tab.page.get_by_label("Notify me in this browser").check()
        await expect(tab.page.get_by_label("Responses that are ready, failures and questions")).to_be_checked()
        async with own.client() as client:
            api = Native(client)
            await tab.finds("push", "localStorage.getItem('holdfast.notifies')")
            told = await (await client.request("PUT", "/api/notifications", json={})).json()
            up.enqueue(answer("Ready."))
            session = await api.new_session(title="Tides")
            await api.settled(await api.start(session, "Go", "up/m"))
            pushed = await push.next()
            await tab.page.get_by_label("Failures and questions only").check()
            await tab.page.get_by_label("Show the title of the chat").check()
            await expect(tab.page.get_by_label("Show the title of the chat")).to_be_checked()
            await tab.page.get_by_text("Webhooks").click()
            await tab.page.get_by_label("Address").fill(f"{service.url}/hook")
            await tab.button("Add webhook").click()
            await expect(tab.page.get_by_label("Secret")).to_have_value(re.compile("whsec_.{40}"))
            await tab.page.keyboard.press("Escape")
            violations = await findings(tab)
            await tab.button(f"Remove {service.url}/hook").click()
            await expect(tab.button(f"Remove {service.url}/hook")).to_have_count(0)
            await tab.open(f"/s/{session}")
            await tab.button("Chat actions").click()
            await tab.page.get_by_role("menuitem", name="Notifications").click()
            await expect(tab.page.get_by_label("As in the settings")).to_be_checked()
            await tab.page.get_by_label("Nothing").check()
            async with asyncio.timeout(LONG):
                while (await api.get(f"/api/sessions/{session}/seen"))["notify"] != "none":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await becomes(("needs_you", True), partial(told_of, api))
            await tab.open("/settings")
            await tab.page.get_by_label("Notify me in this browser").uncheck()
            await expect(tab.page.get_by_label("Notify me in this browser")).not_to_be_checked()
            async with asyncio.timeout(LONG):
                while (await api.get("/api/notifications"))["devices"]:  # noqa: ASYNC110 - the page tells it
                    await asyncio.sleep(0.02)

    assert {"type": "run.completed", "session": session, "language": "en"}.items() <= pushed.message.items()
    assert told["key"] == pushed.claims["key"]
    assert [] == violations


async def told_of(api: Native) -> tuple[str, bool]:
    chosen = await api.get("/api/notifications")
    return chosen["notify"], chosen["shows_text"]


@requirement("ui.app")
async def test_without_a_server_the_page_says_so_and_nothing_of_it_is_kept(new_tab, up, tmp_path):
    """Neither a chat, which is private, nor a script, which the next version of the server would not know."""
    async with Server(tmp_path, [provider(up.base_url)]) as own:
        tab = await new_tab(url=own.url, service_workers="allow")
        await tab.finds("activated", READY)
        up.enqueue(answer("Private."))
        await tab.say("Hello")
        await tab.sees_ending("completed", "Private.")
        await own.kill9()
        await tab.page.goto("/settings")
        await expect(tab.page.get_by_role("heading")).to_have_text("Holdfast cannot be reached")
        await tab.page.locator("img").evaluate("(icon) => icon.decode()")
        kept = await tab.measure(KEPT)
        await own.restart()
        await tab.open("/settings")
        await expect(tab.page.get_by_role("heading", name="Settings")).to_be_visible()

    assert ["/icon.svg", "/offline.css", "/offline.html"] == kept


@requirement("ui.app")
async def test_the_manifest_names_icons_that_are_as_large_as_it_says(tab):
    """A phone draws none that is not. iOS reads the one in the page itself."""
    manifest = await tab.measure("() => fetch('/manifest.webmanifest').then((found) => found.json())")
    sizes = {}
    for icon in [*manifest["icons"], {"src": "/apple-touch-icon.png", "sizes": "180x180", "type": "image/png"}]:
        found = await tab.page.request.get(icon["src"])
        body = await found.body()
        assert icon["type"] == found.headers["content-type"]
        if body[:4] == b"\x89PNG":
            sizes[icon["src"]] = ("{}x{}".format(*struct.unpack(">II", body[16:24])), icon["sizes"])

    assert 4 == len(sizes)
    assert {drawn for drawn, _ in sizes.values()} == {said for _, said in sizes.values()}


@requirement("ui.phone")
async def test_a_chat_is_opened_on_the_phone_at_the_message_that_was_read(tab, new_tab, api, up):
    """The link is a plain one: it opens what the phone may see anyway."""
    session = await api.new_session()
    for number in range(6):
        up.enqueue(answer(f"Answer {number}. " + "Long lines of text. " * 200))
        await api.settled(await api.start(session, f"Question {number}", "up/m"))
    middle = (await api.session(session))["messages"][5]["id"]
    await tab.open(f"/s/{session}")
    await tab.page.locator(f"[data-message={middle}]").evaluate("(message) => message.scrollIntoView({block: 'start'})")
    await tab.button("Chat actions").click()
    await tab.page.get_by_role("menuitem", name="Open on phone").click()
    link = tab.page.locator(".phone-link")
    await expect(tab.page.get_by_role("img", name="QR code")).to_be_visible()
    href = await link.get_attribute("href")
    phone = await new_tab(viewport={"width": 390, "height": 800})
    await phone.open(href.removeprefix(phone.page.url.rstrip("/")))

    assert href.endswith(f"/s/{session}#{middle}")
    await expect(phone.page.locator(f"[data-message={middle}]")).to_be_in_viewport()
