"""Sharing as people do it: a link in another browser, and a chat that two people write in."""

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.axe import findings, sideways
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


BOTH_SEEN = pytest.mark.long("each size and each scheme is in another pair")


@requirement("share.page")
async def test_a_link_is_made_copied_read_live_and_revoked(new_tab, up, api):
    """From the button in the chat to the answer that grows in a stranger's browser, and back to nothing."""
    up.enqueue([Headers(), Role(), Delta("one "), Gate("page"), Delta("two"), Finish("stop"), Done()])
    session = await api.new_session(model="up/m")
    owner = await new_tab(f"/s/{session}")
    await owner.say("Tell me")
    await owner.reads("one ")
    await owner.press("Share")
    dialog = owner.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("This chat is not shared.")
    await dialog.get_by_role("button", name="Create link").click()
    link = dialog.get_by_label("Link", exact=True)
    address = re.escape(owner.page.url.partition("/s/")[0])
    await expect(link).to_have_value(re.compile(rf"^{address}/shared/[\w-]{{43}}$"))
    await dialog.get_by_role("button", name="Copy link").click()

    reader = await new_tab(await link.input_value())
    await expect(reader.page.locator(".user .said")).to_have_text("Tell me")
    await expect(reader.live.locator(".markdown")).to_have_text("one ", use_inner_text=True)
    await expect(reader.page.locator("#composer")).to_have_count(0)
    await expect(reader.page.locator(".live-sign")).to_have_text("Response in progress")
    await expect(reader.live.locator("footer")).to_have_text("up/m")
    await expect(reader.page.locator("main > header")).to_contain_text("Holdfast · 127.0.0.1:")
    up.gates.open("page")
    await expect(reader.last_answer).to_have_attribute("data-outcome", "completed")
    await expect(reader.page.locator(".live-sign")).to_have_count(0)
    await expect(reader.last_answer.locator(".markdown")).to_have_text("one two", use_inner_text=True)

    await dialog.get_by_role("button", name="Revoke: By link").click()
    await expect(dialog).to_contain_text("This chat is not shared.")
    await reader.page.reload()
    await expect(reader.page.get_by_role("heading")).to_have_text("This link is not available")
    reader.problems.clear()  # the browser's own line about the 404


@requirement("share.page")
async def test_a_link_that_was_lost_is_replaced_by_one_that_shows_the_same(new_tab, up, api):
    """The server stores no link, and cannot show it again. Messages of since then are not shown by the new one."""
    up.enqueue(answer("First."), answer("Second."))
    session = await api.new_session(model="up/m")
    await api.settled(await api.start(session, "One", "up/m"))
    lost = await (await api.client.post(f"/api/sessions/{session}/shares", {"include": ["system"]})).json()
    await api.settled(await api.start(session, "Two", "up/m"))
    owner = await new_tab(f"/s/{session}")
    await owner.press("Share")
    await owner.press("New link in place of: By link")
    link = owner.page.get_by_role("dialog").get_by_label("Link", exact=True)
    reader = await new_tab(await link.input_value())

    await reader.transcript_is(["One", "First."])
    await expect(owner.page.locator("[data-share]")).to_have_count(1)
    (kept,) = (await api.get(f"/api/sessions/{session}/shares"))["shares"]
    assert (lost["message_id"], lost["include"]) == (kept["message_id"], kept["include"])
    assert abs(datetime.fromisoformat(lost["expires_at"]) - datetime.fromisoformat(kept["expires_at"])) < timedelta(
        minutes=1
    )
    assert 404 == (await api.client.get(f"/api/shared/{lost['token']}")).status


@requirement("share.page")
async def test_a_following_link_ends_before_the_readers_eyes(new_tab, up, api):
    """New messages appear without a reload, and the end of the link is told."""
    up.enqueue(answer("first"), answer("second"))
    session = await api.new_session(model="up/m")
    await api.settled(await api.start(session, "One?", "up/m"))
    made = await (await api.client.post(f"/api/sessions/{session}/shares", {"follow": True})).json()
    reader = await new_tab(f"/shared/{made['token']}")
    await expect(reader.last_answer.locator(".markdown")).to_have_text("first", use_inner_text=True)
    await api.settled(await api.start(session, "Two?", "up/m"))
    await expect(reader.answers).to_have_count(2)
    await expect(reader.last_answer.locator(".markdown")).to_have_text("second", use_inner_text=True)

    await api.client.request("DELETE", f"/api/shares/{made['id']}")
    await expect(reader.page.get_by_role("heading")).to_have_text("This link is not available")
    reader.problems.clear()  # the browser's own lines about the stream that was cut off, and the 404


@requirement("share.page")
async def test_shared_chats_are_listed_in_the_settings(new_tab, up, api):
    """Months later one finds out what is still open, and closes it."""
    up.enqueue(answer("hi"))
    session = await api.new_session(model="up/m", title="The plan")
    await api.settled(await api.start(session, "Hello", "up/m"))
    await api.client.post(f"/api/sessions/{session}/shares", {"follow": True})
    tab = await new_tab("/settings")
    shared = tab.page.get_by_role("region", name="Shared chats")
    await expect(shared).to_contain_text("The plan")
    await expect(shared).to_contain_text("with future messages")
    await shared.get_by_role("button", name="Revoke: The plan, By link").click()
    await expect(shared.get_by_text("The plan")).to_have_count(0)

    assert session not in [it["session_id"] for it in (await api.get("/api/shares"))["shares"]]


@requirement("share.page")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(DESKTOP, "light", id="desktop-light"),
        pytest.param(PHONE, "dark", id="phone-dark"),
        pytest.param(DESKTOP, "dark", id="desktop-dark", marks=BOTH_SEEN),
        pytest.param(PHONE, "light", id="phone-light", marks=BOTH_SEEN),
    ],
)
async def test_axe_finds_nothing_where_chats_are_shared(new_tab, up, api, scheme, size):
    """The dialog, the page of a link, and the page of one that has ended; nothing hangs over the edge of a phone."""
    up.enqueue(answer("# Hello\n\n- one\n- two"), answer("cut", finish="length"))
    session = await api.new_session(model="up/m", system="Be brief.")
    for text in ("Hello", "More"):
        await api.settled(await api.start(session, text, "up/m"))
    body = {"follow": True, "include": ["system", "tools", "names"]}
    made = await (await api.client.post(f"/api/sessions/{session}/shares", body)).json()
    tab = await new_tab(f"/s/{session}", color_scheme=scheme, viewport=size, reduced_motion="reduce")
    if size == PHONE:
        await tab.press("Chat actions")
        await tab.page.get_by_role("menuitem", name="Share").click()
    else:
        await tab.press("Share")
    await tab.press("Create link")
    await expect(tab.page.get_by_label("Link", exact=True)).to_be_visible()
    found = {"dialog": await findings(tab)}
    reader = await new_tab(f"/shared/{made['token']}", color_scheme=scheme, viewport=size, reduced_motion="reduce")
    await expect(reader.answers).to_have_count(2)
    found["link"] = await findings(reader)
    wide = await sideways(tab), await sideways(reader)
    await reader.open("/shared/wrong")
    await expect(reader.page.get_by_role("heading")).to_be_visible()
    found["ended"] = await findings(reader)
    reader.problems.clear()  # the browser's own line about the 404

    assert {name: [] for name in found} == found
    assert (0, 0) == wide


@requirement("share.page")
@pytest.mark.parametrize(
    ("locale", "button", "heading"),
    [("de-DE", "Teilen", "Geteilter Chat"), ("ar", "مشاركة", "محادثة مشتركة")],
)
async def test_sharing_speaks_the_readers_language(new_tab, up, api, locale, button, heading):
    """The button, the dialog and the page of a link."""
    up.enqueue(answer("hi"))
    session = await api.new_session(model="up/m")
    await api.settled(await api.start(session, [{"type": "text", "text": " "}, {"type": "text", "text": "."}], "up/m"))
    await api.client.request("PATCH", f"/api/sessions/{session}", json={"title": ""})
    made = await (await api.client.post(f"/api/sessions/{session}/shares", {})).json()
    tab = await new_tab(f"/s/{session}", locale=locale)
    await tab.press(button)
    await expect(tab.page.get_by_role("dialog").get_by_role("heading")).to_contain_text(button, ignore_case=True)
    reader = await new_tab(f"/shared/{made['token']}", locale=locale)

    await expect(reader.page.get_by_role("heading", level=1)).to_have_text(heading)


@pytest_asyncio.fixture(loop_scope="session")
async def team(up, tmp_path: Path) -> AsyncIterator[tuple[Server, dict[str, str], str]]:
    """A server with a group of two, and their cookies."""
    async with Server(tmp_path, [provider(up.base_url)]) as server:
        root = await first_admin(server, "root")
        async with browser(server, root) as admin:
            group = (await (await admin.post("/api/admin/groups", {"name": "team"})).json())["id"]
        cookies = {name: await add_person(server, root, name, groups=[group]) for name in ("ada", "bob")}
        yield server, cookies, group


@requirement("share.page", "share.group")
async def test_two_people_write_in_one_chat_and_see_who_said_what(new_tab, up, team):
    """Bob finds Ada's chat in his list, reads along, and writes when he may."""
    server, cookies, group = team
    up.enqueue(answer("hello ada"), answer("hello bob"))
    async with browser(server, cookies["ada"]) as client:
        api = Native(client)
        session = await api.new_session(model="up/m", title="Together")
        await api.settled(await api.start(session, "I am Ada", "up/m"))
        await client.post(f"/api/sessions/{session}/shares", {"group": group})
        bob = await new_tab(None, url=server.url)
        name, _, value = cookies["bob"].partition("=")
        await bob.page.context.add_cookies([{"name": name, "value": value, "url": server.url}])
        await bob.open("/")
        await bob.page.get_by_role("region", name="Shared with me").get_by_role("link").click()
        await expect(bob.page.locator(".author")).to_have_text(["ada"])
        await expect(bob.page.get_by_role("note")).to_contain_text("You can read this chat")
        await expect(bob.box).to_have_count(0)
        await client.post(f"/api/sessions/{session}/shares", {"group": group, "may": "write"})
        await bob.page.reload()
        await bob.say("I am Bob")
        await bob.sees_ending("completed", "hello bob")

        await expect(bob.page.locator(".author")).to_have_text(["ada", "bob"])
        await expect(bob.page.locator(".session", has_text="Together")).to_have_count(1)  # not among his own
        assert "bob" == (await api.session(session))["messages"][2]["author"]
