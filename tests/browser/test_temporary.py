"""Temporary chats, by hand: only this tab has them, and nothing of them is left anywhere."""

import pytest
from playwright.async_api import Dialog, expect

from tests.browser.axe import findings, sideways
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server
from tests.support.upstream import Delta, Gate, Hang, Headers, Role, Status, Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORD = "quokkafruit"
"""No other text has it, and the search index keeps it as one term."""
NOTE = "Temporary chats aren't saved"
PHONE = {"width": 360, "height": 740}

STORAGE = """async () => JSON.stringify([
    {...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state,
    await indexedDB.databases(), await caches.keys(),
])"""


async def begin(tab: Tab) -> None:
    await tab.press("Temporary chat")
    await expect(tab.page.get_by_role("heading", name="Temporary chat").first).to_be_visible()
    await expect(tab.box).to_be_focused()


@requirement("ui.browser-temporary", "people.nothing-stored")
async def test_no_word_of_a_temporary_chat_is_left_anywhere(
    tab: Tab, new_tab: NewTab, up: Upstream, server: Server, api: Native
):
    """Not in a table or file of the server, in its log, in its search, in another tab, or in the browser's storage."""
    beside = await new_tab(beside=tab)
    up.enqueue(answer(f"{WORD} one"), answer(f"{WORD} two"), [Headers(), Role(), Delta(f"{WORD} three"), Hang()])
    await tab.box.fill(f"{WORD} typed before")
    await begin(tab)
    await expect(tab.box).to_have_value(f"{WORD} typed before")
    await tab.say(f"{WORD} first")
    await tab.sees_ending("completed", f"{WORD} one")
    await expect(tab.page.get_by_text(NOTE)).to_be_visible()
    await tab.press("Regenerate")
    await tab.sees_ending("completed", f"{WORD} two")
    await tab.say(f"{WORD} second")
    await tab.reads(f"{WORD} three")
    await tab.press("Stop")
    await tab.sees_ending("stopped", f"{WORD} three")
    await tab.box.fill(f"{WORD} draft")
    kept = await api.new_session(title="A chat that is kept")
    await expect(beside.page.locator(".session", has_text="A chat that is kept")).to_be_visible()

    assert [f"{WORD} first", f"{WORD} two", f"{WORD} second"] == [
        message["content"] for message in up.requests[-1].body["messages"]
    ]
    kept_here = await tab.measure(STORAGE)
    assert WORD not in kept_here
    assert WORD not in await beside.page.content()
    stored = {name: [repr(row) for row in rows] for name, rows in server.stored().items()}
    assert any(kept in row for rows in stored.values() for row in rows)
    assert [] == [name for name, rows in stored.items() for row in rows if WORD in row]
    files = {file.name: file.read_bytes() for file in server.data.rglob("*") if file.is_file()}
    assert [] == [name for name, data in files.items() if WORD.encode() in data]
    assert [] == (await api.get(f"/api/sessions?query={WORD}"))["sessions"]
    assert WORD not in server.log_text()


@requirement("ui.browser-temporary")
async def test_a_temporary_chat_is_lost_only_after_a_question(tab: Tab, up: Upstream):
    """By a link, by the browser's back and by a reload; without any text there is nothing to ask."""
    await begin(tab)
    await tab.press("Temporary chat")
    await expect(tab.page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    await tab.page.keyboard.press("Control+Shift+E")
    up.enqueue(answer("Only here."))
    await tab.say("Hello")
    await tab.sees_ending("completed", "Only here.")
    dialog = tab.page.get_by_role("dialog", name="Leave this temporary chat?")
    for leave in (
        tab.page.get_by_role("link", name="Settings").click(),
        tab.page.evaluate("history.back()"),
        tab.page.keyboard.press("Control+Shift+O"),
    ):
        await leave
        await expect(dialog).to_be_visible()
        await tab.page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await tab.transcript_is(["Hello", "Only here."])
    asked: list[str] = []

    async def accept(question: Dialog) -> None:
        asked.append(question.type)
        await question.accept()

    tab.page.on("dialog", accept)
    await tab.page.reload()
    await expect(tab.page.get_by_text(NOTE)).to_be_visible()
    assert ["beforeunload"] == asked
    await tab.transcript_is([])
    up.enqueue(answer("Again."))
    await tab.say("Hello again")
    await tab.sees_ending("completed", "Again.")
    await tab.press("New chat")
    await dialog.get_by_role("button", name="Leave").click()

    await expect(tab.page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    await expect(tab.box).to_have_value("")
    await tab.page.go_back()
    await expect(tab.page.get_by_text(NOTE)).to_be_visible()
    await tab.transcript_is([])


@requirement("ui.browser-temporary")
async def test_the_question_comes_again_right_after_it_was_denied(tab: Tab, up: Upstream):
    """Who presses Esc and then goes back, all before the browser has drawn a frame, is asked again."""
    await begin(tab)
    up.enqueue(answer("Only here."))
    await tab.say("Hello")
    await tab.sees_ending("completed", "Only here.")
    await tab.page.get_by_role("link", name="Settings").click()
    await expect(tab.page.get_by_role("dialog", name="Leave this temporary chat?")).to_be_visible()
    await tab.measure("""async () => {
        document.querySelector("dialog[open]").requestClose();
        await null;
        document.querySelector("a.brand").click();
    }""")

    await expect(tab.page.get_by_role("dialog", name="Leave this temporary chat?")).to_be_visible()
    await tab.transcript_is(["Hello", "Only here."])


@requirement("ui.browser-temporary")
async def test_turns_of_a_temporary_chat_are_as_in_any_other(tab: Tab, up: Upstream):
    """Queue, interrupt, edit, versions, a failure with a retry. What needs a stored chat is not offered."""
    await begin(tab)
    up.enqueue([Hang()])
    asked = len(up.requests)
    await tab.say("silence")
    await up.until(lambda: len(up.requests) > asked, LONG)
    await tab.press("Stop")
    await expect(tab.last_answer).to_have_attribute("data-outcome", "stopped")
    await up.requests[asked].wait_closed()
    await tab.press("Edit message")
    field = tab.page.get_by_role("article", name="Editing message").get_by_role("textbox")
    half = [Headers(), Role(), Delta("One"), Gate("temporary"), *answer(".")[1:]]
    up.enqueue(half, answer("Two."), [Headers(), Role(), Delta("Thr"), Hang()], answer("Four."), answer("Changed."))
    await field.fill("first")
    await field.press("Enter")
    await tab.reads("One")
    await tab.say("second")
    await expect(tab.queued).to_have_text(["second"])
    up.open("temporary")
    await tab.sees_ending("completed", "Two.")
    await tab.say("third")
    await tab.reads("Thr")
    await tab.say("fourth", "Control+Enter")
    await tab.sees_ending("completed", "Four.")
    await tab.transcript_is(["first", "One.", "second", "Two.", "third", "Thr", "fourth", "Four."])
    await tab.page.get_by_role("button", name="Edit message").nth(1).click()
    await field.fill("second, changed")
    await field.press("Enter")
    await tab.sees_ending("completed", "Changed.")
    await tab.page.get_by_role("button", name="Previous version").last.click()
    await tab.transcript_is(["first", "One.", "second", "Two.", "third", "Thr", "fourth", "Four."])
    up.enqueue([Status(400, {"error": {"message": "No such thing."}})], answer("Now it works."))
    await tab.say("fifth")
    await expect(tab.last_answer).to_contain_text("No such thing.")
    await tab.press("Retry")

    await tab.sees_ending("completed", "Now it works.")
    for name in ("Share", "Chat actions", "Fork chat from here", "Continue"):
        await expect(tab.button(name)).to_have_count(0)
    await expect(tab.page.get_by_role("link", name="Run details")).to_have_count(0)
    await tab.press("Chat settings")
    await expect(tab.page.get_by_role("dialog", name="Chat settings")).to_be_visible()


@requirement("ui.browser-temporary", "ui.browser-access", "ui.browser-language")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(("locale", "scheme"), [("de", "dark"), ("ar", "light")])
async def test_a_temporary_chat_is_for_everyone(new_tab: NewTab, up: Upstream, locale: str, scheme: str):
    """Axe finds nothing, before the first message and after it and with the question open; a phone has room for it."""
    options = {"viewport": PHONE, "color_scheme": scheme, "locale": locale, "reduced_motion": "reduce"}
    tab = await new_tab("/temporary", **options)
    await expect(tab.box).to_be_visible()
    found = [await findings(tab), await sideways(tab)]
    up.enqueue(answer("Ja."))
    await tab.box.fill("?")
    await tab.page.locator(".round.primary").click()
    await tab.sees_ending("completed", "Ja.")
    found += [await findings(tab), await sideways(tab)]
    await tab.page.locator(".temporary-switch").click()
    await expect(tab.page.get_by_role("dialog")).to_be_visible()
    found += [await findings(tab), await sideways(tab)]

    assert [[], 0] * 3 == found
