"""What one does every day, and what must not be in its way."""

import re

import pytest
from playwright.async_api import expect

from tests.browser.cable import Cable
from tests.browser.tab import Tab
from tests.browser.test_composer import bring, png
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, UsageChunk, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 390, "height": 844}
KEY = "a-key-that-nobody-guesses-0123456789"
COVERED = """() => {
    const toast = document.querySelector(".toast").getBoundingClientRect();
    return [...document.querySelectorAll("button, a, input, textarea")].filter((each) => {
        const box = each.getBoundingClientRect();
        const isLeftOrRight = box.right <= toast.left || box.left >= toast.right;
        const isAboveOrBelow = box.bottom <= toast.top || box.top >= toast.bottom;
        return box.width > 1 && !each.closest(".toast, .skip") && !isLeftOrRight && !isAboveOrBelow;
    }).map((each) => each.outerHTML.slice(0, 100));
}"""

PLACES = """() => [...document.querySelectorAll("main button, main textarea, main h1")]
    .filter((each) => !each.closest(".toast"))
    .map((each) => each.getBoundingClientRect().top)"""


@requirement("ui.browser-everyday")
@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE], ids=["desktop", "phone"])
async def test_a_toast_covers_no_button_and_moves_nothing(new_tab, size):
    """One that lies on Send, Stop or Queue, or pushes them away, is in the way for as long as it is shown."""
    tab = await new_tab(None, viewport=size)
    await tab.lingers()
    await tab.open()
    await bring(tab, "paste", png(1))
    await expect(tab.page.locator(".composer .attached img")).to_be_visible()
    before = await tab.measure(PLACES)
    await bring(tab, "paste", b"%PDF-1.7", "application/pdf")
    await expect(tab.page.locator(".toast")).to_be_visible()

    await tab.finds([], COVERED)
    await tab.finds(before, PLACES)


@requirement("ui.browser-everyday")
async def test_a_break_in_a_table_breaks_the_line(tab, up):
    """Models write it in cells all the time; every other tag stays text."""
    up.enqueue(answer("| a | b |\n| - | - |\n| one<br>two<BR/>three | <b>x</b> |\n"))
    await tab.say("A table")
    await tab.sees_ending("completed")

    await expect(tab.last_answer.locator("td").nth(0)).to_have_text("one\ntwo\nthree", use_inner_text=True)
    await expect(tab.last_answer.locator("td").nth(1)).to_have_text("<b>x</b>")


@requirement("ui.browser-everyday")
async def test_a_message_that_waits_for_the_server_stands_last_and_says_so(new_tab, server, up, stack):
    """It will be answered after the response that is running: it does not stand above it."""
    cable = await stack.enter_async_context(Cable(server.port))
    tab = await new_tab(url=cable.url)
    up.enqueue([Headers(), Role(), Delta("Half"), Gate("away"), Finish(), UsageChunk(), Done()])
    await tab.say("first")
    await tab.reads("Half")
    cable.cut()
    await expect(tab.away).to_be_visible()
    await tab.say("second")
    waiting = tab.page.locator(".transcript .message").last

    await expect(waiting).to_contain_text("second")
    await expect(waiting).to_contain_text("Not sent yet")
    for _ in range(3):  # the page asks every two seconds whether the server is back
        await tab.page.wait_for_event("requestfailed", lambda request: request.url.endswith("/health"))
    await expect(waiting).to_contain_text("Not sent yet")
    await expect(tab.box).to_have_value("")
    up.enqueue(answer("Yes."))
    up.open("away")
    await cable.listen()
    await tab.sees_ending("completed", "Yes.")


@requirement("ui.browser-everyday")
async def test_the_first_message_of_a_chat_waits_for_the_server_too(new_tab, server, up, stack):
    """Its chat is made when the server is back."""
    cable = await stack.enter_async_context(Cable(server.port))
    tab = await new_tab(url=cable.url)
    up.enqueue(answer("Yes."))
    cable.cut()
    await expect(tab.away).to_be_visible()
    await tab.say("first")
    await expect(tab.page.get_by_text("Not sent yet")).to_be_visible()
    await tab.page.wait_for_event("requestfailed", lambda request: request.url.endswith("/health"))
    await expect(tab.box).to_have_value("")
    await cable.listen()

    await tab.sees_ending("completed", "Yes.")


@requirement("ui.browser-everyday")
async def test_new_chat_and_the_chats_own_actions_are_in_its_header(new_tab, api, up):
    """On a phone, and with the sidebar closed, the list is not there to do it."""
    up.enqueue(answer("Yes."))
    session = await api.new_session(model="up/m", title="Old name")
    await api.settled(await api.start(session, "Go", "up/m"))
    tab = await new_tab(None, viewport=PHONE, has_touch=True, is_mobile=True)
    await tab.lingers()
    await tab.open(f"/s/{session}")
    await tab.page.get_by_role("button", name="Chat actions", exact=True).click()
    await tab.page.get_by_role("menuitem", name="Rename").click()
    await tab.page.get_by_label("Title", exact=True).fill("New name")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(tab.page.get_by_role("heading", name="New name")).to_be_visible()
    await tab.page.locator(".view-header").get_by_role("button", name="New chat").click()
    await expect(tab.page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    await tab.open(f"/s/{session}")
    await tab.page.get_by_role("button", name="Chat actions", exact=True).click()
    await tab.page.get_by_role("menuitem", name="Delete").click()

    await expect(tab.page.locator(".toast")).to_contain_text("New name")
    await expect(tab.page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    await tab.press("Undo")
    await expect(tab.page.get_by_role("heading", name="New name")).to_be_visible()


@requirement("ui.browser-everyday")
async def test_any_response_is_regenerated_with_another_model(tab, up):
    """Not only one that failed, and without changing the chat's own model first."""
    up.enqueue(answer("First."))
    await tab.say("Go")
    await tab.sees_ending("completed", "First.")
    up.models["other"] = answer("Second.")
    await tab.press("Regenerate with…")
    await tab.page.get_by_role("combobox").fill("up/other")
    await tab.page.get_by_role("combobox").press("Enter")

    await tab.sees_ending("completed", "Second.")
    await expect(tab.last_answer.locator(".figures")).to_contain_text("up/other")
    await expect(tab.page.locator(".model-button .name")).to_have_text("up/m")


@requirement("ui.browser-everyday")
async def test_a_picture_is_there_while_its_message_is_edited(tab, up):
    """It will be sent again with the new words."""
    up.enqueue(answer("Red."))
    await bring(tab, "paste", png(200))
    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await tab.say("Which colour?")
    await tab.sees_ending("completed", "Red.")
    await tab.press("Edit message")

    await expect(tab.page.locator(".is-edited .pictures img")).to_be_visible()


@requirement("ui.browser-everyday")
async def test_a_newcomer_is_told_of_the_demo_model_and_test_models_stand_last(new_tab, tmp_path):
    """Its answers are wrong, and the way to a real model is beside it."""
    async with Server(tmp_path, [{"name": "scripted", "dialect": "scripted"}]) as server:
        tab = await new_tab("/", url=server.url)
        notice = tab.page.locator(".demo-notice")
        await expect(notice).to_contain_text("This is a test model: it writes fixed text.")
        await tab.page.locator(".model-button").click()
        await expect(tab.page.get_by_role("group", name="Test models").get_by_role("option").first).to_be_visible()
        await tab.page.keyboard.press("Escape")
        await notice.get_by_role("link", name="Add a provider").click()

        await expect(tab.page.get_by_role("dialog", name="Add a provider")).to_be_visible()


@requirement("ui.browser-everyday")
async def test_a_key_is_remembered_if_its_owner_wants_and_forgotten_by_signing_out(profile, tmp_path):
    """Peers keep one signed in. Signing out is final, for every tab."""
    async with Server(tmp_path, env={"HOLDFAST_API_KEY": KEY}) as server:
        context = await profile(url=server.url)
        await sign_in(Tab(await context.new_page()))
        stored = await context.storage_state()
        again = Tab(await (await profile(url=server.url, storage_state=stored)).new_page())
        await again.open("/settings")
        await expect(again.page.get_by_role("heading", name="Providers")).to_be_visible()
        await again.press("Sign out")
        await expect(again.page.get_by_role("dialog", name="Enter your API key")).to_be_visible()

        assert KEY not in str(await again.page.context.storage_state())


async def sign_in(tab: Tab) -> None:
    await tab.open()
    dialog = tab.page.get_by_role("dialog", name="Enter your API key")
    await expect(dialog.get_by_label("API key", exact=True)).to_have_attribute("autocomplete", "current-password")
    await dialog.get_by_label("API key", exact=True).fill(KEY)
    await dialog.get_by_label("Remember on this device").check()
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(dialog).to_have_count(0)


@requirement("ui.browser-everyday")
async def test_a_response_that_stands_still_because_nothing_can_be_saved_says_so(tab, up):
    """A full disk: the response continues by itself, and until then its reader knows why it does not."""
    up.enqueue([Headers(), Role(), Delta("Half"), Gate("disk"), Finish(), UsageChunk(), Done()])
    error = {"error": {"message": "no", "type": "server_error", "code": "store_unavailable", "param": None}}
    await tab.page.route("**/ready", lambda route: route.fulfill(status=503, json=error))
    await tab.say("Go")
    await tab.reads("Half")
    await expect(tab.page.get_by_text("can't save at the moment")).to_be_visible()
    up.open("disk")

    await tab.sees_ending("completed", "Half")
    await expect(tab.page.get_by_text("can't save at the moment")).to_have_count(0)


@requirement("ui.browser-everyday")
async def test_a_long_message_is_folded_and_code_in_it_is_code(tab, up):
    """Thousands of pasted lines must not stand between the question and the answer."""
    up.enqueue(answer("Read."))
    await tab.box.fill("```\nx = 1\n```\n" + "\n".join(f"line {n}" for n in range(3_000)))
    await tab.box.press("Enter")
    await tab.sees_ending("completed", "Read.")
    message = tab.messages.first
    await expect(message.locator(".said")).not_to_contain_text("line 2999")
    await expect(message.locator("code")).to_have_css("font-family", re.compile("monospace"))
    folded = (await message.bounding_box() or {})["height"]
    await message.get_by_role("button", name="Show all").click()

    await expect(message.locator(".said")).to_contain_text("line 2999")
    assert folded < 500


@requirement("ui.browser-everyday")
async def test_chat_settings_ask_before_they_forget_and_leave_a_mark(tab):
    """A system prompt of ten minutes is not lost to a key, and a chat shows that it has one."""
    await tab.press("Chat settings")
    field = tab.page.get_by_label("System prompt")
    await field.fill("Be brief.")
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.get_by_text("Discard the changes?")).to_be_visible()
    await expect(field).to_have_value("Be brief.")
    await tab.press("Save")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)

    await expect(tab.page.locator(".view-header .is-set")).to_be_visible()


@requirement("ui.browser-everyday")
async def test_on_a_phone_buttons_have_room_for_a_finger_and_a_search_waits(new_tab):
    """The list of models is not covered by a keyboard that nobody has asked for."""
    tab = await new_tab(viewport=PHONE, has_touch=True, is_mobile=True)
    sizes = await tab.measure("[...document.querySelectorAll('main .icon-button')].map((each) => each.offsetHeight)")
    await tab.page.locator(".model-button").tap()
    await expect(tab.page.get_by_role("option").first).to_be_visible()

    await expect(tab.page.get_by_role("combobox")).not_to_be_focused()
    assert min(sizes) >= 40


@requirement("ui.browser-everyday")
async def test_a_phone_on_its_side_shows_the_chat_and_not_the_list(new_tab):
    """A third of so low a screen is needed for words."""
    tab = await new_tab(viewport={"width": 844, "height": 390}, has_touch=True, is_mobile=True)
    await expect(tab.box).to_be_visible()

    await expect(tab.page.locator(".sidebar")).not_to_be_in_viewport()


@requirement("ui.browser-everyday")
async def test_a_response_that_ended_at_a_budget_says_which_and_until_when(new_tab, up, tmp_path):
    """A button that cannot work is no way on; the time is that of the reader."""
    config = "[budget]\ntokens_per_day = 200\n"
    up.enqueue([Headers(), Role(), *[Delta("word " * 40)] * 60, Hang()])
    async with Server(tmp_path, [provider(up.base_url, models=["m"])], config=config) as server:
        tab = await new_tab(url=server.url, timezone_id="Asia/Tokyo")
        await tab.say("Go")
        shown = await tab.sees_ending("stopped")
        note = shown.get_by_role("note")

        await expect(note).to_contain_text("Your budget of 200 tokens is spent. It is renewed on")
        await expect(note).to_contain_text("9:00")
        await expect(note.get_by_role("button")).to_have_count(0)


@requirement("ui.browser-everyday")
async def test_on_a_phone_the_title_of_a_chat_has_room(new_tab, api):
    """Sharing and the settings are in the menu there, and on a wide page beside the title, and nowhere twice."""
    session = await api.new_session(model="up/m", title="The history of the herring trade")
    tab = await new_tab(f"/s/{session}", viewport=PHONE, has_touch=True, is_mobile=True)
    items, share = tab.page.locator(".view-header [role=menuitem]:visible"), tab.button("Share")
    await tab.finds(True, "document.querySelector('.view-header h1').clientWidth >= 210")
    await expect(share).to_have_count(0)
    await tab.press("Chat actions")
    await expect(items.first).to_have_text("Share")
    await expect(items.first).to_be_focused()
    await tab.page.keyboard.press("Escape")
    await tab.page.set_viewport_size({"width": 1280, "height": 800})
    await expect(share).to_be_visible()
    await tab.press("Chat actions")

    await expect(items.first).to_have_text("Rename")
    await expect(items.first).to_be_focused()
    await tab.page.keyboard.press("ArrowUp")
    await expect(items.last).to_be_focused()
